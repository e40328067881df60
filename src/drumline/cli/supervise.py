"""
The supervisor of a job that the command line submits: forked from it, since it is ours, small and has one thread.

Twice forked, so that it is nobody's child: no zombie, no wait, no signal from our terminal.
"""

from __future__ import annotations

import os
import signal
import sys


class Standby:
    """
    A supervisor that is forked before it is needed: it imports what it needs on another core while the command line
    reads its arguments and plans. It ends by itself when the command line ends without a job for it.
    """

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        if not _fork_away():
            return
        code = 1
        try:
            os.close(self._writer)
            code = _await_job(reader)
        finally:
            os._exit(code)

    def __call__(self, folder: str) -> None:
        """Give it the job of that run folder, and return. To be called once."""
        os.write(self._writer, folder.encode("utf-8", "surrogateescape"))
        os.close(self._writer)


def _fork_away() -> bool:
    """True in the grandchild alone; the child in between is gone when this returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    # Until it is in a session of its own, a Ctrl-C of our terminal reaches it too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if os.fork():
        os._exit(0)
    return True


def _await_job(reader: int) -> int:
    from drumline.supervisor.main import be_ready, supervise

    be_ready()
    path = b""
    while data := os.read(reader, 4096):
        path += data
    return supervise(path.decode("utf-8", "surrogateescape")) if path else 0
