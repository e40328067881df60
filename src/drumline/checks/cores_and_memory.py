"""Cores, memory, shared memory, the start of programs, and what CPUs compute."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import find_odd
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count, format_seconds, format_size
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport


_SIZE = 24

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, and nothing is made in it


class CpuFacts(NamedTuple):
    """The cores that a process may use, the time of a Python to start, and a number all CPUs agree on."""

    cores: int
    quota: float | None
    spawn_s: float
    product: str


def gather_cpu(_: Mapping[str, Any], root: str = "/sys/fs/cgroup") -> CpuFacts:
    return CpuFacts(len(os.sched_getaffinity(0)), _read_quota(root), _time_spawn(), _multiply())


def _time_spawn() -> float:
    """Return the seconds of the quickest of two starts of an interpreter without packages."""
    import sys

    times = []
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=False, capture_output=True)  # noqa: S603 - our own
        times.append(time.monotonic() - began)
    return round(min(times), 4)


def _multiply() -> str:
    """Return the bits of a product of two matrices: sums and products of doubles are the same on every sound CPU."""
    rows = [[((7 * i + 3 * j) % 11 + 1) / 7 for j in range(_SIZE)] for i in range(_SIZE)]
    product = rows
    for _ in range(3):
        product = [[sum(a * b for a, b in zip(row, column)) / 64 for column in zip(*rows)] for row in product]
    return float(sum(map(sum, product))).hex()


class MemoryFacts(NamedTuple):
    """The bytes of memory, what is free of it, the limit of the control group, and the size of /dev/shm."""

    total: int
    available: int
    limit: int | None
    shared: str = ""
    shared_total: int = 0
    shared_error: str = ""


def gather_memory(
    _: Mapping[str, Any], shared: str = SHARED_MEMORY, root: str = "/sys/fs/cgroup"
) -> MemoryFacts:
    rows = dict(_read_rows("/proc/meminfo"))
    total, available = rows.get("MemTotal", 0), rows.get("MemAvailable", 0)
    facts = MemoryFacts(total, available, _read_memory_limit(root), shared)
    try:
        about = os.statvfs(shared)
    except OSError as error:
        return facts._replace(shared_error=error.strerror or str(error))
    return facts._replace(shared_total=about.f_blocks * about.f_frsize)


def _read_rows(path: str) -> Iterator[tuple[str, int]]:
    for line in cgroups.read_text(path).splitlines():
        name, _, rest = line.partition(":")
        if rest.split():
            yield name, int(rest.split()[0]) * 1024


def _read_quota(root: str) -> float | None:
    """Return how many cores the control groups of this process allow; None: no limit. Version 2, else 1."""
    found = []
    for folder in _list_groups(root, ""):
        words = cgroups.read_text(os.path.join(folder, "cpu.max")).split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
    for folder in _list_groups(root, "cpu"):
        quota = cgroups.read_text(os.path.join(folder, "cpu.cfs_quota_us"))
        period = cgroups.read_text(os.path.join(folder, "cpu.cfs_period_us"))
        if quota and period and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found) if found else None


def _read_memory_limit(root: str) -> int | None:
    found = []
    for folder in _list_groups(root, ""):
        text = cgroups.read_text(os.path.join(folder, "memory.max"))
        if text and text != "max":
            found.append(int(text))
    for folder in _list_groups(root, "memory"):
        text = cgroups.read_text(os.path.join(folder, "memory.limit_in_bytes"))
        # A limit that no machine has stands for none.
        if text and int(text) < 1 << 60:
            found.append(int(text))
    return min(found) if found else None


def _list_groups(root: str, controller: str) -> Iterator[str]:
    """Yield the folder of this process's control group, and those above it. ``controller``: of version 1; empty: 2."""
    for line in cgroups.read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        top = os.path.join(root, controller) if controller else root
        while True:
            yield os.path.normpath(top + "/" + path)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


_SHARED_PER_RANK = 64 << 20
_SHARED_LEAST = 1 << 30
_SPAWN_S = 0.3
_END_USERS = "end what uses it (ps -eo pid,user,rss,comm --sort=-rss | head)"
_MEMORY_SHARE = 0.9
"""Of the memory that a job was given, below which it is missed: the system needs some, too."""


def judge_cores(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("cpu", CpuFacts)
    if not facts:
        return
    quota, wanted = facts.quota, node.demand.cores
    cores = min(facts.cores, quota or facts.cores)
    if wanted and cores + 0.01 < wanted:
        is_quota = quota and quota < facts.cores
        how = f"a control group allows {quota:g}" if is_quota else "its affinity says so"
        yield node.warning(
            f"{cores:g} of {format_count(wanted, 'core')} that the job was given can be used: {how}",
            "ask for fewer cores or ranks per node, or raise the limit",
        )
    elif quota and not wanted and quota + 0.01 < facts.cores:
        yield node.warning(
            f"a control group allows the time of {quota:g} cores, and programs see {facts.cores}",
            "set OMP_NUM_THREADS, or raise the limit: threads beyond it wait for each other",
        )
    else:
        yield node.ok(format_count(facts.cores, "core"))


def compare_starts(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    times = [(node, facts.spawn_s) for node in nodes if (facts := node.find("cpu", CpuFacts))]
    usual = (
        sorted(seconds for _, seconds in times)[(len(times) - 1) // 2] if times else 0.0
    )  # The lower median.
    for node, seconds in times:
        if seconds > max(_SPAWN_S, 3 * usual):
            yield node.warning(
                f"a Python takes {format_seconds(seconds)} to start, and {format_seconds(usual)} on the other nodes",
                "look for what else runs there (top)",
            )


def compare_arithmetic(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        facts = node.find("cpu", CpuFacts)
        return facts.product if facts else ""

    for node, own, usual, others in find_odd(nodes, read):
        yield node.error(
            f"its CPU computes {own} where {others} compute {usual}",
            "take the node out of service: its results cannot be trusted",
        )


def judge_memory(node: NodeReport) -> Iterator[Finding]:
    facts, wanted = node.find("memory", MemoryFacts), node.demand.memory_bytes
    if not facts or not facts.total:
        return
    limit = min(facts.limit or facts.total, facts.total)
    # Of the whole machine.
    available = min(facts.available, limit)
    if limit < _MEMORY_SHARE * wanted:
        yield node.warning(
            f"its memory is limited to {format_size(limit)}, and the job was given {format_size(wanted)}",
            "raise the limit of its control group, or ask for less memory",
        )
    elif available < _MEMORY_SHARE * wanted:
        yield node.warning(
            f"{format_size(available)} of its memory is available, and the job was given {format_size(wanted)}",
            f"{_END_USERS}, or have Slurm count memory",
        )
    elif available < min(limit // 10, 1 << 30):
        what = (
            f"{format_size(available)} of {format_size(facts.total)} memory is available: others use the rest"
        )
        yield node.warning(what, _END_USERS)
    else:
        yield node.ok(f"{format_size(available)} of {format_size(limit)} available")


def judge_shared_memory(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("memory", MemoryFacts)
    if not facts:
        return
    if facts.shared_error:
        yield node.warning(
            f"there is no {facts.shared}: {facts.shared_error}",
            "mount a tmpfs on /dev/shm; DataLoader workers, NCCL and MPI share memory there",
        )
    elif facts.shared:
        # The least that DataLoader workers and NCCL of so many ranks were seen to need.
        wanted = max(_SHARED_LEAST, _SHARED_PER_RANK * node.demand.ranks)
        has = f"{facts.shared} has {format_size(facts.shared_total)}"
        if facts.shared_total < wanted:
            yield node.warning(
                f"{has}, and {format_size(wanted)} is advisable for {format_count(node.demand.ranks, 'rank')}",
                "remount it larger (mount -o remount,size=2G /dev/shm), or set shm_size of the container or node",
            )
        else:
            yield node.ok(has)
