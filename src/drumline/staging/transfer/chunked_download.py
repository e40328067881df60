"""The download of one large object, whose chunks are brought by whichever threads are free."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from drumline.contract.errors import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.cache.locks import Lock
    from drumline.staging.stores.store import Object
    from drumline.staging.transfer.downloaded_objects import DownloadedObjects, Origin
    from drumline.staging.transfer.partial_file import PartialFile
    from drumline.staging.transfer.step_queue import StepQueue


class ChunkedDownload:
    """One large object. ``lock``: the object's, which ``close`` releases."""

    def __init__(
        self,
        found: Object,
        origin: Origin,
        objects: DownloadedObjects,
        queue: StepQueue,
        partial: PartialFile,
        lock: Lock,
    ) -> None:
        self._found = found
        self._origin = origin
        self._objects = objects
        self._queue = queue
        self._partial = partial
        self._lock = lock
        self._first = ""
        self._left = 0
        self._count = threading.Lock()
        self._is_over = False
        self._is_spent = False
        """Whether the partial file is of no more use: it was taken over, or given up."""
        self._is_closed = False

    def begin(self) -> None:
        missing = self._partial.missing
        # One more than there are, so that one that has all of its chunks is completed too.
        self._left = len(missing) + 1
        self._queue.add_urgent([self._make_step(number) for number in missing])
        self._count_down()

    def _make_step(self, number: int) -> Callable[[], None]:
        return lambda: self._bring(number)

    def _bring(self, number: int) -> None:
        if self._is_over:
            return
        try:
            data = self._origin.read(self._found, *self._partial.range(number))
            self._partial.write(number, data)
        except BaseException as error:
            self._give_up(error)
            raise
        self._objects.on_bytes(len(data))
        self._count_down()

    def _count_down(self) -> None:
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
        digest = self._partial.finish()
        if not self._objects.is_right(self._found, digest, self._first):
            self._first = digest.comparable_digest
            self._partial.begin_again()
            self._objects.on_bytes(-self._found.size)
            self.begin()
            return
        self._objects.add_complete(self._found, self._partial.path, digest)
        self._is_spent = True
        self.close()

    def _give_up(self, error: BaseException) -> None:
        """Keep the chunks for another try, unless there is no room for them, or they are wrong."""
        self._is_over = True
        full_disk = isinstance(error, OSError) and error.errno in NO_ROOM
        self._is_spent = self._is_spent or full_disk or not self._partial.missing

    def close(self) -> None:
        """Close the partial file and release the lock. To be called when no thread brings a chunk any more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._partial.close()
        if self._is_spent:
            self._partial.forget()
        self._lock.release()
