"""Facts of what earlier jobs have left on this machine: processes, folders and control groups."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import identity
from drumline.contract.folder import MARKER, RunFolder
from drumline.linux import cgroups
from drumline.node.checks import forgotten

if TYPE_CHECKING:
    from collections.abc import Mapping


def gather_leftovers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the processes of this user whose job's agent and supervisor are gone, and scratch folders of nobody."""
    parents = dict.fromkeys((os.environ.get("TMPDIR") or "/tmp", *settings.get("scratch", ())))  # noqa: S108
    return {
        "processes": list_orphans(settings.get("home", "")),
        "folders": [path for parent in parents for path in _list_abandoned(parent)],
    }


def list_orphans(home: str = "") -> list[dict[str, Any]]:
    """
    List processes with the marker of a job, none of whose ancestors is a supervisor or an agent. ``home``: of the jobs;
    empty: wherever they are.
    """
    start = os.path.join(home, "")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            folder = _read_marker(int(name))
            if folder and folder.startswith(start) and not (_has_keeper(int(name)) or _is_supervised(folder)):
                found.append({"pid": int(name), "job": os.path.basename(folder), "folder": folder})
    return found


def _read_marker(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return ""
    start = f"{MARKER}=".encode()
    return next((os.fsdecode(one[len(start) :]) for one in variables if one.startswith(start)), "")


def _is_supervised(folder: str) -> bool:
    run = RunFolder(folder)
    return identity.is_alive(run.read_json(run.supervisor) or {})


def _has_keeper(pid: int) -> bool:
    """Return whether a process of Drumline is above it, which will end it."""
    while pid > 1:
        name, pid = _read_parent(pid)
        if name.startswith("drumline"):
            return True
    return False


def _read_parent(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            text = file.read()
    except OSError:
        return "drumline", 0  # It has just ended.
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def _list_abandoned(parent: str) -> list[str]:
    try:
        found = [entry.path for entry in os.scandir(parent) if cgroups.is_node_name(entry.name)]
    except OSError:
        return []
    return [*filter(_is_abandoned, found), *forgotten.list_forgotten(found, time.time())]


def _is_abandoned(path: str) -> bool:
    """Return whether the folder was held by an agent that an engine started, and is held no more."""
    try:
        if os.lstat(path).st_uid != os.getuid():
            return False
        descriptor = os.open(
            os.path.join(path, forgotten.HOLDER_FILE),
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        )
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
