"""Facts of the user and of what the kernel allows it on this machine."""

from __future__ import annotations

import os
import resource
import shutil
from typing import TYPE_CHECKING, Any

from drumline.linux import cgroups, kernel_files

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
    "core": resource.RLIMIT_CORE,
}


def gather_limits(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the soft limits of a process; None: no limit."""
    found: dict[str, Any] = {}
    for name, number in _LIMITS.items():
        soft = resource.getrlimit(number)[0]
        found[name] = None if soft == resource.RLIM_INFINITY else soft
    return found


def gather_features(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Drumline uses where the kernel has it."""
    return {
        "kernel": os.uname().release,
        "pidfd": _has_pidfd(),
        "user_namespaces": _can_unshare(),
        "ptrace_scope": kernel_files.read_number("/proc/sys/kernel/yama/ptrace_scope"),
        "control_group": _can_make_group(),
        "ip": bool(shutil.which("ip")) and bool(shutil.which("tc")),
        "root": os.geteuid() == 0,
    }


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _can_make_group() -> bool:
    path = cgroups.choose_group_path(f"drumline-{os.urandom(4).hex()}-n0")
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return False
    try:
        return cgroups.is_group(path)
    finally:
        os.rmdir(path)


def _can_unshare() -> bool:
    """Return whether this process, which was forked for the facts alone, may make a user namespace."""
    try:
        import ctypes

        clone_new_user, clone_new_net = 0x10000000, 0x40000000  # Source: sched.h
        return bool(ctypes.CDLL(None).unshare(clone_new_user | clone_new_net) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def gather_user(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return who the ranks run as, their home and umask, and the time of day."""
    import time

    umask = os.umask(0o077)
    os.umask(umask)
    home = os.path.expanduser("~")
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "umask": umask,
        "home": home,
        "home_writable": os.path.isdir(home) and os.access(home, os.W_OK),
        "time": time.time(),
    }
