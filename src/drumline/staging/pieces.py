"""A large object, whose chunks are brought by whichever threads are free."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.chunks import Chunks
    from drumline.staging.fetching import Fetching
    from drumline.staging.locks import Lock
    from drumline.staging.stores.base import Object

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a disk on which there is no room for it."""


class Pieces:
    """Whoever makes it has the object's lock, which goes back with ``close``."""

    def __init__(self, fetching: Fetching, found: Object, chunks: Chunks, lock: Lock) -> None:
        self._fetching = fetching
        self._found = found
        self._chunks = chunks
        self._lock = lock
        self._first = ""
        self._left = 0
        self._count = threading.Lock()
        self._is_over = False
        self._is_whole = False
        """Whether what has come is of no more use: it was taken over, or given up."""
        self._is_closed = False

    def begin(self) -> None:
        missing = self._chunks.missing
        # One more than there are, so that one that has all of its chunks is completed too.
        self._left = len(missing) + 1
        self._fetching.more([self._step(number) for number in missing])
        self._one_less()

    def _step(self, number: int) -> Callable[[], None]:
        return lambda: self._bring(number)

    def _bring(self, number: int) -> None:
        if self._is_over:
            return
        try:
            start, end = self._chunks.range(number)
            data = self._fetching.read(self._found, start, end)
            self._chunks.write(number, data)
        except BaseException as error:
            self._give_up(error)
            raise
        self._fetching.told(len(data))
        self._one_less()

    def _one_less(self) -> None:
        with self._count:
            self._left -= 1
            if self._left:
                return
        try:
            self._complete()
        except BaseException as error:
            self._give_up(error)
            raise

    def _complete(self) -> None:
        digests = self._chunks.finish()
        if not self._fetching.is_right(self._found, digests, self._first):
            self._first = digests.compared
            self._chunks.begin_again()
            self._fetching.told(-self._found.size)
            self.begin()
            return
        self._fetching.complete(self._found, self._chunks.path, digests)
        self._is_whole = True
        self.close()

    def _give_up(self, error: BaseException) -> None:
        """What has come stays for another try, unless there is no room for it, or it is wrong."""
        self._is_over = True
        full_disk = isinstance(error, OSError) and error.errno in FULL
        self._is_whole = self._is_whole or full_disk or not self._chunks.missing

    def close(self) -> None:
        """When no thread is at it any more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._chunks.close()
        if self._is_whole:
            self._chunks.forget()
        self._lock.release()
