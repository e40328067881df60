"""Judges of the machine under a node: processors, memory, limits, folders and leftovers."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from drumline.supervisor.preflight.findings import count_noun, error, find_odd, list_nodes, ok, size, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]

_SHARED_PER_RANK = 64 << 20
_SHARED_LEAST = 1 << 30
_FREE_LEAST = 1 << 30
_INODES_LEAST = 1000
_WRITE_S = 1.0
_SPAWN_S = 0.3
_MEMORY_SHARE = 0.9
"""Of the memory that a job was given, below which it is missed: the system needs some, too."""

_LIBRARY_RATE = 20e6
_FILES_LEAST, _PROCESSES_LEAST = 1024, 1024


def judge_shared_memory(reports: Nodes, demands: Demands) -> Iterator[Finding]:
    for one, demand in zip(reports, demands, strict=True):
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
    for one, demand in zip(reports, demands, strict=True):
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
    for one, demand in zip(reports, demands, strict=True):
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


def judge_disk(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        if "late" in one.facts.get("disk", {}):
            yield warning(
                one.node,
                f"writing to its folders takes longer than {one.facts['disk']['late']:g} s",
                "look for a file system that hangs: df, mount, dmesg",
            )
        for folder in one.get("disk").get("folders", ()):
            yield from _judge_folder(one, folder)


def _judge_folder(one: NodeReport, folder: Mapping[str, Any]) -> Iterator[Finding]:
    where = f"{folder['name']} {folder['path']}"
    if folder["error"]:
        yield error(
            one.node,
            f"the {where} cannot be written to: {folder['error']}",
            "free space there, or mend its rights",
        )
    elif folder["free"] < min(_FREE_LEAST, folder["total"] // 10):
        yield warning(
            one.node,
            f"the {where} has {size(folder['free'])} left",
            "free space there: drumline df, drumline prune",
        )
    elif folder["inodes"] is not None and folder["inodes"] < _INODES_LEAST:
        yield warning(
            one.node,
            f"the {where} has room for {folder['inodes']} files",
            "remove files there: df -i shows inodes",
        )
    elif folder["write_s"] > _WRITE_S:
        yield warning(
            one.node,
            f"writing 1 MiB to the {where} took {folder['write_s']:.1f} s",
            "move it to a faster disk, or look for what keeps the disk busy",
        )
    else:
        yield ok(f"the {folder['name']} has {size(folder['free'])} left", one.node)


def judge_shared_paths(reports: Nodes, _: Demands) -> Iterator[Finding]:
    if len(reports) < 2:
        return
    for one in reports:
        if "late" in one.facts.get("shared", {}):
            yield warning(
                one.node, "its shared folders do not answer", "look for a mount that hangs: mount, dmesg"
            )
        for path in one.get("shared").get("paths", ()):
            if path["error"]:
                yield error(
                    one.node,
                    f"{path['path']} is not there: {path['error']}",
                    "put it on a file system that all nodes share",
                )
    for path in dict.fromkeys(path["path"] for one in reports for path in one.get("shared").get("paths", ())):
        yield from (
            warning(
                one.node,
                f"{path} is another folder than on {list_nodes(others)}",
                "put it on a file system that all nodes share",
            )
            for one, _, _, others in find_odd(reports, lambda report, path=path: _find_inode(report, path))  # type: ignore[misc]
        )


def _find_inode(one: NodeReport, path: str) -> int | None:
    return next(
        (found["inode"] for found in one.get("shared").get("paths", ()) if found["path"] == path), None
    )


def judge_library(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        rate = one.get("library").get("rate")
        if "late" in one.facts.get("library", {}) or (rate is not None and rate < _LIBRARY_RATE):
            how = f"at {size(rate)}/s" if rate else "too slowly to be measured"
            yield warning(
                one.node,
                f"PyTorch's libraries are read {how}, so that its import takes minutes",
                "put the environment on a local disk",
            )


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


def judge_leftovers(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("leftovers")
        found = facts.get("processes", ())
        if found:
            first = found[0]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            yield warning(
                one.node,
                f"process {first['pid']}{more} of job {first['job']} is left, whose supervisor is gone",
                "run drumline doctor --fix there",
            )
        if facts.get("folders"):
            yield warning(
                one.node,
                f"{count_noun(len(facts['folders']), 'folder')} of ended agents are left: {facts['folders'][0]}",
                "run drumline doctor --fix there",
            )
