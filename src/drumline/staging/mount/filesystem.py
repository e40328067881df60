"""The read-only file system of one mounted input, as libfuse calls it, and the record by which its process knows it."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.linux import mounts
from drumline.staging import transfer_messages
from drumline.staging.cache.cache_folder import STAMP_NS, is_safe
from drumline.staging.stores.store import Object, ObjectChangedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.staging.mount.reader import MountReader


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
