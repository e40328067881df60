"""The user, what the kernel allows it, and the clock."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import compare
from drumline.checks.gpus import list_ports
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds, format_size
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport


_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK)


class LimitFacts(NamedTuple):
    """The soft limits of a process; None: no limit."""

    nofile: int | None
    nproc: int | None
    memlock: int | None


def gather_limits(_: Mapping[str, Any]) -> LimitFacts:
    soft = (resource.getrlimit(number)[0] for number in _LIMITS)
    return LimitFacts(*(None if limit == resource.RLIM_INFINITY else limit for limit in soft))


class FeatureFacts(NamedTuple):
    """The features of the kernel that Drumline uses where they are there."""

    kernel: str
    pidfd: bool
    user_namespaces: bool
    ptrace_scope: int
    control_group: bool
    root: bool


def gather_features(_: Mapping[str, Any]) -> FeatureFacts:
    return FeatureFacts(
        os.uname().release,
        _has_pidfd(),
        _can_unshare(),
        cgroups.read_number("/proc/sys/kernel/yama/ptrace_scope"),
        _can_make_group(),
        os.geteuid() == 0,
    )


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


class UserFacts(NamedTuple):
    """The user of the ranks, with home and umask."""

    uid: int
    umask: int
    home: str
    home_writable: bool


def gather_user(_: Mapping[str, Any]) -> UserFacts:
    umask = os.umask(0o077)
    os.umask(umask)
    home = os.path.expanduser("~")
    return UserFacts(os.getuid(), umask, home, os.path.isdir(home) and os.access(home, os.W_OK))


_FILES_LEAST, _PROCESSES_LEAST = 1024, 1024


_SKEW_S = 1.0


def judge_limits(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("limits", LimitFacts)
    if not facts:
        return
    files, processes, locked = facts
    if files is not None and files < _FILES_LEAST:
        yield node.warning(f"it may open no more files than {files}", "raise the limit nofile (ulimit -n)")
    else:
        yield node.ok(f"{files or 'any number of'} open files")
    if processes is not None and processes < _PROCESSES_LEAST:
        what = f"it may have no more processes and threads than {processes}"
        yield node.warning(what, "raise the limit nproc (ulimit -u)")
    if locked is not None and list_ports(node):
        yield node.warning(
            f"it may lock no more than {format_size(locked)} of memory, and InfiniBand locks all it sends",
            "set the limit memlock to unlimited, also for the daemons of the scheduler",
        )


def judge_features(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("features", FeatureFacts)
    if not facts:
        return
    if not facts.pidfd:
        what = f"its kernel {facts.kernel} has no pidfd, which Drumline needs"
        yield node.error(what, "use Linux 5.3 or newer")
    off = []
    if not facts.control_group:
        off.append("control groups (a process that leaves its session is found by its parents instead)")
    if not facts.user_namespaces and not facts.root:
        off.append("user namespaces (no isolated nodes)")
    if facts.ptrace_scope > 1 and not facts.root:
        off.append(f"ptrace (its scope is {facts.ptrace_scope}: py-spy shows no stacks)")
    if off:
        yield node.warning(f"off here: {'; '.join(off)}", "docs/howto/doctor.md says how to get each")
    elif facts.pidfd:
        yield node.ok(f"Linux {facts.kernel}, all on")


def judge_user(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("user", UserFacts)
    if facts and not facts.home_writable:
        what = f"its home {facts.home} cannot be written to"
        yield node.warning(what, "set HOME; caches of programs go there")
    if facts and facts.umask & 0o700:
        what = f"its umask {facts.umask:03o} takes the rights from the owner of new files"
        yield node.warning(what, "set umask 022")


def compare_users(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def reads(show: Callable[[UserFacts], object]) -> Callable[[NodeReport], object]:
        return lambda node: show(facts) if (facts := node.find("user", UserFacts)) else None

    for what, read in (
        ("user ID", reads(lambda user: user.uid)),
        ("home", reads(lambda user: user.home)),
        ("umask", reads(lambda user: f"{user.umask:03o}")),
    ):
        remedy = "make users alike on all nodes: shared files belong to a number"
        yield from compare(nodes, read, f"its {what} is", remedy)


def compare_clocks(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for node in nodes:
        told = node.get("clock").get("time")
        if told is None or node.arrived is None:
            continue
        # The answer of a busy node may be old: it was told between the question and its arrival.
        ahead, behind = told - node.arrived, (node.asked or node.arrived) - told
        if max(ahead, behind) > _SKEW_S:
            how = "ahead of" if ahead > behind else "behind"
            what = f"its clock is {format_seconds(max(ahead, behind))} {how} that of the supervisor"
            yield node.warning(what, "start chrony or ntpd there")
