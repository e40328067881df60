"""The job queue of this machine as a page shows it: what runs and waits, and behind whom; the nodes of all computes."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from drumline.contract import process_identity
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, base_home
from drumline.contract.hiding import hide_in_job
from drumline.contract.record import ABSENT, Absent, NamedTuple, describe_record
from drumline.contract.words import format_count, format_duration
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import read_spec
from drumline.control.machine import computes
from drumline.control.times import utc
from drumline.engines.local import resources
from drumline.engines.local.queue import JobQueue, QueueEntry

_MOST_SHOWN = 500


class QueuedJob(NamedTuple):
    """
    A job that runs or waits. ``ends_about``: when it must have ended by its time limit. Of one that waits: ``needs``
    and the ``sentence`` that says why, ``position`` from 1.
    """

    name: str
    workspace: str
    display_name: str
    cores: int
    gpus: int
    gpu_names: list[str] | Absent = ABSENT
    since: str | Absent | None = ABSENT
    ends_about: str | Absent | None = ABSENT
    needs: str | Absent = ABSENT
    position: int | Absent = ABSENT
    sentence: str | Absent = ABSENT


class MachineQueue(NamedTuple):
    """The queue of this machine. ``capacity`` and ``free``: of cores, GPUs and memory, by these names."""

    sentence: str
    capacity: dict[str, int]
    free: dict[str, int]
    running: list[QueuedJob]
    waiting: list[QueuedJob]


def describe_queue() -> MachineQueue:
    """
    Return the jobs that run here and those that wait, of all workspaces of this user, in the order of the queue.

    Nothing is changed.
    """
    cores, gpus = len(resources.cores()), resources.gpus()
    folder = os.path.join(base_home(), "engines", "local", process_identity.name_machine())
    queue = JobQueue(folder, cores, gpus) if os.path.isdir(folder) else None
    entries = queue.list_entries() if queue else []
    running, limits = [], []
    for one in [one for one in entries if one.running][:_MOST_SHOWN]:
        started, ends = _find_times(one)
        names, times = list(one.gpus), (utc(started), utc(ends))
        running.append(QueuedJob(*_name_entry(one), one.cores, len(one.gpus), names, *times))
        if ends is not None and ends > time.time():
            limits.append((ends - time.time(), one.job))
    waiting = [
        _describe_waiting(queue, one, entries, place)
        for place, one in enumerate([one for one in entries if not one.running][:_MOST_SHOWN], 1)
        if queue
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free_cores = max(0, cores - sum(one.cores for one in entries if one.running))
    free_gpus = max(0, len(gpus) - sum(len(one.gpus) for one in entries if one.running))
    return MachineQueue(
        _summarize(len(running), waiting, cores, sorted(limits)),
        {"cores": cores, "gpus": len(gpus), "memory": memory},
        {"cores": free_cores, "gpus": free_gpus},
        running,
        waiting,
    )


def _find_times(entry: QueueEntry) -> tuple[float | None, float | None]:
    """Return when a job started, and when its time limit ends it, in seconds since 1970."""
    folder = RunFolder(entry.folder)
    if not entry.folder or not folder.exists():
        return None, None
    outcome = read_outcome(folder)
    limit_s = (folder.read_json(folder.plan) or {}).get("timeout_s")
    if outcome.started is None:
        return outcome.created, None
    return outcome.started, outcome.started + limit_s if isinstance(limit_s, (int, float)) else None


def _name_entry(entry: QueueEntry) -> tuple[str, str, str]:
    """Return the name, the workspace and the display name of a job."""
    folder = RunFolder(entry.folder)
    spec = hide_in_job(read_spec(folder)) if entry.folder else {}
    workspace = folder.workspace if entry.folder else ""
    return entry.job, workspace, str(spec.get("display_name") or entry.job)


def _describe_waiting(
    queue: JobQueue, entry: QueueEntry, entries: list[QueueEntry], position: int
) -> QueuedJob:
    blocked = queue.explain(entry, entries)
    gpus = f" and {format_count(entry.gpu_count, 'GPU')}" if entry.gpu_count else ""
    needs = f"{format_count(entry.cores, 'core')}{gpus}"
    sentence = blocked.reason if blocked else "it is about to start"
    job = QueuedJob(*_name_entry(entry), entry.cores, entry.gpu_count)
    return job._replace(needs=needs, position=position, sentence=sentence)


def _summarize(running: int, waiting: list[QueuedJob], cores: int, limits: list[tuple[float, str]]) -> str:
    """Summarize the queue in a sentence. ``limits``: in how many seconds jobs end at the latest, the next first."""
    if not running and not waiting:
        return (
            f"nothing runs or waits here; {format_count(cores, 'core')} {'is' if cores == 1 else 'are'} free"
        )
    sentence = f"{format_count(running, 'job')} {('run', 'runs')[running == 1]}"
    if not waiting:
        return f"{sentence}, none waits"
    first = waiting[0]
    sentence += f", {len(waiting)} {('wait', 'waits')[len(waiting) == 1]}; {first.name} is next: "
    sentence += str(first.sentence)
    if limits:
        left_s, job = limits[0]
        sentence += f"; a time limit ends {job} in {format_duration(left_s)} at the latest"
    return sentence


# the nodes of all computes


_KEPT_S = 10.0
"""An engine is not asked again for so long: it may be a cluster that many ask."""

_kept: dict[str, tuple[float, ComputeNodes]] = {}
_asking = threading.Lock()


class ComputeFacts(NamedTuple):
    """A compute. ``reason``: why its engine does not answer."""

    name: str
    type: str
    description: str
    reason: str


class ComputeNodes(NamedTuple):
    compute: ComputeFacts
    nodes: list[dict[str, Any]]


class AllNodes(NamedTuple):
    """The nodes of all computes. ``damaged``: the files of computes that cannot be read."""

    sentence: str
    computes: list[ComputeFacts]
    nodes: list[dict[str, Any]]
    damaged: list[str]


def describe_nodes() -> AllNodes:
    """Return the computes and their nodes. Blocks."""
    with _asking:
        damaged: list[str] = []
        found = [_ask(one.name) for one in computes.all(damaged=damaged.append)]
    nodes = [node for one in found for node in one.nodes]
    shown = [one.compute for one in found]
    return AllNodes(_summarize_nodes(shown, nodes, damaged), shown, nodes, damaged)


def _ask(name: str) -> ComputeNodes:
    known = _kept.get(name)
    if known is not None and time.monotonic() - known[0] < _KEPT_S:
        return known[1]
    compute = computes.get(name)
    nodes, reason = [], ""
    try:
        nodes = [{"compute": name, **describe_record(node)} for node in computes.nodes(name)]
    except (DrumlineError, OSError) as error:
        reason = getattr(error, "message", "") or str(error)
    told = ComputeNodes(ComputeFacts(name, compute.type, compute.description or "", reason), nodes)
    _kept[name] = (time.monotonic(), told)
    return told


def _summarize_nodes(found: list[ComputeFacts], nodes: list[dict[str, Any]], damaged: list[str]) -> str:
    silent = [one.name for one in found if one.reason]
    said = f"{format_count(len(nodes), 'node')} of {format_count(len(found), 'compute')}"
    if silent:
        said += f"; {', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
    if damaged:
        said += f"; {len(damaged)} cannot be read"
    return said
