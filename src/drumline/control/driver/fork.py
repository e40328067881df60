"""A step's supervisor as a fork of the driver, which is ours, has one thread, and has its modules loaded."""

from __future__ import annotations

import contextlib
import os
import sys

from drumline.contract.folder import RunFolder
from drumline.supervisor.main import supervise


def fork_supervisor(path: str, secrets: str = "") -> None:
    """
    Start the supervisor of that run folder, forked twice: it has its own session and is not this process's child.

    ``secrets``: the job's, as ``contract.secrets`` passes them on.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    supervisor = os.fork()
    if supervisor:
        with contextlib.suppress(OSError):  # The supervisor says so.
            RunFolder(path).hand_over(supervisor)
        os._exit(0)
    code = 1
    try:
        code = supervise(path, secrets=secrets)
    finally:
        os._exit(code)
