"""The use that a job's nodes and ranks make of machines: its agents' samples, as means and rates."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import samples
from drumline.contract.folder import RunFolder, read_plain
from drumline.contract.record import NamedTuple
from drumline.control.facts.steps import describe_steps
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.samples import RankUse, Sample


_MOST_BYTES = 1 << 18
"""Of the end of a file: the samples of a thousand ranks."""

_SHORTEST_S = 0.5
"""Between two samples that a rate is made of."""

_MOST_JOBS = 50
_DEEPEST = 8


class Pair(NamedTuple):
    """The newest sample of a node and the one before it, which is None when there is none."""

    now: Sample
    before: Sample | None

    @property
    def seconds(self) -> float:
        return self.now.elapsed_s - (self.before.elapsed_s if self.before else 0.0)


def describe_usage(folder: RunFolder, outcome: Outcome, depth: int = 0) -> dict[str, Any]:
    """
    Describe a job with ``nodes`` and ``ranks`` as they were at the newest sample of each node.

    Shares are percent of a core, a node's are of all of its cores. None: not known.

    A pipeline or a sweep has ``jobs`` instead: the same of those of its steps that are under way. ``depth``: of
    pipelines around it.
    """
    described: dict[str, Any] = {
        "name": folder.name,
        "type": outcome.kind,
        "status": outcome.status,
        "reason": outcome.reason,
        "engine": outcome.engine,
        "seconds": _seconds(outcome),
    }
    if outcome.kind != "command":
        return {**described, "jobs": _steps(outcome, depth)}
    found = read_pairs(folder, outcome)
    over = outcome.is_final
    uses = {use.rank: (pair, use) for pair in found.values() for use in pair.now.ranks}
    tasks = _tasks(folder)
    described["training"] = describe_steps(folder, outcome)
    described["nodes"] = [_node(node, pair, outcome, over) for node, pair in sorted(found.items())]
    described["ranks"] = [
        _rank(rank, uses.get(rank.rank), tasks.get(rank.rank, {}), folder, over)
        for _, rank in sorted(outcome.ranks.items())
    ]
    return described


def _steps(outcome: Outcome, depth: int) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for step in outcome.steps.values():
        folder = RunFolder.for_job(step.job) if step.job and not step.status else None
        if folder is not None and folder.exists() and depth < _DEEPEST and len(listed) < _MOST_JOBS:
            listed.append({"step": step.step, **describe_usage(folder, read_outcome(folder), depth + 1)})
    return listed


class RankTotals(NamedTuple):
    """The use of a rank in all of an attempt. ``mean_cpu_percent``: of a core."""

    rank: int
    node: int
    peak_memory_bytes: int
    cpu_seconds: float
    mean_cpu_percent: float | None


def list_totals(folder: RunFolder, outcome: Outcome) -> list[RankTotals]:
    """List the totals of the ranks of the latest attempt; empty: it was not sampled."""
    return sorted(
        (
            RankTotals(use.rank, rank.node, use.peak, round(use.cpu_s, 2), _mean_percent(use, rank, pair.now))
            for pair in read_pairs(folder, outcome).values()
            for use in pair.now.ranks
            if (rank := outcome.ranks.get(use.rank))
        ),
        key=lambda totals: totals.rank,
    )


def read_pairs(folder: RunFolder, outcome: Outcome) -> dict[int, Pair]:
    """Read the newest samples of the latest attempt, by node."""
    attempt = len(outcome.attempts)
    nodes = set(outcome.agents) | {rank.node for rank in outcome.ranks.values()}
    found = {node: _pair(samples.path_of(folder.path, node), attempt) for node in nodes}
    return {node: pair for node, pair in found.items() if pair is not None}


def _pair(path: str, attempt: int) -> Pair | None:
    newest = None
    for line in reversed(read_plain(path, _MOST_BYTES, from_end=True).split(b"\n")):
        sample = samples.from_line(line) if line else None
        if sample is None:
            continue
        if sample.attempt != attempt:
            # Those of earlier attempts come before.
            if sample.attempt < attempt:
                break
            continue
        if newest is None:
            newest = sample
        elif newest.elapsed_s - sample.elapsed_s >= _SHORTEST_S:
            return Pair(newest, sample)
    return Pair(newest, None) if newest else None


def _tasks(folder: RunFolder) -> dict[int, Mapping[str, Any]]:
    """Return the plan's entry of each rank."""
    plan = folder.read_json(folder.plan) or {}
    try:
        return {task["rank"]: dict(task) for node in plan["nodes"] for task in node["ranks"]}
    except (LookupError, TypeError, ValueError):
        return {}


def _seconds(outcome: Outcome) -> float | None:
    """Return how long the ranks have been running, or ran."""
    if outcome.started is None:
        return None
    return max(0.0, round((outcome.ended or time.time()) - outcome.started, 1))


def _node(node: int, pair: Pair, outcome: Outcome, over: bool) -> dict[str, Any]:
    now = pair.now
    base = None if over else pair.before
    seconds = now.elapsed_s if over else pair.seconds
    others = [] if over else [use for use in now.ranks if use.rank == samples.NO_RANK]
    busy_s = now.busy_s - (base.busy_s if base else 0.0)
    used, total = now.memory
    received, sent = _rates(now.network, base.network if base else (0, 0), seconds)
    read, written = _rates(now.disk, base.disk if base else (0, 0), seconds)
    return {
        "node": node,
        "host": outcome.hosts.get(node),
        "sampled_at": utc(now.time),
        "age_seconds": max(0.0, round((outcome.ended or time.time()) - now.time, 1)),
        "cpu_percent": _percent(busy_s, seconds * now.cores),
        "cores": now.cores,
        "memory_bytes": used,
        "memory_total_bytes": total,
        "memory_limit": {"used_bytes": now.limit[0], "bytes": now.limit[1]} if now.limit else None,
        "swap_bytes": now.swap[0],
        "received_bytes_per_second": received,
        "sent_bytes_per_second": sent,
        "read_bytes_per_second": read,
        "written_bytes_per_second": written,
        "load": now.load,
        "gpus": [
            {
                "gpu": gpu.number,
                "name": gpu.name,
                "busy_percent": gpu.busy,
                "memory_bytes": gpu.used,
                "memory_total_bytes": gpu.total,
                "watts": gpu.watts,
                "celsius": gpu.celsius,
                "ranks": [use.rank for use in now.ranks if gpu.number in use.gpus and use.rank >= 0],
            }
            for gpu in now.gpus
        ],
        "others": _use(pair, others[0]) if others and others[0].processes else None,
    }


def _rank(
    rank: RankOutcome,
    sampled: tuple[Pair, RankUse] | None,
    task: Mapping[str, Any],
    folder: RunFolder,
    over: bool,
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "rank": rank.rank,
        "label": str(task.get("label", rank.rank)),
        "node": rank.node,
        "pid": rank.pid,
        "state": rank.state,
        "seconds_since_output": None
        if over or rank.state != "running"
        else _age_of(folder, str(task.get("log", ""))),
    }
    if sampled is None:
        return described
    pair, use = sampled
    return {**described, **_use(pair, use), "mean_cpu_percent": _mean_percent(use, rank, pair.now)}


def _use(pair: Pair, use: RankUse) -> dict[str, Any]:
    before = next((one for one in pair.before.ranks if one.rank == use.rank), None) if pair.before else None
    seconds = pair.seconds
    described: dict[str, Any] = {
        "cpu_percent": _percent(use.cpu_s - (before.cpu_s if before else 0.0), seconds),
        "cpu_seconds": round(use.cpu_s, 2),
        "memory_bytes": use.memory,
        "peak_memory_bytes": use.peak,
        "processes": use.processes,
        "threads": use.threads,
    }
    if use.io is not None:
        then = before.io if before and before.io else (0, 0, 0, 0)
        read, written = _rates(use.io[:2], then[:2], seconds)
        described |= {
            "read_bytes_per_second": read,
            "written_bytes_per_second": written,
            "read_bytes": use.io[0],
            "written_bytes": use.io[1],
            "storage_read_bytes": use.io[2],
            "storage_written_bytes": use.io[3],
        }
    busy = [gpu.busy for gpu in pair.now.gpus if gpu.number in use.gpus and gpu.busy is not None]
    if use.gpus:
        described["gpus"] = sorted(use.gpus)
        described["gpu_memory_bytes"] = sum(use.gpus.values())
        described["gpu_busy_percent"] = round(sum(busy) / len(busy), 1) if busy else None
    return described


def _mean_percent(use: RankUse, rank: RankOutcome, now: Sample) -> float | None:
    """Return the mean percent of a core while the first process ran."""
    if rank.started is None:
        return None
    end = rank.ended if rank.ended is not None and use.has_ended else now.time
    return _percent(use.cpu_s, end - rank.started)


def _percent(part: float, whole: float) -> float | None:
    return max(0.0, round(100 * part / whole, 1)) if whole > 0 else None


def _rates(now: tuple[int, ...], before: tuple[int, ...], seconds: float) -> tuple[int | None, int | None]:
    if seconds <= 0:
        return None, None
    first, second = (max(0, round((new - old) / seconds)) for new, old in zip(now, before, strict=True))
    return first, second


def _age_of(folder: RunFolder, log: str) -> float | None:
    """Return the seconds since the last output of a rank."""
    try:
        written = os.stat(os.path.join(folder.path, log), follow_symlinks=False)
    except OSError:
        return None
    return max(0.0, round(time.time() - written.st_mtime, 1)) if written.st_size else None
