"""
A rank that leaves everything behind that a rank can: argv[1] is a token that every process of it carries in its
command line, argv[2] what it does then: wait (and end on SIGTERM), ignore SIGTERM, or exit with that code.
"""

import os
import signal
import subprocess
import sys
import time

token, then = sys.argv[1], sys.argv[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)", token]


def daemon():
    """Twice forked, in a session of its own, with nothing in its environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, SLEEP, {})
        os._exit(0)
    os.wait()


subprocess.Popen(SLEEP)
subprocess.Popen(SLEEP, start_new_session=True)
subprocess.Popen(
    ["/bin/sh", "-c", f"trap '' TERM; exec '{sys.executable}' -c 'import time; time.sleep(600)' {token}"]
)
daemon()
if then == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
if then not in ("wait", "ignore"):
    # The others are to be there first, so that all that a rank can leave behind is there when this one ends.
    while len(os.listdir(sys.argv[3])) < int(os.environ["WORLD_SIZE"]) - 1:
        time.sleep(0.01)
    sys.exit(int(then))
open(os.path.join(sys.argv[3], os.environ["RANK"]), "w").close()
time.sleep(600)
