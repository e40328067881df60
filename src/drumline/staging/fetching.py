"""
Objects into the cache: files and chunks of large ones side by side, each object by one process at a time.

No thread waits for a lock: what another process fetches comes last, and is then found in the cache.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.record import NamedTuple
from drumline.staging import cache_room, sizes
from drumline.staging.cache import Item, key_of
from drumline.staging.chunks import CHUNK, Chunks, Digests
from drumline.staging.pieces import FULL, Pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.cache import Cache
    from drumline.staging.locks import Lock
    from drumline.staging.stores.base import Object, Store

THREADS = 16
_PAUSE_S = 0.05


class Place(NamedTuple):
    """Where objects are. ``identity``: of what tells it from all others, never shown; ``uri``: without secrets."""

    store: Store
    identity: str
    uri: str
    believes_second: bool
    """Whether a digest of the service that differs twice from the same content is no digest after all."""

    def uri_of(self, found: Object) -> str:
        return f"{self.uri.rstrip('/')}/{found.path}" if found.path else self.uri


class Fetching:
    """Of one input. ``on_bytes`` and ``on_file`` are told of what has come, from any thread; both may be negative."""

    def __init__(
        self,
        cache: Cache,
        place: Place,
        on_bytes: Callable[[int], None] = lambda _: None,
        on_file: Callable[[], None] = lambda: None,
    ) -> None:
        self.cache = cache
        self.place = place
        self.cached_bytes = 0
        self.verified = 0
        self._on_bytes = on_bytes
        self._on_file = on_file
        self._chunk = CHUNK
        self._items: dict[str, Item] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._pieces: list[Pieces] = []
        self._steps: deque[Callable[[], None]] = deque()
        self._objects: deque[Object] = deque()
        self._busy: deque[Object] = deque()
        self._running = 0
        self._error: BaseException | None = None
        self._change = threading.Condition()

    def fetch(self, objects: list[Object], make_room: Callable[[int], None] = lambda _: None) -> list[Item]:
        """
        All of them, in their order; their content is in the cache then. Blocks. To be called once.

        ``make_room``: for so many bytes that have to come. Raises what that and the store raise (Changed too),
        NodeError for a wrong digest or a full disk, OSError.
        """
        for found in objects:
            if not self._take_cached(found):
                self._objects.append(found)
        if self._objects:
            # Large ones first: their chunks are there for whoever has nothing else to do.
            self._objects = deque(sorted(self._objects, key=lambda found: -found.size))
            make_room(sum(max(0, found.size) - self._there(found) for found in self._objects))
            threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._threads)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for pieces in self._pieces:
            pieces.close()
        if self._error is not None:
            raise self._error
        return [self._items[found.path] for found in objects]

    def _there(self, found: Object) -> int:
        """Bytes that an earlier fetch has left of it."""
        try:
            path = os.path.join(self.cache.partial, self._name(found))
            return min(found.size, os.lstat(path).st_blocks * 512)
        except FileNotFoundError:
            return 0

    def _partial_path(self, found: Object, lock: Lock, ending: str = "") -> str:
        own = "" if lock.is_sole else f".{os.urandom(4).hex()}"
        return os.path.join(self.cache.partial, f"{self._name(found)}{ending}{own}")

    @property
    def _threads(self) -> int:
        chunks = sum(max(1, -(-found.size // self._chunk)) for found in self._objects)
        return min(THREADS, chunks)

    def _name(self, found: Object) -> str:
        """Of an object whatever its version, for its lock and what has come of it."""
        return key_of(self.place.identity, found.path)

    # what is to be done next

    def _work(self) -> None:
        while (step := self._next()) is not None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
                self._error = self._error or self._explained(error)
            with self._change:
                self._running -= 1
                self._change.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """None when there is nothing left to do. Chunks go first: so few objects are on their way at once."""
        with self._change:
            while self._error is None:
                if self._steps:
                    self._running += 1
                    return self._steps.popleft()
                if self._objects:
                    self._running += 1
                    return self._beginning(self._objects.popleft())
                if self._busy:
                    self._change.wait(_PAUSE_S)
                    self._objects.extend(self._busy)
                    self._busy.clear()
                elif self._running:
                    self._change.wait()
                else:
                    break
            return None

    def _beginning(self, found: Object) -> Callable[[], None]:
        return lambda: self._begin(found)

    # one object

    def _begin(self, found: Object) -> None:
        lock = self.cache.lock(self._name(found))
        if lock is None:
            with self._change:
                self._busy.append(found)
            return
        kept = False
        try:
            if not self._take_cached(found) and not self._take_known(found):
                kept = self._bring(found, lock)
        finally:
            if not kept:
                lock.release()

    def _take_cached(self, found: Object) -> bool:
        """Where the cache has that very version."""
        digest = self.cache.find(self._name(found), found)
        if digest:
            self._had(found, digest)
        return bool(digest)

    def _take_known(self, found: Object) -> bool:
        """Where the service says a SHA-256 of what the cache has from elsewhere."""
        algorithm, expected = self._expected(found)
        if algorithm != "sha256" or found.size < 0:
            return False
        with self.cache.in_use():
            there = self.cache.use(expected, found.size)
        if there:
            self.cache.note(self._name(found), self.place.uri_of(found), found, expected)
            self._had(found, expected)
        return there

    def _had(self, found: Object, digest: str) -> None:
        with self._change:
            self.cached_bytes += found.size
            self._items[found.path] = Item(found.path, digest, found.size)
        self._on_bytes(found.size)
        self._on_file()

    def _bring(self, found: Object, lock: Lock) -> bool:
        """Whether its chunks are left to others, and the lock with them."""
        if found.size <= self._chunk or not self.place.store.ranges:
            self._bring_whole(found, self._partial_path(found, lock, ".whole"))
            return False
        chunks = Chunks(self._partial_path(found, lock), found, self._expected(found)[0], self._chunk)
        self._on_bytes(chunks.bytes_there)
        pieces = Pieces(self, found, chunks, lock)
        self._pieces.append(pieces)
        pieces.begin()
        return True

    def _bring_whole(self, found: Object, path: str) -> None:
        """In one go, or where only the beginning can be asked for, one chunk after the other."""
        algorithm, expected = self._expected(found)
        first = ""
        try:
            while True:
                digests = Digests(algorithm)
                size = self._stream(found, path, digests)
                if self._is_right(found, digests, expected, first):
                    break
                first = digests.compared
                self._on_bytes(-size)
            self.complete(found._replace(size=size), path, digests, expected)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _stream(self, found: Object, path: str, digests: Digests) -> int:
        size = 0
        with open(path, "wb", buffering=0, opener=_private) as file:
            while found.size < 0 or size < found.size:
                end = size + self._chunk if found.size < 0 else min(found.size, size + self._chunk)
                data = self.read(found, size, end)
                digests.update(data)
                _write(file.fileno(), data)
                size += len(data)
                self._on_bytes(len(data))
                if len(data) < self._chunk:
                    break
        return size

    def read(self, found: Object, start: int, end: int) -> bytes:
        """Exactly those bytes of an object whose size is known. Raises as the store, and NodeError for fewer."""
        if self._error is not None:
            raise NodeError("another file could not be fetched")
        data = self.place.store.read(found, start, end)
        if len(data) != end - start and found.size >= 0:
            raise NodeError(f"{self.place.uri_of(found)}: {len(data)} bytes came instead of {end - start}")
        return data

    # the end of one object

    def is_right(self, found: Object, digests: Digests, first: str) -> bool:
        """As ``_is_right``, for one whose chunks others have brought."""
        return self._is_right(found, digests, self._expected(found)[1], first)

    def _is_right(self, found: Object, digests: Digests, expected: str, first: str) -> bool:
        """
        Whether its digest is the service's; False: it is to be read again. ``first``: what the first reading had.

        Raises NodeError for one that is wrong twice.
        """
        if digests.compared in ("", expected):
            return True
        if not first:
            return False
        if first == digests.compared and self.place.believes_second and digests.algorithm == "md5":
            return True
        raise NodeError(
            f"{self.place.uri_of(found)}: its {digests.algorithm.upper()} is {digests.compared}, "
            f"and the service says {expected}",
            "it may have been damaged where it is; upload it again",
        )

    def complete(self, found: Object, path: str, digests: Digests, expected: str = "") -> None:
        """All of it is in that file, and right."""
        expected = expected or self._expected(found)[1]
        self.cache.adopt(path, digests.content, found.size)
        self.cache.note(self._name(found), self.place.uri_of(found), found, digests.content)
        with self._change:
            self._items[found.path] = Item(found.path, digests.content, found.size)
            self.verified += bool(digests.compared) and digests.compared == expected
        self._on_file()

    def more(self, steps: list[Callable[[], None]]) -> None:
        """For whichever thread is free."""
        with self._change:
            self._steps.extend(steps)
            self._change.notify_all()

    def told(self, count: int) -> None:
        self._on_bytes(count)

    def _expected(self, found: Object) -> tuple[str, str]:
        """Algorithm and digest as the service has them; empty for none. Asked once."""
        if found.path not in self._digests:
            known = ("md5", found.md5) if found.md5 else self.place.store.digest(found) or ("", "")
            self._digests[found.path] = (known[0], known[1].lower())
        return self._digests[found.path]

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, OSError) and error.errno in FULL:
            return full(self.cache, self.place.uri)
        return error


def full(cache: Cache, uri: str) -> NodeError:
    left = sizes.shown(cache_room.free(cache))
    return NodeError(
        f"{uri}: the disk of the cache is full ({cache.path}, {left} left)",
        "drumline cache prune makes room, DRUMLINE_CACHE names a folder on another disk",
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _write(descriptor: int, data: bytes) -> None:
    whole = memoryview(data)
    while whole:
        whole = whole[os.write(descriptor, whole) :]
