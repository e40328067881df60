"""
A rank that writes lines of 100 bytes: ``flood COUNT`` as fast as it can, 8 kB at a time, as a program does that
writes to a file; ``stamps SECONDS`` one each 200 ms with the time in it, at once.
"""

import os
import sys
import time

LINE = 100
AT_ONCE = 80


def line(text: str) -> bytes:
    return text.ljust(LINE - 1, ".").encode() + b"\n"


def flood(rank: int, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        last = min(first + AT_ONCE, count)
        os.write(1, b"".join([b"rank %3d line %9d %s\n" % (rank, n, b"." * 76) for n in range(first, last)]))


def stamps(rank: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.write(1, line(f"rank {rank} @{time.monotonic_ns()}@ "))
        time.sleep(0.2)


if __name__ == "__main__":
    me = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    if sys.argv[1] == "flood":
        flood(me, int(sys.argv[2]))
    else:
        stamps(me, float(sys.argv[2]))
