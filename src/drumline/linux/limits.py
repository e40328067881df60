"""
Limits of processor time and memory for a node, by control groups of version 2 or 1, where this machine allows that.

Version 2 wants a parent with the controllers switched on, and nobody in it: the nearest one above us. Version 1 has a
tree of its own for each controller, with our own group as the parent.
Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

import contextlib
import os

from drumline.contract.record import NamedTuple
from drumline.linux import cgroups

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000


class LimitGroups(NamedTuple):
    """The folders of the groups that limit one node; empty: that cannot be limited here."""

    cpu: str = ""
    memory: str = ""
    version: int = 2

    @property
    def paths(self) -> list[str]:
        """Return the folders, each once."""
        return list(dict.fromkeys(filter(None, (self.cpu, self.memory))))


def choose_limit_groups(name: str) -> LimitGroups:
    """Choose the groups of that name for a node (``cgroups.is_node_name``). Makes nothing."""
    if os.environ.get("DRUMLINE_CGROUP") == "0":
        return LimitGroups()
    parent = _find_parent_of_version_2()
    if parent:
        path = os.path.join(parent, name)
        return LimitGroups(path, path)
    parents = _find_parents_of_version_1()
    cpu, memory = (os.path.join(parents[one], name) if one in parents else "" for one in ("cpu", "memory"))
    return LimitGroups(cpu, memory, 1)


def _find_parent_of_version_2() -> str:
    group = os.path.dirname(cgroups.choose_group_path("x"))
    while group and os.path.exists(os.path.join(group, "cgroup.procs")):
        if {"cpu", "memory"} <= set(cgroups.read_text(os.path.join(group, "cgroup.subtree_control")).split()):
            return group if _may_make_groups(group) else ""
        group = os.path.dirname(group)
    return ""


def _find_parents_of_version_1() -> dict[str, str]:
    """Return our own group for each controller that has a tree of version 1 in which we may make groups."""
    own = {}
    for line in cgroups.read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(filter(None, controllers.split(",")), path))
    found = {}
    for line in cgroups.read_text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if not after.startswith("cgroup ") or fields[3] != "/":
            continue
        for one in after.split()[-1].split(","):
            parent = os.path.normpath(fields[4] + own.get(one, "/"))
            if one in ("cpu", "memory") and _may_make_groups(parent):
                found[one] = parent
    return found


def _may_make_groups(parent: str) -> bool:
    return os.access(parent, os.W_OK) and os.access(os.path.join(parent, "cgroup.procs"), os.W_OK)


def join_limit_groups(groups: LimitGroups) -> None:
    """Make the groups and put this process into them, with all that it will start. Raises OSError."""
    for path in groups.paths:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        _write(os.path.join(path, "cgroup.procs"), "0")


def join_own_groups(pid: int) -> None:
    """Move that process into our own groups of version 1, as far as they are ours to change. Raises OSError."""
    for path in set(_find_parents_of_version_1().values()):
        _write(os.path.join(path, "cgroup.procs"), str(pid))


def limit_cpus(groups: LimitGroups, count: float | None) -> None:
    """Limit the processor time to that of so many processors; None: no limit. Raises OSError."""
    quota = -1 if count is None else max(_LEAST_QUOTA_US, round(count * _PERIOD_US))
    if groups.version == 1:
        _write(os.path.join(groups.cpu, "cpu.cfs_period_us"), str(_PERIOD_US))
        _write(os.path.join(groups.cpu, "cpu.cfs_quota_us"), str(quota))
    else:
        _write(os.path.join(groups.cpu, "cpu.max"), f"{'max' if count is None else quota} {_PERIOD_US}")


def limit_memory(groups: LimitGroups, size_bytes: int | None) -> None:
    """Limit the memory; None: no limit. Raises OSError: what is in use may be more, and cannot be put elsewhere."""
    if groups.version == 1:
        _write(
            os.path.join(groups.memory, "memory.limit_in_bytes"),
            str(-1 if size_bytes is None else size_bytes),
        )
        return
    _write(os.path.join(groups.memory, "memory.max"), "max" if size_bytes is None else str(size_bytes))
    # A node without swap: there the limit would let it take as much again.
    with contextlib.suppress(OSError):
        _write(os.path.join(groups.memory, "memory.swap.max"), "max" if size_bytes is None else "0")


def leave_limit_groups(groups: LimitGroups) -> None:
    """Move this process out of groups of version 1, and remove those that nobody else is in. Never raises."""
    for path in groups.paths if groups.version == 1 else ():
        with contextlib.suppress(OSError):
            _write(os.path.join(os.path.dirname(path), "cgroup.procs"), "0")
            os.rmdir(path)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
