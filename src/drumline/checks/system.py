"""The user, what the kernel allows it, and the clock."""

from __future__ import annotations

import os
import resource
import shutil
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import error, find_odd, list_nodes, ok, size, warning
from drumline.linux import cgroups, kernel_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]


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


_FILES_LEAST, _PROCESSES_LEAST = 1024, 1024


def judge_limits(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("limits")
        if not facts:
            continue
        found = [
            warning(one.node, f"it may {what} {facts[name]}", f"raise {how}")
            for name, least, what, how in (
                ("nofile", _FILES_LEAST, "open no more files than", "the limit nofile (ulimit -n)"),
                (
                    "nproc",
                    _PROCESSES_LEAST,
                    "have no more processes and threads than",
                    "the limit nproc (ulimit -u)",
                ),
            )
            if facts[name] is not None and facts[name] < least
        ]
        if one.get("infiniband").get("ports") and facts["memlock"] is not None:
            found.append(
                warning(
                    one.node,
                    f"it may lock no more than {size(facts['memlock'])} of memory, and InfiniBand locks all it sends",
                    "set the limit memlock to unlimited, also for the daemons of the scheduler",
                )
            )
        yield from found or [ok(f"{facts['nofile'] or 'any number of'} open files", one.node)]


def judge_user(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("user")
        if facts and not facts["home_writable"]:
            yield warning(
                one.node,
                f"its home {facts['home']} cannot be written to",
                "set HOME; caches of programs go there",
            )
        if facts and facts["umask"] & 0o700:
            yield warning(
                one.node,
                f"its umask {facts['umask']:03o} takes the rights from the owner of new files",
                "set umask 022",
            )
    for what, name in (("user ID", "uid"), ("home", "home"), ("umask", "umask")):
        for one, own, usual, others in find_odd(reports, lambda one, name=name: one.get("user").get(name)):  # type: ignore[misc]
            shown = (f"{own:03o}", f"{usual:03o}") if name == "umask" else (own, usual)
            yield warning(
                one.node,
                f"its {what} is {shown[0]}, and {shown[1]} on {list_nodes(others)}",
                "make users alike on all nodes: shared files belong to a number",
            )


def judge_features(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("features")
        if not facts:
            continue
        if not facts["pidfd"]:
            yield error(
                one.node,
                f"its kernel {facts['kernel']} has no pidfd, which Drumline needs",
                "use Linux 5.3 or newer",
            )
        off = []
        if not facts["control_group"]:
            off.append("control groups (a process that leaves its session is found by its parents instead)")
        if not facts["user_namespaces"] and not facts["root"]:
            off.append("user namespaces (no isolated nodes)")
        if facts["ptrace_scope"] > 1 and not facts["root"]:
            off.append(f"ptrace (its scope is {facts['ptrace_scope']}: py-spy shows no stacks)")
        if off:
            yield warning(
                one.node, f"off here: {'; '.join(off)}", "docs/howto/doctor.md says how to get each"
            )
        elif facts["pidfd"]:
            yield ok(f"Linux {facts['kernel']}, all on", one.node)


_SKEW_S = 1.0


def judge_clocks(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        told = one.get("clock").get("time")
        if told is None or one.arrived is None:
            continue
        # The answer of a busy node may be old: it was told between the question and its arrival.
        ahead, behind = told - one.arrived, (one.asked or one.arrived) - told
        if max(ahead, behind) > _SKEW_S:
            how = "ahead of" if ahead > behind else "behind"
            yield warning(
                one.node,
                f"its clock is {max(ahead, behind):.1f} s {how} that of the supervisor",
                "start chrony or ntpd there",
            )
