"""
Locks between processes: a file each, which is held as long as a descriptor is open, so that it goes with its holder.

Where a file system has no locks, as some network ones, every lock is had at once: work may then be done twice, and
nothing is torn, because all that others see is put in place by one rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING

from drumline.contract.errors import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELD_BY_ANOTHER = (errno.EWOULDBLOCK, errno.EACCES)


class Lock:
    """One that is held; ``release`` gives it back and takes its file away."""

    def __init__(self, path: str, descriptor: int, *, is_sole: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self.is_sole = is_sole
        """False where there are no locks: others may be at the same work."""

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)


def try_lock(path: str) -> Lock | None:
    """Return the lock; None while another process or thread holds it. Raises OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        is_sole = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                os.close(descriptor)
                return None
            is_sole = False
        if _is_at(path, descriptor):
            return Lock(path, descriptor, is_sole=is_sole)
        # Its holder took the file away between our two steps: what we hold is the lock of nothing.
        os.close(descriptor)


@contextlib.contextmanager
def hold_lock(path: str, *, shared: bool = False) -> Iterator[None]:
    """Wait for a lock and hold it; the file stays. One for which there is no room nobody holds. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
