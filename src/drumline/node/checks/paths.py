"""Facts of the folders that a job uses."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITTEN = 1 << 20
_VISIBLE_S = 0.5
"""For a network file system to show on this node what was made on another."""


def gather_disk(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each folder what is free of it, and how long 1 MiB takes to be on the disk."""
    return {"folders": [_try_folder(name, path) for name, path in dict(settings.get("paths", {})).items()]}


def _try_folder(name: str, path: str) -> dict[str, Any]:
    path = path or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - whatever it is, it is what ranks use
    found: dict[str, Any] = {"name": name, "path": path, "error": ""}
    try:
        about = os.statvfs(path)
        found["free"] = about.f_bavail * about.f_frsize
        found["total"] = about.f_blocks * about.f_frsize
        # A file system that counts no inodes says 0 of 0.
        found["inodes"] = about.f_favail if about.f_files else None
        found["write_s"] = _time_write(path)
    except OSError as error:
        found["error"] = error.strerror or str(error)
    return found


def _time_write(folder: str) -> float:
    path = os.path.join(folder, f".drumline-check-{os.urandom(8).hex()}")
    began = time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Gone from the folder at once, whoever is killed meanwhile.
        os.unlink(path)
        data = memoryview(bytes(_WRITTEN))
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return round(time.monotonic() - began, 3)


def gather_shared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return of each path that all nodes need whether it is there, what holds it, and how long it took to show."""
    return {"paths": [_wait_for_path(path) for path in settings.get("shared", ())]}


def _wait_for_path(path: str) -> dict[str, Any]:
    began = time.monotonic()
    while True:
        try:
            about = os.stat(path)
        except OSError as error:
            if time.monotonic() - began > _VISIBLE_S:
                return {"path": path, "error": error.strerror or str(error), "inode": None}
        else:
            return {
                "path": path,
                "error": "",
                "inode": about.st_ino,
                "seconds": round(time.monotonic() - began, 3),
            }
        # A network file system shows a new entry when its folder is read again.
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path))
        time.sleep(0.02)
