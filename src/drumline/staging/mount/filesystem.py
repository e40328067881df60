"""The read-only file system of one mounted input, as libfuse calls it, and the record by which its process knows it."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.linux import mounts
from drumline.staging import transfer_messages
from drumline.staging.cache.cache_folder import STAMP_NS, is_safe, key_of
from drumline.staging.stores.store import CHUNK_BYTES, Object, ObjectChangedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.staging.cache.chunk_files import ChunkFiles
    from drumline.staging.stores.store import Store


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


_BLOCK = 1 << 20


class FileSystem:
    """The methods that libfuse calls, from its threads. Each raises OSError with the number for the reader."""

    use_ns = True

    def __init__(self, mounted: MountedInput, reader: MountReader, ready: Callable[[], None]) -> None:
        self._reader = reader
        self._ready = ready
        self._files: dict[str, Object] = {}
        self._folders: dict[str, list[str]] = {"/": []}
        for one in mounted.objects:
            self._add(mounted.file or one.path, one)

    def _add(self, path: str, found: Object) -> None:
        path = f"/{path}"
        self._files[path] = found
        while path != "/":
            above, name = os.path.split(path)
            known = above in self._folders
            self._folders.setdefault(above, []).append(name)
            if known:
                break
            path = above

    def init(self, path: str) -> None:
        self._ready()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = self._files.get(path)
        if found is None and path not in self._folders:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        size = 0 if found is None else found.size
        return {
            "st_mode": stat.S_IFDIR | 0o555 if found is None else stat.S_IFREG | 0o444,
            "st_nlink": 2 if found is None else 1,
            "st_size": size,
            "st_blocks": -(-size // 512),
            "st_blksize": _BLOCK,
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            **dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), STAMP_NS),
        }

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        if path not in self._folders:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        below = path.rstrip("/")
        names = [(name, f"{below}/{name}" in self._files) for name in self._folders[path]]
        folder, file = {"st_mode": stat.S_IFDIR}, {"st_mode": stat.S_IFREG}
        return [
            (".", folder, 0),
            ("..", folder, 0),
            *((name, file if is_file else folder, 0) for name, is_file in names),
        ]

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        self.getattr(path)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        try:
            return self._reader.read(self._files[path], offset, size)
        except ObjectChangedError as error:
            raise self._log_failure(path, error, errno.ESTALE) from error
        except NodeError as error:
            raise self._log_failure(path, error, errno.EIO) from error
        except OSError as error:
            raise self._log_failure(path, error, errno.EIO) from error

    @staticmethod
    def _log_failure(path: str, error: Exception, number: int) -> OSError:
        """Log an error, and return the one for the reader."""
        transfer_messages.log_warning(f"{path}: {getattr(error, 'message', None) or error}")
        return OSError(number, os.strerror(number))


# the record, written when the job was prepared


class MountedInput(NamedTuple):
    """An input that is to be mounted."""

    name: str
    identity: str
    """The place's, as in ``Origin``."""

    file: str
    """The name of the one file; empty for a folder."""

    objects: tuple[Object, ...]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.objects)


def _records_folder(folder: RunFolder) -> str:
    return os.path.join(folder.path, "mounts")


def mount_point(folder: RunFolder, name: str) -> str:
    """Return the path at which an input is mounted."""
    return os.path.join(_records_folder(folder), name)


def write_record(folder: RunFolder, found: MountedInput) -> None:
    """Write the record for the process that serves the mount. Raises OSError."""
    mounts.unmount_below(mount_point(folder, found.name))
    private_folder(mount_point(folder, found.name))
    write_whole(_path(folder, found.name), json.dumps({**found._asdict(), "objects": found.objects}))


def remove_record(folder: RunFolder, name: str) -> None:
    """Remove the record of an input that is fetched this time."""
    if os.path.lexists(_path(folder, name)):
        os.unlink(_path(folder, name))


def read_record(folder: RunFolder, name: str) -> MountedInput:
    """Read a record. Raises OSError, and NodeError for a damaged one."""
    try:
        with open(_path(folder, name), encoding="utf-8") as file:
            data = json.load(file)
        objects = tuple(Object(*one) for one in data["objects"])
        found = MountedInput(str(data["name"]), str(data["identity"]), str(data["file"]), objects)
    except (ValueError, KeyError, TypeError) as error:
        raise NodeError(f"{name}: the record of the mount is damaged") from error
    if not all(is_safe(one.path) or (found.file and not one.path) for one in objects):
        raise NodeError(f"{name}: the record of the mount is damaged")
    return found


def _path(folder: RunFolder, name: str) -> str:
    if not is_safe(name) or "/" in name:
        raise NodeError(f"{name!r} is not the name of an input")
    return os.path.join(_records_folder(folder), f"{name}.json")
