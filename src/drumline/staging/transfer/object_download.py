"""
Objects into the cache: files and chunks of large ones side by side, each object by one process at a time.

No thread waits for a lock: an object that another process fetches comes last, and is then found in the cache.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract import words
from drumline.contract.errors import NO_ROOM, NodeError
from drumline.staging.cache import cache_pruning
from drumline.staging.file_copy import write_at
from drumline.staging.stores.store import CHUNK_BYTES
from drumline.staging.transfer.downloaded_objects import DownloadedObjects, PartialFile, RunningDigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.staging.cache.cache_folder import Cache, SourceFile
    from drumline.staging.cache.locks import Lock
    from drumline.staging.stores.store import Object
    from drumline.staging.transfer.downloaded_objects import Origin

    Step = Callable[[], None]


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


THREADS = 16


class Download:
    """The download of one input. ``on_bytes`` and ``on_file`` are called from any thread, with negative counts too."""

    def __init__(
        self,
        cache: Cache,
        origin: Origin,
        on_bytes: Callable[[int], None] = lambda _: None,
        on_file: Callable[[], None] = lambda: None,
    ) -> None:
        self.objects = DownloadedObjects(cache, origin, on_bytes, on_file)
        self._cache = cache
        self._origin = origin
        self._chunk = CHUNK_BYTES
        self._queue = StepQueue()
        self._large: list[ChunkedDownload] = []

    def fetch(
        self, wanted: list[Object], make_room: Callable[[int], None] = lambda _: None
    ) -> list[SourceFile]:
        """
        Bring all of them into the cache, and return their files in the same order. Blocks. To be called once.

        ``make_room``: for so many bytes that have to come. Raises what that and the store raise (ObjectChangedError
        too), NodeError for a wrong digest or a full disk, OSError.
        """
        # Large ones first: their chunks are there for whichever thread has nothing else to do.
        missing = sorted(
            (one for one in wanted if not self.objects.add_cached(one)), key=lambda one: -one.size
        )
        if missing:
            make_room(sum(max(0, one.size) - self._measure_partial(one) for one in missing))
            chunks = sum(max(1, -(-one.size // self._chunk)) for one in missing)
            self._queue.run([self._make_step(one) for one in missing], min(THREADS, chunks))
        error = self._queue.error
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            # It says how much room is left, so it is made before the partial files are removed.
            error, error.__cause__ = disk_full_error(self._cache, self._origin.uri), error
        for large in self._large:
            large.close()
        if error is not None:
            raise error
        return [self.objects.get_file(one) for one in wanted]

    def _measure_partial(self, found: Object) -> int:
        """Return how many bytes of it an earlier fetch has left."""
        path = os.path.join(self._cache.partial, self.objects.name_of(found))
        return min(max(0, found.size), cache_pruning.measure_blocks(path))

    def _partial_path(self, found: Object, lock: Lock, ending: str = "") -> str:
        own = "" if lock.is_sole else f".{os.urandom(4).hex()}"
        return os.path.join(self._cache.partial, f"{self.objects.name_of(found)}{ending}{own}")

    def _make_step(self, found: Object) -> Callable[[], None]:
        return lambda: self._begin(found)

    def _begin(self, found: Object) -> None:
        lock = self._cache.try_lock(self.objects.name_of(found))
        if lock is None:
            self._queue.postpone(self._make_step(found))
            return
        kept = False
        try:
            if not self.objects.add_cached(found) and not self.objects.add_known_content(found):
                kept = self._bring(found, lock)
        finally:
            if not kept:
                lock.release()

    def _bring(self, found: Object, lock: Lock) -> bool:
        """Return whether its chunks are left to other threads, and the lock with them."""
        if found.size <= self._chunk or not self._origin.store.ranges:
            self._bring_whole(found, self._partial_path(found, lock, ".whole"))
            return False
        algorithm, _ = self.objects.expected_digest(found)
        partial = PartialFile(self._partial_path(found, lock), found, algorithm, self._chunk)
        self.objects.on_bytes(partial.bytes_there)
        large = ChunkedDownload(found, self._origin, self.objects, self._queue, partial, lock)
        self._large.append(large)
        large.begin()
        return True

    def _bring_whole(self, found: Object, path: str) -> None:
        """Bring it in one go; without a known size or ranges, one chunk after the other."""
        algorithm, _ = self.objects.expected_digest(found)
        first = ""
        try:
            while True:
                digest = RunningDigest(algorithm)
                size = self._stream(found, path, digest)
                if self.objects.is_right(found, digest, first):
                    break
                first = digest.comparable_digest
                self.objects.on_bytes(-size)
            self.objects.add_complete(found._replace(size=size), path, digest)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _stream(self, found: Object, path: str, digest: RunningDigest) -> int:
        size = 0
        with open(path, "wb", buffering=0, opener=_open_private) as file:
            while found.size < 0 or size < found.size:
                if self._queue.error is not None:
                    raise NodeError("another file could not be fetched")
                end = size + self._chunk if found.size < 0 else min(found.size, size + self._chunk)
                data = self._origin.read(found, size, end)
                digest.update(data)
                write_at(file.fileno(), data, size)
                size += len(data)
                self.objects.on_bytes(len(data))
                if len(data) < self._chunk:
                    break
        return size


def disk_full_error(cache: Cache, uri: str) -> NodeError:
    left = words.format_size(cache_pruning.free_bytes(cache))
    return NodeError(
        f"{uri}: the disk of the cache is full ({cache.path}, {left} left)",
        "drumline cache prune makes room, DRUMLINE_CACHE names a folder on another disk",
    )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


_POSTPONED_PAUSE_S = 0.05


class StepQueue:
    """
    Three queues: urgent steps go first, so that few objects are under way at once; postponed ones are tried again,
    after a pause, when nothing else is left.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The first that a step raised; no further step begins then."""

        self._urgent: deque[Step] = deque()
        self._waiting: deque[Step] = deque()
        self._postponed: deque[Step] = deque()
        self._running = 0
        self._change = threading.Condition()

    def run(self, steps: Iterable[Step], thread_count: int) -> None:
        """Run these steps, and those that they add, until none is left or one has failed. Blocks; raises nothing."""
        self._waiting.extend(steps)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(thread_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def add_urgent(self, steps: Iterable[Step]) -> None:
        """Add steps that the next free threads take."""
        with self._change:
            self._urgent.extend(steps)
            self._change.notify_all()

    def postpone(self, step: Step) -> None:
        """Add a step that cannot be done yet."""
        with self._change:
            self._postponed.append(step)

    def _work(self) -> None:
        while (step := self._take_step()) is not None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - whoever called ``run`` raises it
                self.error = self.error or error
            with self._change:
                self._running -= 1
                self._change.notify_all()

    def _take_step(self) -> Step | None:
        """Wait for the next step; None when there is nothing left to do."""
        with self._change:
            while self.error is None:
                if self._urgent or self._waiting:
                    self._running += 1
                    return (self._urgent or self._waiting).popleft()
                if self._postponed:
                    self._change.wait(_POSTPONED_PAUSE_S)
                    self._waiting.extend(self._postponed)
                    self._postponed.clear()
                elif self._running:
                    self._change.wait()
                else:
                    break
            return None
