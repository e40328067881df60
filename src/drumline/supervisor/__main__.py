"""
``python -m drumline.supervisor RUN_FOLDER``: goes to the background at once and supervises that job, whose secrets it
reads from its input. With ``--batch`` before it, it stays: it is a step of an engine's batch job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from drumline.contract.folder import RunFolder
from drumline.supervisor.main import supervise


def main() -> int:
    if sys.argv[1] == "--batch":
        return supervise(sys.argv[2], batch=True)
    secrets = sys.stdin.read()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # The child says so.
            RunFolder(sys.argv[1]).hand_over(child)
        return 0
    os._exit(supervise(sys.argv[1], secrets=secrets))


if __name__ == "__main__":
    sys.exit(main())
