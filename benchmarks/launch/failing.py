"""
A rank that waits for a signal; rank 3 fails when the file `go` appears.

Its argument is the file that every rank adds a line to, its process id; `go` and `failed` lie
beside it.
`failed` gets the moment just before the exit, in nanoseconds of CLOCK_MONOTONIC.
"""

import os
import sys
import time
from pathlib import Path

started = Path(sys.argv[1])
rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
deadline = time.monotonic() + 300

# As /proc has it: getpid() is another number in a PID namespace.
pid = os.readlink("/proc/self")
os.write(os.open(started, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), f"{pid}\n".encode())

if rank == 3:
    while not started.with_name("go").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    started.with_name("failed").write_text(str(time.monotonic_ns()))
    sys.exit(1)
time.sleep(300)
