"""
A control group for a node of a job, where this machine lets us have one: what is in it can be ended at one stroke,
whatever has become of its parents, its session and its environment.

Version 2 with ``cgroup.kill`` (Linux 5.14). No controller is switched on in it, so it limits and costs nothing.
Source: the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import time

from drumline.node import group_fork, scratch

_LIMIT_S = 5.0
_LOOK_S = 0.005


def place_for(name: str) -> str:
    """
    Where the group of that name is to be, below our own; empty where there can be none, or with ``DRUMLINE_CGROUP=0``.
    Nothing is made.
    """
    if os.environ.get("DRUMLINE_CGROUP") == "0":
        return ""
    try:
        with open("/proc/self/cgroup") as file:
            own = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except (OSError, StopIteration):
        return ""
    for fields in mounts:
        root, mount = fields[3], fields[4]
        below = own if root == "/" else own[len(root) :] if own.startswith(root) else ""
        parent = os.path.normpath(mount + below)
        # In a container's own view the path may lead out of what is mounted.
        if ".." not in own and os.access(os.path.join(parent, "cgroup.procs"), os.W_OK):
            return os.path.join(parent, name)
    return ""


def fork(path: str) -> int:
    """As ``os.fork``. Where that is allowed, the group is made and the child begins in it; ``join`` says so there."""
    if path:
        try:
            os.mkdir(path, 0o700)
            pid = group_fork.fork_into(path) if is_one(path) else None
            if pid is not None:
                return pid
            os.rmdir(path)
        except OSError:
            pass
    return os.fork()


def join(path: str) -> bool:
    """
    Make the group and put this process into it, with all that it will start; False where that is not allowed. True too
    where it is in it already.
    """
    if not path:
        return False
    try:
        if any(line.rstrip("\n").endswith("/" + os.path.basename(path)) for line in _groups("self")):
            return True
        os.mkdir(path, 0o700)
        if is_one(path) and _write(path, "cgroup.procs", "0"):
            return True
        os.rmdir(path)
    except OSError:
        pass
    return False


def bring(pid: int) -> bool:
    """That process into the group that this one is in; True when it is there."""
    own = _groups("self")
    if _groups(pid) == own:
        return True
    place = place_for("")
    return bool(place) and _write(os.path.dirname(place), "cgroup.procs", str(pid)) and _groups(pid) == own


def _groups(pid: int | str) -> list[str]:
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return sorted(file)
    except OSError:
        return []


def leave(path: str) -> None:
    """This process goes back to where it was before ``join``, and removes the group if it was the last in it."""
    if is_one(path) and _write(os.path.dirname(path), "cgroup.procs", "0"):
        # Whoever started us ends what is left in it.
        with contextlib.suppress(OSError):
            os.rmdir(path)


def is_one(path: str) -> bool:
    return bool(path) and os.path.exists(os.path.join(path, "cgroup.kill"))


def end(path: str) -> int:
    """
    SIGKILL to all that is in the group, and its removal; how many processes there were. Never raises, and does nothing
    to what is no group of ours. Blocks until it is empty, for some seconds at most.
    """
    if not scratch.is_named_so(path) or not is_one(path):
        return 0
    count = len(_processes(path))
    deadline = time.monotonic() + _LIMIT_S
    _write(path, "cgroup.kill", "1")
    while time.monotonic() < deadline:
        try:
            _remove(path)
        except FileNotFoundError:  # somebody else's doing
            break
        except OSError:  # not empty yet
            time.sleep(_LOOK_S)
        else:
            break
    return count


def _remove(path: str) -> None:
    """With the groups that a rank made in it. Raises OSError."""
    for parent, folders, _ in os.walk(path, topdown=False):
        for folder in folders:
            os.rmdir(os.path.join(parent, folder))
    os.rmdir(path)


def _processes(path: str) -> list[str]:
    found: list[str] = []
    for parent, _, _ in os.walk(path):
        try:
            with open(os.path.join(parent, "cgroup.procs")) as file:
                found += file.read().split()
        except OSError:
            continue
    return found


def _write(path: str, name: str, text: str) -> bool:
    try:
        with open(os.path.join(path, name), "w") as file:
            file.write(text)
    except OSError:
        return False
    return True
