"""Starts a warm pool: for all jobs of a user, or for one agent alone."""

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
from drumline.linux import kernel
from drumline.node.hook_folder import HOOK
from drumline.node.warm import pool_folder

_START_TIMEOUT_S = 5.0


def ensure_pool(folder: str, *, anew: bool = False) -> bool:
    """
    Start a warm pool in that folder unless there is one; False where there can be none. Blocks for as long as a fork
    takes. To be called by a single-threaded process that does not adopt orphans.

    ``anew``: as a new program, because this process has something in its memory that the pool must not keep.
    """
    with contextlib.suppress(OSError):
        pool_folder.connect_to_pool(folder).close()
        return True
    begun = _fork_pool(folder, -1, anew=anew)
    if begun is not None:
        os.close(begun[1])
    return begun is not None


class OwnPool(NamedTuple):
    """A warm pool for one process, whose end it does not outlive."""

    pid: int
    lifeline: int
    gone: int
    """At its end when the warm pool has ended."""

    def end(self) -> None:
        """End the pool. Blocks until it has ended, for some seconds at most."""
        os.close(self.lifeline)
        select.select([self.gone], [], [], _START_TIMEOUT_S)
        os.close(self.gone)


def start_own_pool(folder: str) -> Optional[OwnPool]:
    """Start one in that folder; None if that is impossible. Otherwise like ``ensure_pool``."""
    ends, lifeline = os.pipe()
    begun = _fork_pool(folder, ends)
    os.close(ends)
    if begun is None:
        os.close(lifeline)
        return None
    pid, gone = begun
    return OwnPool(pid, lifeline, gone)


def _fork_pool(folder: str, lifeline: int, *, anew: bool = False) -> Optional[tuple[int, int]]:
    """Return its pid and a pipe that ends with it; if another pool has that folder, 0 and a pipe that has ended."""
    try:
        pool_folder.make_pool_folder(folder)
    except OSError:
        return None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            if os.fork() == 0:
                os.close(reader)
                if anew:
                    os.set_inheritable(writer, True)
                    kernel.restore_core_limit()
                    program = [sys.executable, "-P", "-m", "drumline.node.warm.pool_start"]
                    os.execv(program[0], [*program, folder, str(writer)])  # noqa: S606 - our own module
                _become_pool(folder, writer, lifeline)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    if select.select([reader], [], [], _START_TIMEOUT_S)[0]:
        said = os.read(reader, 64)
        if said:
            return int(said), reader
    os.close(reader)
    return None


def _become_pool(folder: str, writer: int, lifeline: int) -> None:
    """Become the pool, and never return. ``lifeline``: a pipe at whose end it ends; -1: there is none."""
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

        from drumline.node.warm.pool import WarmPool

        log = os.path.join(folder, "pool.log")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        kernel.append_output(log, os.O_TRUNC | os.O_NOFOLLOW)
        # The pipe too: it ends when this process does.
        kept = {listener[0].fileno(), listener[1], lifeline, writer}
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        os.chdir("/")
        kernel.set_process_name("drumline-warm")
        with contextlib.suppress(OSError):
            # It was forked, and would be seen with the words and variables of whoever submitted the first job.
            runpy.run_path(os.path.join(HOOK, "warm.py"))["show"](["drumline-warm:", "keeper"], {})
        pool = WarmPool(folder, listener[0], lifeline)
        if lifeline < 0:
            pool_folder.stop_other_versions(folder)
        pool.run()
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


_Listening = tuple[socket.socket, int]


def _listen(folder: str) -> Optional[_Listening]:
    """Return the socket, and the lock held until this process ends; None if another process has the lock."""
    lock = os.open(
        os.path.join(folder, pool_folder.LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        deadline = time.monotonic() + _START_TIMEOUT_S / 2
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                pool_folder.connect_to_pool(folder).close()
                return None
            time.sleep(0.005)
        raise
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, pool_folder.SOCKET))
    before = os.umask(0o177)
    try:
        with pool_folder.shorten_socket_path(folder) as address:
            listener.bind(address)
    finally:
        os.umask(before)
    listener.listen(64)
    return listener, lock


if __name__ == "__main__":
    _become_pool(sys.argv[1], int(sys.argv[2]), -1)
