"""
A control group for a node of a job, where this machine lets us have one: what is in it can be ended at one stroke,
whatever has become of its parents, its session and its environment.

Version 2 with ``cgroup.kill`` (Linux 5.14). No controller is switched on in it, so it limits and costs nothing.
Source: the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import Optional

# Small files and folders that the kernel makes (/proc, /sys). What is not there is empty, and raises nothing.


def read_text(path: str) -> str:
    """Return the text without blanks around it; empty if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_number(path: str) -> int:
    """Return the whole number that a file holds; 0 if there is none."""
    try:
        return int(read_text(path))
    except ValueError:
        return 0


def list_folder(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


_KILL_TIMEOUT_S = 5.0
_KILL_INTERVAL_S = 0.005


def choose_group_path(name: str) -> str:
    """
    Return the path for a group of that name, below our own; empty if there can be none, or with ``DRUMLINE_CGROUP=0``.
    Makes nothing.
    """
    if os.environ.get("DRUMLINE_CGROUP") == "0":
        return ""
    own = next((line[3:] for line in _read_groups("self") if line.startswith("0::")), "")
    mounts = [line for line in read_text("/proc/self/mountinfo").splitlines() if " - cgroup2 " in line]
    for fields in map(str.split, mounts if own else ()):
        root, mount = fields[3], fields[4]
        below = own if root == "/" else own[len(root) :] if own.startswith(root) else ""
        parent = os.path.normpath(mount + below)
        # In a container's own view the path may lead out of what is mounted.
        if ".." not in own and os.access(os.path.join(parent, "cgroup.procs"), os.W_OK):
            return os.path.join(parent, name)
    return ""


def fork_in_group(path: str) -> int:
    """Fork like ``os.fork``; if it is allowed, make the group and have the child begin in it (``join_group`` tells)."""
    if path:
        try:
            os.mkdir(path, 0o700)
            pid = clone_into_group(path) if is_group(path) else None
            if pid is not None:
                return pid
            os.rmdir(path)
        except OSError:
            pass
    return os.fork()


def join_group(path: str) -> bool:
    """
    Make the group and put this process into it, with all that it will start; return False if that is not allowed, and
    True also if the process is in it already.
    """
    if not path:
        return False
    try:
        if any(line.endswith("/" + os.path.basename(path)) for line in _read_groups("self")):
            return True
        os.mkdir(path, 0o700)
        if is_group(path) and _write_file(path, "cgroup.procs", "0"):
            return True
        os.rmdir(path)
    except OSError:
        pass
    return False


def move_to_own_group(pid: int) -> bool:
    """Move that process into the group of this one; return whether it is there."""
    own = _read_groups("self")
    if _read_groups(pid) == own:
        return True
    place = choose_group_path("")
    return (
        bool(place)
        and _write_file(os.path.dirname(place), "cgroup.procs", str(pid))
        and _read_groups(pid) == own
    )


def _read_groups(pid: int | str) -> list[str]:
    return sorted(read_text(f"/proc/{pid}/cgroup").splitlines())


def leave_group(path: str) -> None:
    """Move this process back to where it was before ``join_group``, and remove the group if nobody else is in it."""
    if is_group(path) and _write_file(os.path.dirname(path), "cgroup.procs", "0"):
        # Whoever started us ends what is left in it.
        with contextlib.suppress(OSError):
            os.rmdir(path)


def is_node_name(path: str) -> bool:
    """Return whether that is the name of a node's control group or scratch folder, which holds a random number."""
    return re.fullmatch(r"drumline-[0-9a-f]{8}-n\d+", os.path.basename(path)) is not None


def is_group(path: str) -> bool:
    return bool(path) and os.path.exists(os.path.join(path, "cgroup.kill"))


def kill_group(path: str) -> int:
    """
    Kill all processes of the group, remove it, and return how many there were. Never raises, and leaves alone what is
    no group of ours. Blocks until it is empty, for some seconds at most.
    """
    if not is_node_name(path) or not is_group(path):
        return 0
    count = len(_list_processes(path))
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    _write_file(path, "cgroup.kill", "1")
    while time.monotonic() < deadline:
        try:
            _remove_group(path)
        except FileNotFoundError:  # somebody else's doing
            break
        except OSError:  # not empty yet
            time.sleep(_KILL_INTERVAL_S)
        else:
            break
    return count


def remove_old_group(path: str) -> bool:
    """
    Kill all processes of a node's group of version 1, and remove it; return whether the path is of one. Never raises.
    Blocks until it is empty, for some seconds at most.
    """
    if not is_node_name(path) or not os.path.exists(os.path.join(path, "cgroup.procs")):
        return False
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while os.path.exists(path) and time.monotonic() < deadline:
        for pid in _list_processes(path):
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            _remove_group(path)
        except OSError:  # what was killed is not gone yet
            time.sleep(_KILL_INTERVAL_S)
    return True


def _remove_group(path: str) -> None:
    """Remove it with the groups that a rank made in it. Raises OSError."""
    for parent, folders, _ in os.walk(path, topdown=False):
        for folder in folders:
            os.rmdir(os.path.join(parent, folder))
    os.rmdir(path)


def _list_processes(path: str) -> list[str]:
    found: list[str] = []
    for parent, _, _ in os.walk(path):
        found += read_text(os.path.join(parent, "cgroup.procs")).split()
    return found


def _write_file(path: str, name: str, text: str) -> bool:
    try:
        with open(os.path.join(path, name), "w") as file:
            file.write(text)
    except OSError:
        return False
    return True


# A fork that begins its life in a control group: to move a process into a group, the kernel waits until no processor is
# busy with what it had before, ten milliseconds. Python has no name for that, so this is what ``os.fork`` does, with
# clone3(2) in the place of fork(2).


_SYS_CLONE3 = 435
"""On every architecture. Source: the kernel's scripts/syscall.tbl."""

_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_CLONE_INTO_CGROUP = 0x200000000
_PR_GET_TID_ADDRESS = 40

_OLDEST_GLIBC = (2, 25)
"""Before that, glibc kept a copy of the process's number, which its own fork alone sets anew."""


def _is_supported_libc(library: str) -> bool:
    """Return whether ``glibc 2.36``, say, is new enough; another library, such as musl, keeps no number there."""
    name, _, version = library.partition(" ")
    numbers = [int(part) for part in version.split(".") if part.isdecimal()]
    return name == "glibc" and tuple(numbers[:2]) >= _OLDEST_GLIBC


def clone_into_group(folder: str) -> Optional[int]:
    """
    Fork into a control group and return as ``os.fork`` does: 0 in the child.

    None where this machine cannot, and nothing was forked: Linux 5.7 and glibc are needed, and a container may forbid
    it. None too where there are other threads: only the C library's own fork mends the locks that they hold.
    """
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
        if len(os.listdir("/proc/self/task")) != 1 or not _is_supported_libc(library):
            return None
        import ctypes

        group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (ImportError, OSError, ValueError):  # ValueError: a C library without that name.
        return None
    try:
        python = ctypes.pythonapi
        own_number = ctypes.c_void_p()
        # Where the C library keeps the number of this thread, for the kernel to put the child's there.
        if python.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(own_number), 0, 0, 0) != 0 or not own_number.value:
            return None
        # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        # set_tid_size, cgroup.
        flags = _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID | _CLONE_INTO_CGROUP
        words = (flags, 0, own_number.value, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, group)
        arguments = (ctypes.c_uint64 * len(words))(*words)
        python.syscall.restype = ctypes.c_long
        python.PyOS_BeforeFork()
        pid = int(python.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_size_t(8 * len(words))))
        if pid == 0:
            python.PyOS_AfterFork_Child()
        else:
            python.PyOS_AfterFork_Parent()
    except AttributeError:  # another C library, or another Python
        return None
    finally:
        os.close(group)
    return pid if pid >= 0 else None
