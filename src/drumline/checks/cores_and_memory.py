"""Cores, memory, shared memory, the start of programs, and what CPUs compute."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import count_noun, error, find_odd, list_nodes, ok, size, warning
from drumline.linux import kernel_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]


_SIZE = 24

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, and nothing is made in it


def gather_cpu(_: Mapping[str, Any], root: str = "/sys/fs/cgroup") -> dict[str, Any]:
    """Return the cores that this process may use, the time of a Python to start, and a number all CPUs agree on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "quota": _read_quota(root),
        "spawn_s": _time_spawn(),
        "product": _multiply(),
    }


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


def gather_memory(
    _: Mapping[str, Any], shared: str = SHARED_MEMORY, root: str = "/sys/fs/cgroup"
) -> dict[str, Any]:
    """Return the bytes of memory, what is free of it, the limit of the control group, and the size of /dev/shm."""
    rows = dict(_read_rows("/proc/meminfo"))
    facts: dict[str, Any] = {
        "total": rows.get("MemTotal", 0),
        "available": rows.get("MemAvailable", 0),
        "limit": _read_memory_limit(root),
        "shared": shared,
    }
    try:
        about = os.statvfs(shared)
    except OSError as error:
        return {**facts, "shared_error": error.strerror or str(error)}
    return {
        **facts,
        "shared_total": about.f_blocks * about.f_frsize,
        "shared_free": about.f_bavail * about.f_frsize,
    }


def _read_rows(path: str) -> Iterator[tuple[str, int]]:
    for line in kernel_files.read_text(path).splitlines():
        name, _, rest = line.partition(":")
        if rest.split():
            yield name, int(rest.split()[0]) * 1024


def _read_quota(root: str) -> float | None:
    """Return how many cores the control groups of this process allow; None: no limit. Version 2, else 1."""
    found = []
    for folder in _list_groups(root, ""):
        words = kernel_files.read_text(os.path.join(folder, "cpu.max")).split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
    for folder in _list_groups(root, "cpu"):
        quota = kernel_files.read_text(os.path.join(folder, "cpu.cfs_quota_us"))
        period = kernel_files.read_text(os.path.join(folder, "cpu.cfs_period_us"))
        if quota and period and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found) if found else None


def _read_memory_limit(root: str) -> int | None:
    found = []
    for folder in _list_groups(root, ""):
        text = kernel_files.read_text(os.path.join(folder, "memory.max"))
        if text and text != "max":
            found.append(int(text))
    for folder in _list_groups(root, "memory"):
        text = kernel_files.read_text(os.path.join(folder, "memory.limit_in_bytes"))
        # A limit that no machine has stands for none.
        if text and int(text) < 1 << 60:
            found.append(int(text))
    return min(found) if found else None


def _list_groups(root: str, controller: str) -> Iterator[str]:
    """Yield the folder of this process's control group, and those above it. ``controller``: of version 1; empty: 2."""
    for line in kernel_files.read_text("/proc/self/cgroup").splitlines():
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
_MEMORY_SHARE = 0.9
"""Of the memory that a job was given, below which it is missed: the system needs some, too."""


def judge_shared_memory(reports: Nodes, demands: Demands) -> Iterator[Finding]:
    for one, demand in zip(reports, demands):
        facts = one.get("memory")
        if facts.get("shared_error"):
            yield warning(
                one.node,
                f"there is no {facts['shared']}: {facts['shared_error']}",
                "mount a tmpfs on /dev/shm; DataLoader workers, NCCL and MPI share memory there",
            )
        elif "shared_total" in facts:
            # The least that DataLoader workers and NCCL of so many ranks were seen to need.
            wanted = max(_SHARED_LEAST, _SHARED_PER_RANK * demand.ranks)
            if facts["shared_total"] < wanted:
                yield warning(
                    one.node,
                    f"{facts['shared']} has {size(facts['shared_total'])}, and {size(wanted)} is advisable for "
                    f"{count_noun(demand.ranks, 'rank')}",
                    "remount it larger (mount -o remount,size=2G /dev/shm), or set shm_size of the container or node",
                )
            else:
                yield ok(f"{facts['shared']} has {size(facts['shared_total'])}", one.node)


def judge_cores(reports: Nodes, demands: Demands) -> Iterator[Finding]:
    for one, demand in zip(reports, demands):
        facts = one.get("cpu")
        if not facts:
            continue
        quota = facts.get("quota")
        cores = min(facts["cores"], quota or facts["cores"])
        wanted = demand.cores
        if wanted and cores + 0.01 < wanted:
            how = (
                f"a control group allows {quota:g}"
                if quota and quota < facts["cores"]
                else "its affinity says so"
            )
            yield warning(
                one.node,
                f"{cores:g} of {count_noun(wanted, 'core')} that the job was given can be used: {how}",
                "ask for fewer cores or ranks per node, or raise the limit",
            )
        elif quota and not wanted and quota + 0.01 < facts["cores"]:
            yield warning(
                one.node,
                f"a control group allows the time of {quota:g} cores, and programs see {facts['cores']}",
                "set OMP_NUM_THREADS, or raise the limit: threads beyond it wait for each other",
            )
        else:
            yield ok(count_noun(facts["cores"], "core"), one.node)


def judge_memory(reports: Nodes, demands: Demands) -> Iterator[Finding]:
    for one, demand in zip(reports, demands):
        facts = one.get("memory")
        if not facts.get("total"):
            continue
        limit = min(facts["limit"] or facts["total"], facts["total"])
        # Of the whole machine.
        available = min(facts["available"], limit)
        wanted = demand.memory_bytes
        if limit < _MEMORY_SHARE * wanted:
            yield warning(
                one.node,
                f"its memory is limited to {size(limit)}, and the job was given {size(wanted)}",
                "raise the limit of its control group, or ask for less memory",
            )
        elif available < _MEMORY_SHARE * wanted:
            yield warning(
                one.node,
                f"{size(available)} of its memory is available, and the job was given {size(wanted)}",
                "end what uses it (ps -eo pid,user,rss,comm --sort=-rss | head), or have Slurm count memory",
            )
        elif available < min(limit // 10, 1 << 30):
            yield warning(
                one.node,
                f"{size(available)} of {size(facts['total'])} memory is available: others use the rest",
                "end what uses it (ps -eo pid,user,rss,comm --sort=-rss | head)",
            )
        else:
            yield ok(f"{size(available)} of {size(limit)} available", one.node)


def judge_spawn(reports: Nodes, _: Demands) -> Iterator[Finding]:
    times = {one.node: float(one.get("cpu")["spawn_s"]) for one in reports if one.get("cpu")}
    if not times:
        return
    usual = statistics.median_low(times.values())
    for node, seconds in times.items():
        if seconds > _SPAWN_S and seconds > 3 * usual and len(times) > 1:
            yield warning(
                node,
                f"a Python takes {seconds:.2f} s to start, and {usual:.2f} s on the other nodes",
                "look for what else runs there (top)",
            )
        elif len(times) == 1:
            yield ok(f"a Python starts in {1000 * seconds:.0f} ms", node)


def judge_arithmetic(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one, own, usual, others in find_odd(reports, lambda one: one.get("cpu").get("product")):
        yield error(
            one.node,
            f"its CPU computes {own} where {list_nodes(others)} compute {usual}",
            "take the node out of service: its results cannot be trusted",
        )
