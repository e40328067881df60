"""
Parts of files that were read through a mount: in the cache, a file each, so that a second reader has them from the disk
and the least recently used go one by one, while somebody reads as well as later.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import private_folder
from drumline.staging import cache_room
from drumline.staging.cache import STAMP_NS, is_whole, touch

if TYPE_CHECKING:
    from drumline.staging.cache import Cache

_SLICE = 1 << 30
"""How much room is made at a time, at most."""

_SHARE = 8
"""Of the limit, likewise."""

_SPARE = 64 << 20
"""What others than the cache find free on its disk."""

_WAIT_S = 30.0
"""After which room is looked for again where there was none."""


class ChunkFiles:
    """Its methods may be called from several threads; other processes use the same files."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._room = threading.Lock()
        self._left = 0
        self._coming = 0
        """Bytes that have been given room and are not yet there."""

        self._full_until = 0.0

    def open(self, key: str, size: int) -> int | None:
        """A descriptor for reading; it was used now. None for one that is not there and whole."""
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
        """As ``open`` of it; None where there is no room. Never raises."""
        try:
            if not self._has_room(len(data)):
                return None
            try:
                return self._put(key, data)
            finally:
                with self._room:
                    self._coming -= len(data)
        except (OSError, DrumlineError):
            self._full_until = time.monotonic() + _WAIT_S
            return None

    def _put(self, key: str, data: bytes) -> int:
        path = self._cache.chunk_path(key)
        beside = os.path.join(self._cache.partial, f"{key}.{os.urandom(4).hex()}.chunk")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            touch(beside)
            private_folder(os.path.dirname(path))
            os.replace(beside, path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        return file

    def _has_room(self, size: int) -> bool:
        """Raises OSError, UsageError."""
        with self._room:
            if self._left < size and time.monotonic() >= self._full_until:
                self._left = self._made(size)
                if not self._left and not self._coming:
                    self._full_until = time.monotonic() + _WAIT_S
            if self._left < size:
                return False
            self._left -= size
            self._coming += size
            return True

    def _made(self, size: int) -> int:
        most, _ = cache_room.limit(self._cache)
        wanted = max(size, min(_SLICE, most // _SHARE))
        warning = cache_room.make_room(self._cache, wanted + self._coming)
        return 0 if warning or cache_room.free(self._cache) < wanted + _SPARE else wanted
