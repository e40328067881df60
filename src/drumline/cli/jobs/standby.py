"""
The supervisor of a job that the command line submits: forked from it, since it is ours, small and has one thread.

Forked twice, so that it is no child of ours: no zombie, no wait, no signal from our terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


class Standby:
    """
    A supervisor that is forked before it is needed: it imports what it needs on another core while the command line
    reads its arguments and plans. It ends by itself when the command line ends without a job for it.
    """

    def __init__(self) -> None:
        self._writer = -1
        if sys.platform != "linux":
            # A job for this machine is refused later.
            return
        environment = _read_environment()
        reader, self._writer = os.pipe()
        self._pid = _fork_away()
        if self._pid:
            # Else there would be somebody to read from when the supervisor is gone.
            os.close(reader)
            return
        code = 1
        try:
            os.close(self._writer)
            if environment:
                os.environ.clear()
                os.environ.update(environment)
            code = _await_job(reader)
        finally:
            os._exit(code)

    def __call__(self, folder: str, secrets: str = "") -> None:
        """
        Give it the job of that run folder, with the job's secrets, and return. To be called once.

        Raises EngineError when it has gone.
        """
        from drumline.contract.folder import RunFolder

        with contextlib.suppress(OSError):  # The supervisor says so.
            RunFolder(folder).hand_over(self._pid)
        try:
            os.write(self._writer, f"{folder}\0{secrets}".encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            from drumline.contract.errors import EngineError

            raise EngineError("the supervisor of the job did not start", "try again") from None
        finally:
            self.dismiss()

    def dismiss(self) -> None:
        """Let it end, if it has no job. Nothing happens at a second call."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


def _read_environment() -> dict[str, str]:
    """Return the environment for the job where it is not ours: in a cell of a notebook, whose kernel has its own."""
    if "JPY_PARENT_PID" not in os.environ:
        return {}
    # Before the fork: a supervisor does not descend from the kernel any more.
    from drumline.linux import notebook_environment

    return notebook_environment.restore_environment()


def _fork_away() -> int:
    """Return the number of the grandchild, and 0 in the grandchild; the child in between has exited by then."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        pid = int(os.read(reader, 100) or -1)
        os.close(reader)
        os.waitpid(child, 0)
        return pid
    os.close(reader)
    # Before it has its own session, a Ctrl-C in our terminal reaches it too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    pid = os.fork()
    if pid:
        os.write(writer, b"%d" % pid)
        os._exit(0)
    os.close(writer)
    return 0


def _await_job(reader: int) -> int:
    # Who reads our output does not wait for a supervisor that gets no job.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    from drumline.supervisor.main import be_ready, supervise

    be_ready()
    said = b""
    while data := os.read(reader, 4096):
        said += data
    path, _, secrets = said.decode("utf-8", "surrogateescape").partition("\0")
    return supervise(path, secrets=secrets) if path else 0
