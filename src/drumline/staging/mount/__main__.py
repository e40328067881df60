"""
The process that serves a mounted input: ``python -m drumline.staging.mount RUN_FOLDER NAME``.

It sends a message ``transferred`` once it is mounted, and serves until it is unmounted or its parent dies; or it sends
``failed``. A second process unmounts if both were killed: libfuse's own ``auto_unmount`` does not while the connection
is still being closed, as of 3.14.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError, NodeError
from drumline.contract.folder import RunFolder
from drumline.contract.hiding import hide_secrets
from drumline.contract.plan import Plan
from drumline.linux import kernel, mounts
from drumline.staging import transfer_messages
from drumline.staging.cache.cache_folder import Cache, cache_path
from drumline.staging.cache.chunk_files import ChunkFiles
from drumline.staging.datastore_access import open_remote
from drumline.staging.mount import filesystem
from drumline.staging.mount.filesystem import FileSystem, MountReader

if TYPE_CHECKING:
    from drumline.contract.plan import Fetch
    from drumline.staging.mount.filesystem import MountedInput

_KERNEL_CACHE_S = 3600
"""How long the kernel believes what it was told: nothing changes."""

_BLOCK = 1 << 20
_kept: list[int] = []
_NOTE = "mounted: read as it is needed"


def main(arguments: list[str] | None = None) -> int:
    """Serve the mount and return the exit code. Raises nothing."""
    kernel.die_with_parent(signal.SIGKILL, os.getppid())
    kernel.lose_output_without_room()
    os.umask(0o077)
    path, name = sys.argv[1:] if arguments is None else arguments
    try:
        folder = RunFolder(os.path.abspath(path))
        _unmount_after_end(filesystem.mount_point(folder, name))
        _serve(folder, name)
    except DrumlineError as error:
        transfer_messages.send("failed", message=error.message, hint=error.hint)
        return 1
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "see system_logs/mounts.log"
        transfer_messages.send(
            "failed", message=f"{name} could not be mounted: {why}", hint="drumline: {mount: never}"
        )
        return 1
    return 0


def _unmount_after_end(mounted: str) -> None:
    """
    Start a process that unmounts it when this process and its parent have ended, however they did.

    While the parent lives, the parent unmounts; readers get errors until then, not an empty folder. To be called before
    there are threads. Raises OSError.
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
        kernel.set_process_name("drumline-unmnt")
        os.read(reader, 1)
        select.select([parent], [], [])
        mounts.unmount_below(mounted)
    finally:
        os._exit(0)


def _serve(folder: RunFolder, name: str) -> None:
    """Serve until it is unmounted. Blocks. Raises DrumlineError, OSError, RuntimeError."""
    began = time.monotonic()
    plan = Plan.read(folder.plan)
    fetch = next((one for one in plan.fetches if one.name == name), None)
    if fetch is None:
        raise NodeError(f"{name}: the job has no such input")
    found = filesystem.read_record(folder, name)
    cache = Cache(cache_path(str(plan.compute.get("folder") or "")))
    cache.make()
    _, store = open_remote(fetch)
    reader = MountReader(store, found.identity, ChunkFiles(cache))
    served = FileSystem(found, reader, lambda: _report_mounted(fetch, found, time.monotonic() - began))
    import_module("mfusepy").FUSE(
        served,
        filesystem.mount_point(folder, name),
        foreground=True,
        ro=True,
        default_permissions=True,
        kernel_cache=True,
        fsname=mounts.NAME,
        subtype=mounts.NAME,
        attr_timeout=_KERNEL_CACHE_S,
        entry_timeout=_KERNEL_CACHE_S,
        negative_timeout=_KERNEL_CACHE_S,
    )


def _report_mounted(fetch: Fetch, found: MountedInput, seconds: float) -> None:
    transfer_messages.send(
        "transferred",
        name=fetch.name,
        uri=hide_secrets(fetch.uri),
        size_bytes=found.size,
        file_count=len(found.objects),
        cached_bytes=0,
        seconds=round(seconds, 3),
        verified=0,
        note=_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
