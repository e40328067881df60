"""Rank 1 fails, in the way that its argument says; the others wait."""

import os
import signal
import sys


def step():
    if sys.argv[1] == "raise":
        raise RuntimeError("bad batch")
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ["RANK"] == "1":
    step()
signal.pause()
