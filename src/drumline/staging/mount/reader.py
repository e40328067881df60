"""Reads of a mount: chunks of objects, from the cache if it has them, each requested once at a time, and ahead."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.staging.cache.cache_folder import key_of
from drumline.staging.stores.store import CHUNK_BYTES

if TYPE_CHECKING:
    from drumline.staging.cache.chunk_files import ChunkFiles
    from drumline.staging.stores.store import Object, Store

_AHEAD = 3
"""Chunks that are asked for before they are read, once a file is read in order."""

_THREADS = 6
_OPEN = 64
"""Chunks that are held open."""

_IN_MEMORY = 6
"""Of those, the most that are in memory because the disk had no room."""


class MountReader:
    """Reads one mounted input, from several threads. ``identity``: of the place, as in ``Origin``."""

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
        """Return bytes; fewer only at the end of the file. Blocks. Raises as the store, and OSError."""
        end = min(start + size, found.size)
        parts = []
        while start < end:
            number = start // CHUNK_BYTES
            inside = start - number * CHUNK_BYTES
            part = self._get_chunk(found, number).read(min(end - start, CHUNK_BYTES - inside), inside)
            self._look_ahead(found, number, inside + len(part))
            if not part:
                raise NodeError(f"{found.path}: truncated by another process")
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _look_ahead(self, found: Object, number: int, inside: int) -> None:
        """Ask for the next chunks, once half of a chunk was read in order."""
        with self._change:
            last, in_order = self._last.get(found.path, (-1, True))
            in_order = in_order if number == last else number == last + 1
            self._last[found.path] = (number, in_order)
            if not in_order or inside < CHUNK_BYTES // 2:
                return
            for following in range(number + 1, min(number + 1 + _AHEAD, -(-found.size // CHUNK_BYTES))):
                key = self._key_of(found, following)
                if key not in self._held and key not in self._coming:
                    self._coming[key] = self._ahead.submit(self._bring_chunk, key, found, following)

    def _get_chunk(self, found: Object, number: int) -> _Chunk:
        key = self._key_of(found, number)
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
            chunk = self._bring_chunk(key, found, number)
        except BaseException as error:
            future.set_exception(error)
            raise
        future.set_result(chunk)
        return chunk

    def _bring_chunk(self, key: str, found: Object, number: int) -> _Chunk:
        try:
            chunk = self._read_chunk(key, found, number)
            with self._change:
                self._hold_chunk(key, chunk)
            return chunk
        finally:
            with self._change:
                self._coming.pop(key, None)

    def _read_chunk(self, key: str, found: Object, number: int) -> _Chunk:
        start, end = number * CHUNK_BYTES, min(found.size, (number + 1) * CHUNK_BYTES)
        file = self._files.open(key, end - start)
        if file is not None:
            return _Chunk(file, b"")
        data = self._store.read(found, start, end)
        if len(data) != end - start:
            raise NodeError(f"{found.path}: {len(data)} bytes came instead of {end - start}")
        file = self._files.put(key, data)
        return _Chunk(-1, data) if file is None else _Chunk(file, b"")

    def _hold_chunk(self, key: str, chunk: _Chunk) -> None:
        self._held[key] = chunk
        if len(self._held) > _OPEN:
            self._held.popitem(last=False)
        in_memory = [name for name, one in self._held.items() if one.is_in_memory]
        for name in in_memory[:-_IN_MEMORY]:
            del self._held[name]

    def _key_of(self, found: Object, number: int) -> str:
        return key_of(self._identity, found.path, found.version, found.size, CHUNK_BYTES, number)


class _Chunk:
    """One chunk, whose descriptor is closed when nobody reads it any more."""

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
