"""The use that a job's nodes and ranks make of machines: its agents' samples, as means and rates."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import samples
from drumline.contract.folder import RunFolder, read_plain
from drumline.contract.record import ABSENT, NamedTuple
from drumline.control.facts.steps import describe_steps
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.record import Absent
    from drumline.contract.samples import RankUse, Sample
    from drumline.control.facts.steps import TrainingFacts


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


class GpuUsage(NamedTuple):
    """The use of a GPU of a node, and the ranks on it."""

    gpu: str
    name: str
    busy_percent: int | None
    memory_bytes: int | None
    memory_total_bytes: int | None
    watts: float | None
    celsius: int | None
    ranks: list[int]


class MemoryLimit(NamedTuple):
    used_bytes: int
    bytes: int


class NodeUsage(NamedTuple):
    """
    The use of a node as of its newest sample; ``cpu_percent``: of all of its cores. ``others``: the use of processes
    that are of no rank.
    """

    node: int
    host: str | None
    sampled_at: str | None
    age_seconds: float
    cpu_percent: float | None
    cores: int
    memory_bytes: int
    memory_total_bytes: int
    memory_limit: MemoryLimit | None
    swap_bytes: int
    received_bytes_per_second: int | None
    sent_bytes_per_second: int | None
    read_bytes_per_second: int | None
    written_bytes_per_second: int | None
    load: float
    gpus: list[GpuUsage]
    others: dict[str, Any] | None


class JobUsage(NamedTuple):
    """
    A job with its nodes and ranks as they were at the newest sample of each node. Shares are percent of a core; None:
    not known. A pipeline or a sweep has ``jobs`` instead: those of its steps that are under way.
    """

    step: str | Absent
    name: str
    type: str
    status: str
    reason: str
    engine: str
    seconds: float | None
    training: TrainingFacts | Absent | None = ABSENT
    nodes: list[NodeUsage] | Absent = ABSENT
    ranks: list[dict[str, Any]] | Absent = ABSENT
    jobs: list[JobUsage] | Absent = ABSENT


def describe_usage(
    folder: RunFolder, outcome: Outcome, depth: int = 0, step: str | Absent = ABSENT
) -> JobUsage:
    """Describe what a job uses. ``depth``: of pipelines around it, in which it is that step."""
    why, seconds = outcome.reason, _seconds(outcome)
    described = JobUsage(step, folder.name, outcome.kind, outcome.status, why, outcome.engine, seconds)
    if outcome.kind != "command":
        return described._replace(jobs=_steps(outcome, depth))
    found = read_pairs(folder, outcome)
    over = outcome.is_final
    uses = {use.rank: (pair, use) for pair in found.values() for use in pair.now.ranks}
    tasks = _tasks(folder)
    return described._replace(
        training=describe_steps(folder, outcome),
        nodes=[_node(node, pair, outcome, over) for node, pair in sorted(found.items())],
        ranks=[
            _rank(rank, uses.get(rank.rank), tasks.get(rank.rank, {}), folder, over)
            for _, rank in sorted(outcome.ranks.items())
        ],
    )


def _steps(outcome: Outcome, depth: int) -> list[JobUsage]:
    listed: list[JobUsage] = []
    for step in outcome.steps.values():
        folder = RunFolder.for_job(step.job) if step.job and not step.status else None
        if folder is not None and folder.exists() and depth < _DEEPEST and len(listed) < _MOST_JOBS:
            listed.append(describe_usage(folder, read_outcome(folder), depth + 1, step.step))
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


def _node(node: int, pair: Pair, outcome: Outcome, over: bool) -> NodeUsage:
    now = pair.now
    base = None if over else pair.before
    seconds = now.elapsed_s if over else pair.seconds
    others = [] if over else [use for use in now.ranks if use.rank == samples.NO_RANK]
    busy_s = now.busy_s - (base.busy_s if base else 0.0)
    return NodeUsage(
        node,
        outcome.hosts.get(node),
        utc(now.time),
        max(0.0, round((outcome.ended or time.time()) - now.time, 1)),
        _percent(busy_s, seconds * now.cores),
        now.cores,
        *now.memory,
        MemoryLimit(*now.limit) if now.limit else None,
        now.swap[0],
        *_rates(now.network, base.network if base else (0, 0), seconds),
        *_rates(now.disk, base.disk if base else (0, 0), seconds),
        now.load,
        gpus=[
            GpuUsage(
                gpu.number,
                gpu.name,
                gpu.busy,
                gpu.used,
                gpu.total,
                gpu.watts,
                gpu.celsius,
                [use.rank for use in now.ranks if gpu.number in use.gpus and use.rank >= 0],
            )
            for gpu in now.gpus
        ],
        others=_use(pair, others[0]) if others and others[0].processes else None,
    )


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
