"""The start of a keeper: for all jobs of a user, or for one agent alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
from typing import Optional

from drumline.contract.record import NamedTuple
from drumline.node import kernel
from drumline.node.failures import HOOK
from drumline.node.warm import place

_BEGIN_S = 5.0


def ensure(folder: str) -> bool:
    """
    Have a keeper at that place, starting one if there is none; False where there can be none. Blocks for as long as a
    fork takes. To be called by a single-threaded process that does not adopt orphans.
    """
    with contextlib.suppress(OSError):
        place.connect(folder).close()
        return True
    begun = _begin_keeper(folder, -1)
    if begun is not None:
        os.close(begun[1])
    return begun is not None


class Own(NamedTuple):
    """A keeper for one process, whose end it does not outlive."""

    pid: int
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
    begun = _begin_keeper(folder, ends)
    os.close(ends)
    if begun is None:
        os.close(lifeline)
        return None
    pid, gone = begun
    return Own(pid, lifeline, gone)


def _begin_keeper(folder: str, lifeline: int) -> Optional[tuple[int, int]]:
    """Its pid, and a pipe that ends with it; where another has that place, 0, and the pipe has ended."""
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
    if select.select([reader], [], [], _BEGIN_S)[0]:
        said = os.read(reader, 64)
        if said:
            return int(said), reader
    os.close(reader)
    return None


def _be_keeper(folder: str, writer: int, lifeline: int) -> None:
    """Never returns. ``lifeline``: a pipe at whose end it ends; -1: there is none."""
    code = 1
    try:
        listener = _listen(folder)
        if listener is None:
            # Another was faster.
            os.write(writer, b"0")
            os._exit(0)
        signals = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)
        signal.set_wakeup_fd(-1)
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        # An agent's own is told to end when the agent is, as all of a job's processes may be, and waits for it.
        signal.pthread_sigmask(signal.SIG_SETMASK, () if lifeline < 0 else signals)
        os.write(writer, b"%d" % os.getpid())
        # Who starts it need not wait for these, and most find one that has begun.
        import runpy

        from drumline.node.warm.keeper import Keeper

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
        keeper = Keeper(folder, listener[0], lifeline)
        if lifeline < 0:
            keeper.replace_others()
        keeper.run()
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
