"""The choice between a mount and a download."""

from __future__ import annotations

import os
import stat
from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract import extras
from drumline.contract.errors import NodeError
from drumline.contract.ownership import is_network
from drumline.contract.uris import HF
from drumline.linux import mounts
from drumline.staging.cache import cache_pruning
from drumline.staging.cache.cache_folder import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Fetch, Plan
    from drumline.contract.uris import Place
    from drumline.staging.cache.cache_folder import Cache
    from drumline.staging.stores.store import Object, Store

MODE = "DRUMLINE_MOUNT"
AUTO, ALWAYS, NEVER = MODES = ("auto", "always", "never")

_DEVICE = "/dev/fuse"
_CAP_SYS_ADMIN = 21


def choose_mode(fetch: Fetch) -> str:
    """Return the job's mode, else the environment variable's, else ``auto``. Raises NodeError."""
    mode = (fetch.mount or os.environ.get(MODE, "")).lower() or AUTO
    if mode not in MODES:
        raise NodeError(f"{MODE} must be one of {', '.join(MODES)}; got {mode!r}")
    return mode


def asks_for_mount(fetch: Fetch) -> bool:
    """Return whether the job asks for a mount."""
    return not fetch.writable and fetch.mode.endswith("mount")


def fits_in_cache(cache: Cache, identity: str, objects: list[Object]) -> bool:
    """Return whether the cache can hold all of it, after pruning. Raises OSError, UsageError."""
    total = sum(max(0, one.size) for one in objects)
    most, _ = cache_pruning.read_limit(cache)
    free = cache_pruning.free_bytes(cache)
    if total <= min(most, free):
        return True
    missing = sum(
        max(0, one.size) for one in objects if not cache.find_digest(key_of(identity, one.path), one)
    )
    if total > most:
        return missing == 0
    return missing <= free + cache_pruning.prune(cache, 0, dry_run=True).size


def find_obstacle(folder: RunFolder, plan: Plan, place: Place, store: Store, objects: list[Object]) -> str:
    """Return why it cannot be mounted, as the rest of a sentence after "because"; empty if it can."""
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
    return find_machine_obstacle()


def find_machine_obstacle() -> str:
    """Return why nothing can be mounted on this machine; empty if it can."""
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
    if _has_right(facts, "CapEff"):
        return True
    if not _has_right(facts, "CapBnd"):
        return False  # Not even a program with the rights of root, as in a container.
    program = mounts.find_unmount_program()
    return bool(program) and bool(os.stat(program).st_mode & stat.S_ISUID) and facts.get("NoNewPrivs") != "1"


def _has_right(facts: Mapping[str, str], among: str) -> bool:
    """Return whether the right to mount is among these capabilities."""
    return bool(int(facts.get(among, "0"), 16) >> _CAP_SYS_ADMIN & 1)


def _status() -> dict[str, str]:
    """Return the fields of this process's status. Source: proc(5), /proc/pid/status."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in lines}
