"""The first process of a pod: it has one child that does the work, and prints what is new in the run folder."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from drumline.engines.kubernetes import frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder

_TICK_S = 0.2


def _do_nothing() -> None:
    pass


class FirstProcess:
    """Prints frames, reaps orphans, and passes SIGTERM on."""

    def __init__(self, folder: RunFolder) -> None:
        self._sender = frames.Sender(folder.path, frames.MOST_RESULTS)
        self._children: dict[int, int] = {}
        """Exit codes of children that have ended, and were not asked for yet."""

        self.terminated = False
        self.on_terminate: Callable[[], None] = _do_nothing
        """Called in the handler, before the child hears of it."""

        self._child = 0
        self._count = 0
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def _pass_on(self, number: int, _: object) -> None:
        if not self.terminated:
            self.terminated = True
            self.on_terminate()
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)

    def fork(self, work: Callable[[], int]) -> None:
        """Have a child do that; its exit code is the one of this function."""
        sys.stdout.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                code = work()
            except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
                import traceback

                traceback.print_exc()
            finally:
                with contextlib.suppress(BaseException):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        self._child = pid
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.terminated:
            self._pass_on(signal.SIGTERM, None)

    def look(self) -> int | None:
        """Print what is new; return the exit code of the child once it has ended."""
        ended = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._child:
                ended = os.waitstatus_to_exitcode(status)
        if ended is not None:
            self._child = 0
        self.send()
        return ended

    def send(self, *, with_results: bool = False) -> None:
        """Print what is new."""
        for frame in self._sender.find_news(with_results=with_results):
            self._print(frame)
        sys.stdout.flush()

    def finish(self) -> None:
        """Print the rest, with the outputs, and that this was all."""
        self.send(with_results=True)
        for frame in self._sender.list_left_out(os.uname().nodename):
            self._print(frame)
        self._print(frames.Frame("", end=True))
        sys.stdout.flush()

    def _print(self, frame: frames.Frame) -> None:
        self._count += 1
        sys.stdout.write(frames.encode(frame._replace(number=self._count)) + "\n")

    def pause(self) -> None:
        """Wait a moment, or until a signal comes."""
        time.sleep(_TICK_S)
