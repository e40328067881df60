"""
Which inputs are mounted instead of fetched, and what the process that serves such a mount has to know.

In the run folder, beneath ``mounts``: ``NAME.json``, what was found when the job was prepared, and ``NAME``, the place
of the mount. All attempts of a job read the same versions.
"""

from __future__ import annotations

import json
import os
import stat
from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract import extras
from drumline.contract.errors import NodeError
from drumline.contract.filesystems import is_network
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.contract.uris import HF
from drumline.node import mounts
from drumline.staging import cache_room
from drumline.staging.cache import is_safe, key_of
from drumline.staging.stores.base import Object

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Fetch, Plan
    from drumline.contract.uris import Place
    from drumline.staging.cache import Cache
    from drumline.staging.stores.base import Store

MODE = "DRUMLINE_MOUNT"
AUTO, ALWAYS, NEVER = MODES = ("auto", "always", "never")

_DEVICE = "/dev/fuse"
_CAP_SYS_ADMIN = 21


class Found(NamedTuple):
    """An input that is to be mounted."""

    name: str
    identity: str
    """Of the place, as ``fetching.Place`` has it."""

    file: str
    """What the one file is called that is meant; empty for a folder."""

    objects: tuple[Object, ...]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.objects)


def mode_of(fetch: Fetch) -> str:
    """What the job says, else the variable, else ``auto``. Raises NodeError."""
    mode = (fetch.mount or os.environ.get(MODE, "")).lower() or AUTO
    if mode not in MODES:
        raise NodeError(f"{MODE}: {mode!r} is none of {', '.join(MODES)}")
    return mode


def may_be(fetch: Fetch) -> bool:
    """Whether a mount is what the job asks for."""
    return not fetch.writable and fetch.mode.endswith("mount")


def fits(cache: Cache, identity: str, objects: list[Object]) -> bool:
    """Whether all of it can be in the cache, once what nobody uses has gone. Raises OSError, UsageError."""
    total = sum(max(0, one.size) for one in objects)
    most, _ = cache_room.limit(cache)
    free = cache_room.free(cache)
    if total <= min(most, free):
        return True
    missing = sum(max(0, one.size) for one in objects if not cache.find(key_of(identity, one.path), one))
    if total > most:
        return missing == 0
    return missing <= free + cache_room.prune(cache, 0, dry_run=True).size


def obstacle(folder: RunFolder, plan: Plan, place: Place, store: Store, objects: list[Object]) -> str:
    """Why that cannot be mounted, as the rest of a sentence after "because"; empty where it can."""
    if plan.engine != "local" and len(plan.nodes) > 1:
        return "the job has several nodes, and one alone would see it"
    if is_network(folder.path):
        # What mounts for a user is root, and may be nobody there.
        return "its run folder is on a network file system"
    if plan.container:
        return "its ranks run in a container"
    if place.service == HF:
        return "the hub is read at one commit, and a mount would outlast it"
    if not store.ranges or not all(one.version and one.size >= 0 for one in objects):
        return "the service sends whole files only, or has no versions of them"
    return obstacle_here()


def obstacle_here() -> str:
    """As ``obstacle``, of this machine."""
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{_DEVICE} cannot be opened here: {error.strerror}"
    if not _may_mount():
        return "this user may not mount here: there is no fusermount3, or it may do nothing"
    try:
        import_module("mfusepy")
    except ImportError:
        return f"mfusepy is not installed: {extras.install_line('mount')}"
    except (OSError, AttributeError):
        return "there is no libfuse here: it is in the package fuse3"
    return ""


def _may_mount() -> bool:
    facts = _status()
    if int(facts.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1:
        return True
    program = mounts.program()
    return bool(program) and bool(os.stat(program).st_mode & stat.S_ISUID) and facts.get("NoNewPrivs") != "1"


def _status() -> dict[str, str]:
    """Source: proc(5), /proc/pid/status."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in lines}


def folder_of(folder: RunFolder) -> str:
    return os.path.join(folder.path, "mounts")


def place_of(folder: RunFolder, name: str) -> str:
    """Where it is mounted."""
    return os.path.join(folder_of(folder), name)


def note(folder: RunFolder, found: Found) -> None:
    """For the process that serves it. Raises OSError."""
    mounts.clear(place_of(folder, found.name))
    private_folder(place_of(folder, found.name))
    write_whole(_path(folder, found.name), json.dumps({**found._asdict(), "objects": found.objects}))


def forget(folder: RunFolder, name: str) -> None:
    """It is fetched this time."""
    if os.path.lexists(_path(folder, name)):
        os.unlink(_path(folder, name))


def read(folder: RunFolder, name: str) -> Found:
    """Raises OSError, and NodeError for one that was damaged."""
    try:
        with open(_path(folder, name), encoding="utf-8") as file:
            data = json.load(file)
        objects = tuple(Object(*one) for one in data["objects"])
        found = Found(str(data["name"]), str(data["identity"]), str(data["file"]), objects)
    except (ValueError, KeyError, TypeError) as error:
        raise NodeError(f"{name}: what is to be mounted was damaged") from error
    if not all(is_safe(one.path) or (found.file and not one.path) for one in objects):
        raise NodeError(f"{name}: what is to be mounted was damaged")
    return found


def _path(folder: RunFolder, name: str) -> str:
    if not is_safe(name) or "/" in name:
        raise NodeError(f"{name!r} is no name of an input")
    return os.path.join(folder_of(folder), f"{name}.json")
