"""
Chunks of files that were read through a mount, a file of the cache each: a second reader has them from the disk, and
the least recently used ones are removed one by one, during reads too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import private_folder
from drumline.staging.cache import cache_pruning
from drumline.staging.cache.cache_folder import STAMP_NS, is_whole, mark_used
from drumline.staging.file_copy import write_at

if TYPE_CHECKING:
    from drumline.staging.cache.cache_folder import Cache

_SLICE = 1 << 30
"""How much room is made at a time, at most."""

_SHARE = 8
"""Of the limit, likewise."""

_SPARE = 64 << 20
"""What others than the cache find free on its disk."""

_FULL_DISK_PAUSE_S = 30.0
"""After which room is looked for again where there was none."""


class ChunkFiles:
    """Files of chunks, whose methods several threads may call; other processes use the same files."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._room = threading.Lock()
        self._left = 0
        self._coming = 0
        """Bytes that have been given room and are not yet there."""

        self._full_until = 0.0

    def open(self, key: str, size: int) -> int | None:
        """Return a descriptor for reading, and mark the chunk as used. None if it is missing or damaged."""
        try:
            file = os.open(self._cache.chunk_path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        if not is_whole(os.fstat(file), size):
            os.close(file)
            return None
        with contextlib.suppress(OSError):
            os.utime(file, ns=(time.time_ns(), STAMP_NS))
        return file

    def put(self, key: str, data: bytes) -> int | None:
        """Store a chunk and return its descriptor; None if there is no room. Never raises."""
        try:
            if not self._has_room(len(data)):
                return None
            try:
                return self._put(key, data)
            finally:
                with self._room:
                    self._coming -= len(data)
        except (OSError, DrumlineError):
            self._full_until = time.monotonic() + _FULL_DISK_PAUSE_S
            return None

    def _put(self, key: str, data: bytes) -> int:
        path = self._cache.chunk_path(key)
        beside = os.path.join(self._cache.partial, f"{key}.{os.urandom(4).hex()}.chunk")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        try:
            write_at(file, data, 0)
            mark_used(beside)
            private_folder(os.path.dirname(path))
            os.replace(beside, path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        return file

    def _has_room(self, size: int) -> bool:
        """Return whether there is room, after making some. Raises OSError, UsageError."""
        with self._room:
            if self._left < size and time.monotonic() >= self._full_until:
                self._left = self._make_room(size)
                if not self._left and not self._coming:
                    self._full_until = time.monotonic() + _FULL_DISK_PAUSE_S
            if self._left < size:
                return False
            self._left -= size
            self._coming += size
            return True

    def _make_room(self, size: int) -> int:
        most, _ = cache_pruning.read_limit(self._cache)
        wanted = max(size, min(_SLICE, most // _SHARE))
        warning = cache_pruning.make_room(self._cache, wanted + self._coming)
        return 0 if warning or cache_pruning.free_bytes(self._cache) < wanted + _SPARE else wanted
