"""
A fork that begins its life in a control group.

To move a process into a group, the kernel waits until no processor is busy with what it had before: ten milliseconds.
A new one needs not be moved. Python has no name for that, so this is what ``os.fork`` does, with clone3(2) in the
place of fork(2).
"""

from __future__ import annotations

import os
import signal
from typing import Optional

_SYS_CLONE3 = 435
"""On every architecture. Source: the kernel's scripts/syscall.tbl."""

_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_CLONE_INTO_CGROUP = 0x200000000
_PR_GET_TID_ADDRESS = 40


_OLDEST_GLIBC = (2, 25)
"""Before that, glibc kept a copy of the process's number, which its own fork alone sets anew."""


def _read_libc_version() -> str:
    """Return ``glibc 2.36``, say; empty for another library, such as musl, which keeps no number at that address."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _is_supported_libc(library: str) -> bool:
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
        if len(os.listdir("/proc/self/task")) != 1 or not _is_supported_libc(_read_libc_version()):
            return None
        import ctypes

        group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (ImportError, OSError):
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
