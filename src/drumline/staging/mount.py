"""
The process that serves a mounted input: ``python -m drumline.staging.mount RUN_FOLDER NAME``.

It says when it is mounted, a line ``transferred`` as ``reporting`` has it, and serves it until it is unmounted or its
parent dies; what cannot be served says ``failed``. A process beside it unmounts when both were killed: libfuse's own
``auto_unmount`` does not where the connection is still being ended, as of 3.14.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NodeError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.contract.uris import shown
from drumline.node import kernel, mounts
from drumline.staging import mounting, reporting
from drumline.staging.cache import STAMP_NS, Cache, place
from drumline.staging.chunk_files import ChunkFiles
from drumline.staging.mount_reading import Reader
from drumline.staging.stores.base import Changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.plan import Fetch
    from drumline.staging.mounting import Found
    from drumline.staging.stores.base import Object

_STAYS_S = 3600
"""How long the kernel believes what it was told: nothing changes."""

_BLOCK = 1 << 20
_kept: list[int] = []
_NOTE = "mounted: read as it is needed"


def main(arguments: list[str] | None = None) -> int:
    """The exit code. Nothing is raised."""
    kernel.die_with_parent(signal.SIGKILL, os.getppid())
    os.umask(0o077)
    path, name = sys.argv[1:] if arguments is None else arguments
    try:
        folder = RunFolder(os.path.abspath(path))
        _guard(mounting.place_of(folder, name))
        _serve(folder, name)
    except DrumlineError as error:
        reporting.say("failed", message=error.message, hint=error.hint)
        return 1
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "see system_logs/mounts.log"
        reporting.say(
            "failed", message=f"{name} could not be mounted: {why}", hint="drumline: {mount: never}"
        )
        return 1
    return 0


def _guard(mounted: str) -> None:
    """
    Has it unmounted when this process and its parent have ended, however: while the parent lives the unmounting is
    that one's, and whoever reads meanwhile gets errors, not an empty folder. To be called before there are threads.
    Raises OSError.
    """
    reader, writer = os.pipe()
    parent = os.pidfd_open(os.getppid())
    if os.fork():
        os.close(reader)
        os.close(parent)
        # Open as long as this process lives, and in no other.
        _kept.append(writer)
        return
    try:
        os.setsid()
        os.close(writer)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        kernel.set_name("drumline-unmnt")
        os.read(reader, 1)
        select.select([parent], [], [])
        mounts.clear(mounted)
    finally:
        os._exit(0)


def _serve(folder: RunFolder, name: str) -> None:
    """Blocks until it is unmounted. Raises DrumlineError, OSError, RuntimeError."""
    from drumline.staging.transfer import opened

    began = time.monotonic()
    plan = Plan.read(folder.plan)
    fetch = next((one for one in plan.fetches if one.name == name), None)
    if fetch is None:
        raise NodeError(f"{name}: the job has no such input")
    found = mounting.read(folder, name)
    cache = Cache(place(str(plan.compute.get("folder") or "")))
    cache.make()
    _, store = opened(fetch)
    reader = Reader(store, found.identity, ChunkFiles(cache))
    served = FileSystem(found, reader, lambda: _tell(fetch, found, time.monotonic() - began))
    import_module("mfusepy").FUSE(
        served,
        mounting.place_of(folder, name),
        foreground=True,
        ro=True,
        default_permissions=True,
        kernel_cache=True,
        fsname=mounts.NAME,
        subtype=mounts.NAME,
        attr_timeout=_STAYS_S,
        entry_timeout=_STAYS_S,
        negative_timeout=_STAYS_S,
    )


def _tell(fetch: Fetch, found: Found, seconds: float) -> None:
    reporting.say(
        "transferred",
        name=fetch.name,
        uri=shown(fetch.uri),
        size_bytes=found.size,
        file_count=len(found.objects),
        cached_bytes=0,
        seconds=round(seconds, 3),
        verified=0,
        note=_NOTE,
    )


class FileSystem:
    """What libfuse calls, from threads of its own. Each method raises OSError with the number that the reader gets."""

    use_ns = True

    def __init__(self, found: Found, reader: Reader, ready: Callable[[], None]) -> None:
        self._reader = reader
        self._ready = ready
        self._files: dict[str, Object] = {}
        self._folders: dict[str, list[str]] = {"/": []}
        for one in found.objects:
            self._add(found.file or one.path, one)

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
        except Changed as error:
            raise self._failed(path, error, errno.ESTALE) from error
        except NodeError as error:
            raise self._failed(path, error, errno.EIO) from error
        except OSError as error:
            raise self._failed(path, error, errno.EIO) from error

    @staticmethod
    def _failed(path: str, error: Exception, number: int) -> OSError:
        """It is said in the log."""
        reporting.warn(f"{path}: {getattr(error, 'message', None) or error}")
        return OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main())
