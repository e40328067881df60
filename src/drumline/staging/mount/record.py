"""
The record that a mount's process needs, written when the job was prepared.

In the run folder, beneath ``mounts``: ``NAME.json``, the record, and ``NAME``, the mount point. All attempts of a job
read the same versions.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.linux import mounts
from drumline.staging.cache.folder import is_safe
from drumline.staging.stores.base import Object

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


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
