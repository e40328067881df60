"""
The folder in which a warm pool listens: one for each user, home, machine and kind of process.

A process inherits limits, namespaces, rights and the like, and cannot be given them later. A rank must have those that
it would have without a warm pool, so processes that differ in them have different warm pools.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import zlib
from typing import TYPE_CHECKING, Any

from drumline.linux import cgroups
from drumline.node.hook_folder import HOOK

if TYPE_CHECKING:
    from collections.abc import Iterator


SOCKET = "socket"
LOCK = "lock"

_STATUS_FIELDS = (
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


def fingerprint_process() -> str:
    """Return a digest of what this process inherited: equal if a fork of one may replace a fork of the other."""
    status, limits = map(cgroups.read_text, ("/proc/self/status", "/proc/self/limits"))
    facts = [line for line in status.splitlines() if line.startswith(_STATUS_FIELDS)]
    facts += [_without_soft_limit(line) for line in limits.splitlines()]
    facts.append(cgroups.read_text("/proc/self/oom_score_adj"))
    for name in _NAMESPACES:
        facts.append(_read_link(f"/proc/self/ns/{name}"))
    facts.append(_read_link("/proc/self/root"))
    fields = cgroups.read_text("/proc/self/stat").rpartition(")")[2].split()
    facts += [fields[16], *fields[37:39]] if len(fields) > 39 else []  # nice, real-time priority, policy
    facts.append(cgroups.read_text("/proc/self/personality"))
    if not cgroups.choose_group_path(""):
        # A fork server cannot be brought from one control group into another, such as that of another login.
        facts.append(cgroups.read_text("/proc/self/cgroup"))
    return _digest("\n".join(facts))


def _without_soft_limit(line: str) -> str:
    """Leave out how many files may be open, which servers of notebooks raise and ``ForkServer`` sets for its ranks."""
    name = "Max open files"
    return f"{name} {line.split()[-2]}" if line.startswith(name) else line


def _fingerprint_sources() -> str:
    """Return a digest of the warm pool's own sources: pools of different versions do not understand each other."""
    facts = []
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (here, HOOK):
        names = sorted(name for name in os.listdir(path) if name.endswith(".py"))
        facts += [f"{name} {os.stat(os.path.join(path, name)).st_mtime_ns}" for name in names]
    return _digest("\n".join(facts))


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def choose_pool_folder(home: str, host: str) -> str:
    """Return the folder of the warm pool for processes like this one. ``home``: the base home."""
    return os.path.join(home, "warm", host, f"{fingerprint_process()}-{_fingerprint_sources()}")


def stop_other_versions(path: str) -> None:
    """
    Stop pools of other versions for processes like this one, which no job will ask again; what their ranks need stays
    until those end.
    """
    parent, name = os.path.split(path)
    of_this_kind = name.partition("-")[0] + "-"
    with contextlib.suppress(OSError):
        for other in os.listdir(parent):
            if other.startswith(of_this_kind) and other != name:
                with contextlib.suppress(OSError), connect_to_pool(os.path.join(parent, other)) as peer:
                    peer.sendall(b'{"do": "stop", "pid": null}\n')
                    peer.recv(1 << 16)


def make_pool_folder(path: str) -> None:
    """Make the folder, for this user alone. Raises OSError, also if it belongs to another user."""
    os.makedirs(path, 0o700, exist_ok=True)
    found = os.stat(path, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    os.chmod(path, 0o700)


@contextlib.contextmanager
def shorten_socket_path(path: str) -> Iterator[str]:
    """Yield a path of the folder's socket that fits into a socket's address, however long the folder's path is."""
    opened = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


def connect_to_pool(path: str, timeout_s: float | None = 5.0) -> socket.socket:
    """Connect to the warm pool there. Raises OSError if there is none, or if it belongs to another user."""
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.settimeout(timeout_s)
        with shorten_socket_path(path) as address:
            peer.connect(address)
        if read_peer_user(peer) != os.geteuid():
            raise PermissionError("the warm pool there is another user's")
    except BaseException:
        peer.close()
        raise
    return peer


def read_peer_user(peer: socket.socket) -> int:
    """Return the user at the other end."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


# Messages between a warm pool, its warm interpreters and agents: JSON behind its length in four bytes, over Unix
# sockets.


_MAX_BYTES = 16 << 20


def send(peer: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Send a message; descriptors, if any are given, go with a byte of their own. Raises OSError."""
    body = json.dumps(message).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)
    if descriptors:
        socket.send_fds(peer, [b"!"], descriptors)


def receive(peer: socket.socket) -> dict[str, Any]:
    """Receive a message. Blocks. Raises ConnectionError at the end, ValueError for what is no message."""
    (count,) = struct.unpack("!I", _receive_exactly(peer, 4))
    if count > _MAX_BYTES:
        raise ValueError("a message is too long")
    message = json.loads(_receive_exactly(peer, count))
    if not isinstance(message, dict):
        raise ValueError("a message is no object")  # noqa: TRY004 - it is content, not a type of ours
    return message


def receive_descriptor(peer: socket.socket) -> int:
    """Receive the descriptor that came with a message. Raises ConnectionError."""
    _, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
    if not descriptors:
        raise ConnectionError("no descriptor came")
    return descriptors[0]


def _receive_exactly(peer: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = peer.recv(min(1 << 16, count - len(found)))
        if not more:
            raise ConnectionError("end of file")
        found += more
    return bytes(found)
