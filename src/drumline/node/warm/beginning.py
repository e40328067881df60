"""The start of a keeper: for all jobs of a user, or for one agent alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import runpy
import select
import signal
import socket
import sys
import time
from typing import NamedTuple, Optional

from drumline.node import kernel
from drumline.node.failures import HOOK
from drumline.node.warm import place
from drumline.node.warm.keeper import Keeper

_BEGIN_S = 5.0


def ensure(folder: str) -> bool:
    """
    Have a keeper at that place, starting one if there is none; False where there can be none. Blocks for as long as a
    fork takes. To be called by a single-threaded process that does not adopt orphans.
    """
    with contextlib.suppress(OSError):
        place.connect(folder).close()
        return True
    gone = _begin_keeper(folder, -1)
    if gone is not None:
        os.close(gone)
    return gone is not None


class Own(NamedTuple):
    """A keeper for one process, whose end it does not outlive."""

    lifeline: int
    gone: int
    """At its end when the keeper has ended."""

    def end(self) -> None:
        """Blocks until it has, for some seconds at most."""
        os.close(self.lifeline)
        select.select([self.gone], [], [], _BEGIN_S)
        os.close(self.gone)


def own(folder: str) -> Optional[Own]:
    """At that place; None: there can be none. Otherwise as ``ensure``."""
    ends, lifeline = os.pipe()
    gone = _begin_keeper(folder, ends)
    os.close(ends)
    if gone is None:
        os.close(lifeline)
        return None
    return Own(lifeline, gone)


def _begin_keeper(folder: str, lifeline: int) -> Optional[int]:
    """A pipe that ends with it, or, where another has that place, at once."""
    try:
        place.make(folder)
    except OSError:
        return None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            if os.fork() == 0:
                os.close(reader)
                _be_keeper(folder, writer, lifeline)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    if select.select([reader], [], [], _BEGIN_S)[0] and os.read(reader, 1) == b"1":
        return reader
    os.close(reader)
    return None


def _be_keeper(folder: str, writer: int, lifeline: int) -> None:
    """Never returns. ``lifeline``: a pipe at whose end it ends; -1: there is none."""
    code = 1
    try:
        listener = _listen(folder)
        if listener is None:
            # Another was faster.
            os.write(writer, b"1")
            os._exit(0)
        signals = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)
        signal.set_wakeup_fd(-1)
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.write(writer, b"1")
        log = os.path.join(folder, "keeper.log")
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        # The pipe too: it ends when this process does.
        _close_but({listener[0].fileno(), listener[1], lifeline, writer})
        os.chdir("/")
        kernel.set_name("drumline-warm")
        with contextlib.suppress(OSError):
            # It was forked, and would be seen with the words and variables of whoever submitted the first job.
            runpy.run_path(os.path.join(HOOK, "warm_rank.py"))["show"](["drumline-warm:", "keeper"], {})
        Keeper(folder, listener[0], lifeline).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


_Listening = tuple[socket.socket, int]


def _listen(folder: str) -> Optional[_Listening]:
    """The socket, and the lock that says that it is ours, held until this process ends; None where another has it."""
    lock = os.open(
        os.path.join(folder, place.LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        deadline = time.monotonic() + _BEGIN_S / 2
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                place.connect(folder).close()
                return None
            time.sleep(0.005)
        raise
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, place.SOCKET))
    before = os.umask(0o177)
    try:
        with place.short(folder) as address:
            listener.bind(address)
    finally:
        os.umask(before)
    listener.listen(64)
    return listener, lock


def _close_but(numbers: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in numbers:
            with contextlib.suppress(OSError):
                os.close(int(name))
