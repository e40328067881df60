"""
A rank that behaves badly: argv[1] is a token that every process of it carries in its command line, argv[2] a folder for
an independent copy of what it prints, argv[3] how it behaves, words with commas between them:

ignore      SIGTERM does nothing
children    a child that keeps standard output open, one in a session of its own, a daemon without an environment
END=N       it ends with that code after some lines; without it, it prints until it is ended
"""

import os
import signal
import sys
import time

token, copies, behaviour = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
LINES = 20

if "ignore" in behaviour:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "children" in behaviour:
    if os.fork() == 0:
        time.sleep(600)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve("/bin/sh", ["sh", "-c", f"sleep 600; : {token}"], {})
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)

ends = [int(word.removeprefix("END=")) for word in behaviour if word.startswith("END=")]
name = f"{os.environ['DRUMLINE_ATTEMPT']}-{os.environ['RANK']}"
copy = os.open(os.path.join(copies, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
number = 0
while not ends or number < LINES:
    line = f"rank {name} says {number} \0 \xff\r{'.' * (number % 97)}\n".encode("latin-1")
    # First into the copy: whoever is ended in between has one line more there than in the log.
    os.write(copy, line)
    os.write(1, line)
    number += 1
    time.sleep(0.01)
sys.exit(ends[0])
