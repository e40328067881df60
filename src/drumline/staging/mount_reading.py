"""What a mount reads: chunks of objects, from the cache where it has them, each asked for once at a time, and ahead."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.staging.cache import key_of
from drumline.staging.chunks import CHUNK

if TYPE_CHECKING:
    from drumline.staging.chunk_files import ChunkFiles
    from drumline.staging.stores.base import Object, Store

_AHEAD = 3
"""Chunks that are asked for before they are read, once a file is read in order."""

_THREADS = 6
_OPEN = 64
"""Chunks that are held open."""

_IN_MEMORY = 6
"""Of those, the most that are in memory because the disk had no room."""


class Reader:
    """``identity``: of the place, as ``fetching.Place`` has it. Its methods may be called from several threads."""

    def __init__(self, store: Store, identity: str, files: ChunkFiles) -> None:
        self._store = store
        self._identity = identity
        self._files = files
        self._change = threading.Lock()
        self._held: OrderedDict[str, _Chunk] = OrderedDict()
        self._coming: dict[str, Future[_Chunk]] = {}
        self._last: dict[str, tuple[int, bool]] = {}
        """Of each object the chunk that was read last, and whether those before it were."""

        self._ahead = ThreadPoolExecutor(_THREADS)

    def read(self, found: Object, start: int, size: int) -> bytes:
        """Fewer bytes at the end of the file alone. Blocks. Raises as the store, Changed too, and OSError."""
        end = min(start + size, found.size)
        parts = []
        while start < end:
            number = start // CHUNK
            inside = start - number * CHUNK
            part = self._chunk(found, number).read(min(end - start, CHUNK - inside), inside)
            self._look_ahead(found, number, inside + len(part))
            if not part:
                raise NodeError(f"{found.path}: cut short by somebody else")
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _look_ahead(self, found: Object, number: int, inside: int) -> None:
        """Once half of a chunk was read after the one before it."""
        with self._change:
            last, in_order = self._last.get(found.path, (-1, True))
            in_order = in_order if number == last else number == last + 1
            self._last[found.path] = (number, in_order)
            if not in_order or inside < CHUNK // 2:
                return
            for following in range(number + 1, min(number + 1 + _AHEAD, -(-found.size // CHUNK))):
                key = self._key(found, following)
                if key not in self._held and key not in self._coming:
                    self._coming[key] = self._ahead.submit(self._bring, key, found, following)

    def _chunk(self, found: Object, number: int) -> _Chunk:
        key = self._key(found, number)
        with self._change:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held
            future = self._coming.get(key)
            # One that was to come ahead, and waits for a thread, is brought by this one.
            is_ours = future is None or future.cancel()
            if future is None or is_ours:
                future = self._coming[key] = Future()
                future.set_running_or_notify_cancel()
        if not is_ours:
            return future.result()
        try:
            chunk = self._bring(key, found, number)
        except BaseException as error:
            future.set_exception(error)
            raise
        future.set_result(chunk)
        return chunk

    def _bring(self, key: str, found: Object, number: int) -> _Chunk:
        try:
            chunk = self._read(key, found, number)
            with self._change:
                self._hold(key, chunk)
            return chunk
        finally:
            with self._change:
                self._coming.pop(key, None)

    def _read(self, key: str, found: Object, number: int) -> _Chunk:
        start, end = number * CHUNK, min(found.size, (number + 1) * CHUNK)
        file = self._files.open(key, end - start)
        if file is not None:
            return _Chunk(file, b"")
        data = self._store.read(found, start, end)
        if len(data) != end - start:
            raise NodeError(f"{found.path}: {len(data)} bytes came instead of {end - start}")
        file = self._files.put(key, data)
        return _Chunk(-1, data) if file is None else _Chunk(file, b"")

    def _hold(self, key: str, chunk: _Chunk) -> None:
        self._held[key] = chunk
        if len(self._held) > _OPEN:
            self._held.popitem(last=False)
        in_memory = [name for name, one in self._held.items() if one.is_in_memory]
        for name in in_memory[:-_IN_MEMORY]:
            del self._held[name]

    def _key(self, found: Object, number: int) -> str:
        return key_of(self._identity, found.path, found.version, found.size, CHUNK, number)


class _Chunk:
    """Its descriptor is closed when nobody reads it any more."""

    def __init__(self, file: int, data: bytes) -> None:
        self._file = file
        self._data = data

    @property
    def is_in_memory(self) -> bool:
        return self._file < 0

    def read(self, size: int, start: int) -> bytes:
        if self._file < 0:
            return self._data[start : start + size]
        return os.pread(self._file, size, start)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)
