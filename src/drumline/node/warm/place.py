"""
Where a keeper listens: one for each user, home, machine and kind of surroundings.

What a process has from its parent and cannot be given later, its limits, namespaces, rights and the like, must be a
rank's as it would be without a keeper; so those that differ in it have keepers of their own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import zlib
from typing import TYPE_CHECKING

from drumline.node import cgroups
from drumline.node.failures import HOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET = "socket"
LOCK = "lock"

_OF_STATUS = (
    "Umask",
    "Cpus_allowed:",
    "Mems_allowed:",
    "Uid",
    "Gid",
    "Groups",
    "Cap",
    "NoNewPrivs",
    "Seccomp",
    "THP_enabled",
)
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


def kind() -> str:
    """Of the surroundings of this process: equal where a fork of one may stand for a fork of the other."""
    facts = [line for line in _lines("/proc/self/status") if line.startswith(_OF_STATUS)]
    facts += _lines("/proc/self/limits")
    facts += _lines("/proc/self/oom_score_adj")
    for name in _NAMESPACES:
        facts.append(_link(f"/proc/self/ns/{name}"))
    facts.append(_link("/proc/self/root"))
    fields = "".join(_lines("/proc/self/stat")).rpartition(")")[2].split()
    facts += [fields[16], *fields[37:39]] if len(fields) > 39 else []  # nice, real-time priority, policy
    facts += _lines("/proc/self/personality")
    if not cgroups.place_for(""):
        # A nursery cannot be brought from one control group into another, such as that of another login.
        facts += _lines("/proc/self/cgroup")
    return _short("\n".join(facts))


def _version() -> str:
    """Of the programs that a keeper consists of: one of another would not be understood."""
    facts = []
    for path in (os.path.dirname(os.path.abspath(__file__)), HOOK):
        names = sorted(name for name in os.listdir(path) if name.endswith(".py"))
        facts += [f"{name} {os.stat(os.path.join(path, name)).st_mtime_ns}" for name in names]
    return _short("\n".join(facts))


def _short(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def folder(home: str, host: str) -> str:
    """``home``: the base home. Of keepers for surroundings such as this process's."""
    return os.path.join(home, "warm", host, f"{kind()}-{_version()}")


def others(path: str) -> list[str]:
    """Where keepers of other versions are, or were, for the same surroundings."""
    parent, name = os.path.split(path)
    kept = name.partition("-")[0] + "-"
    try:
        names = os.listdir(parent)
    except OSError:
        return []
    return [os.path.join(parent, one) for one in names if one.startswith(kept) and one != name]


def make(path: str) -> None:
    """For this user alone. Raises OSError, also where it is somebody else's."""
    os.makedirs(path, 0o700, exist_ok=True)
    found = os.stat(path, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    os.chmod(path, 0o700)


@contextlib.contextmanager
def short(path: str) -> Iterator[str]:
    """A path for a socket in that folder that is short enough, however long the folder's is."""
    opened = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


def connect(path: str, timeout_s: float | None = 5.0) -> socket.socket:
    """To the keeper there. Raises OSError when there is none, or it is not this user's."""
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.settimeout(timeout_s)
        with short(path) as address:
            peer.connect(address)
        if user_of(peer) != os.geteuid():
            raise PermissionError("the keeper there is another user's")
    except BaseException:
        peer.close()
        raise
    return peer


def user_of(peer: socket.socket) -> int:
    """The user at the other end."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
