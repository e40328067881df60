"""
Namespaces: a network, a host name, shared memory and mounts of its own, for a process and all that it starts.

Every function raises OSError, which names the call. Source: namespaces(7), user_namespaces(7), unshare(2), setns(2),
mount(2), capabilities(7).
"""

from __future__ import annotations

import errno
import os
from typing import Any

NETWORK, HOST_NAME, MEMORY, MOUNTS, USER = 0x40000000, 0x04000000, 0x08000000, 0x00020000, 0x10000000
"""CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWUSER."""

_FILES = {NETWORK: "net", HOST_NAME: "uts", MEMORY: "ipc", MOUNTS: "mnt", USER: "user"}
_IN_ORDER = (USER, NETWORK, HOST_NAME, MEMORY, MOUNTS)
"""A user namespace gives the right to enter the others, and behind the mounts other files are seen."""

NO_PROGRAMS = 2 | 4 | 8
"""MS_NOSUID, MS_NODEV, MS_NOEXEC."""

NO_DEVICES = 2 | 4
_BIND, _MOVE, _ALL_BELOW, _FOLLOWS = 0x1000, 0x2000, 0x4000, 0x80000
"""MS_BIND, MS_MOVE, MS_REC, MS_SLAVE."""

_PR_SET_DUMPABLE, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 4, 47, 2
_CAPABILITIES_VERSION = 0x20080522
_NET_ADMIN, _SYS_ADMIN = 12, 21


def unshare(kinds: int) -> None:
    """Give this process new namespaces of these kinds, one or several."""
    _call("unshare", kinds)


def open_namespace(kind: int, pid: int | str = "self") -> int:
    """Return a descriptor of a process's namespace. It keeps the namespace, whoever is in it."""
    return os.open(f"/proc/{pid}/ns/{_FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int, kind: int) -> None:
    """Enter a namespace. For users and mounts, this process may have one thread only."""
    _call("setns", descriptor, kind)
    if kind == USER:
        # Such a change closes /proc/PID to the process's own user.
        _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def open_own() -> list[tuple[int, str]]:
    """Return descriptors of this process's namespaces and their names in /proc/PID/ns, in the order to enter them."""
    return [(open_namespace(kind), _FILES[kind]) for kind in _IN_ORDER]


def open_others(pid: int) -> tuple[tuple[int, int], ...]:
    """
    Return descriptors and kinds of the namespaces of that process that are not this one's, in the order in which they
    are to be entered.
    """
    return tuple(
        (open_namespace(kind, pid), kind) for kind in _IN_ORDER if _name(kind, pid) != _name(kind, "self")
    )


def _name(kind: int, pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{_FILES[kind]}")


def enter_new_user_namespace() -> None:
    """Enter a new user namespace in which this user is itself, and may do what root may in all that begins there."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", USER)
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as opened:
            opened.write(text)


def pass_on_capabilities() -> None:
    """Have programs that this process starts keep the right to change networks: a user namespace's is lost by exec."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    # Effective, permitted and inheritable, twice: for the capabilities below 32, and the others.
    data = (ctypes.c_uint32 * 6)()
    _call("capget", header, data)
    data[2], data[5] = data[1], data[4]
    _call("capset", header, data)
    for number in (_NET_ADMIN, _SYS_ADMIN):
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0)


def begin_mounts() -> None:
    """Give this process mounts of its own: what it mounts nobody else sees; what others unmount goes here too."""
    unshare(MOUNTS)
    try:
        mount("none", "/", "", _ALL_BELOW | _FOLLOWS)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise OSError(error.errno, "/ is no mount point here, as in a chroot") from error
        raise


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system."""
    words = (os.fsencode(word) for word in (source, target, kind))
    _call("mount", *words, flags, os.fsencode(options))


def bind(source: str, target: str) -> None:
    """Show a file or folder, with all that is mounted below, at another place too."""
    mount(source, target, "", _BIND | _ALL_BELOW)


def move_mount(source: str, target: str) -> None:
    mount(source, target, "", _MOVE)


def _call(name: str, *arguments: Any) -> None:
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        function = getattr(libc, name)
    except (ImportError, AttributeError) as error:
        raise OSError(f"{name}: not in this machine's C library") from error
    words = [
        ctypes.c_ulong(one) if isinstance(one, int) and name in ("prctl", "mount") else one
        for one in arguments
    ]
    if function(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
