"""The job queue of this machine as a page shows it: what runs, what waits, for what and behind whom."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import identity
from drumline.contract.folder import RunFolder, base_home
from drumline.contract.hiding import hide_in_job
from drumline.contract.words import format_count, format_duration
from drumline.control.jobs.lookup import read_spec
from drumline.control.jobs.outcome import read_outcome
from drumline.control.times import utc
from drumline.engines.local import machine
from drumline.engines.local.queue import JobQueue, QueueEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_SHOWN = 500


def describe_queue() -> dict[str, Any]:
    """
    Return the jobs that run here and those that wait, of all workspaces of this user, in the order of the queue.

    ``ends_about``: when the job must have ended by its time limit; None without one. Nothing is changed.
    """
    cores, gpus = len(machine.cores()), machine.gpus()
    folder = os.path.join(base_home(), "engines", "local", identity.name_machine())
    queue = JobQueue(folder, cores, gpus) if os.path.isdir(folder) else None
    entries = queue.list_entries() if queue else []
    running = [_describe_running(one) for one in entries if one.running][:_MOST_SHOWN]
    waiting = [
        _describe_waiting(queue, one, entries, place)
        for place, one in enumerate([one for one in entries if not one.running][:_MOST_SHOWN], 1)
        if queue
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "sentence": _summarize(running, waiting, cores),
        "capacity": {"cores": cores, "gpus": len(gpus), "memory": memory},
        "free": {
            "cores": max(0, cores - sum(one.cores for one in entries if one.running)),
            "gpus": max(0, len(gpus) - sum(len(one.gpus) for one in entries if one.running)),
        },
        "running": running,
        "waiting": waiting,
    }


def _describe_running(entry: QueueEntry) -> dict[str, Any]:
    folder = RunFolder(entry.folder)
    started, ends = None, None
    if entry.folder and folder.exists():
        outcome = read_outcome(folder)
        started = outcome.started or outcome.created
        limit_s = (folder.read_json(folder.plan) or {}).get("timeout_s")
        if outcome.started is not None and isinstance(limit_s, (int, float)):
            ends = outcome.started + limit_s
    return {
        **_describe_entry(entry),
        "gpus": len(entry.gpus),
        "gpu_names": list(entry.gpus),
        "since": utc(started),
        "ends_about": utc(ends),
    }


def _describe_entry(entry: QueueEntry) -> dict[str, Any]:
    folder = RunFolder(entry.folder)
    spec = hide_in_job(read_spec(folder)) if entry.folder else {}
    return {
        "name": entry.job,
        "workspace": folder.workspace if entry.folder else "",
        "display_name": str(spec.get("display_name") or entry.job),
        "cores": entry.cores,
    }


def _describe_waiting(
    queue: JobQueue, entry: QueueEntry, entries: list[QueueEntry], position: int
) -> dict[str, Any]:
    blocked = queue.explain(entry, entries)
    gpus = f" and {format_count(entry.gpu_count, 'GPU')}" if entry.gpu_count else ""
    return {
        **_describe_entry(entry),
        "gpus": entry.gpu_count,
        "needs": f"{format_count(entry.cores, 'core')}{gpus}",
        "position": position,
        "sentence": blocked.reason if blocked else "it is about to start",
    }


def _summarize(running: list[dict[str, Any]], waiting: list[dict[str, Any]], cores: int) -> str:
    if not running and not waiting:
        return (
            f"nothing runs or waits here; {format_count(cores, 'core')} {'is' if cores == 1 else 'are'} free"
        )
    said = f"{format_count(len(running), 'job')} {('run', 'runs')[len(running) == 1]}"
    if not waiting:
        return f"{said}, none waits"
    said += f", {len(waiting)} {('wait', 'waits')[len(waiting) == 1]}; {waiting[0]['name']} is next: "
    said += str(waiting[0]["sentence"])
    ends = sorted(_list_ends(running))
    if ends:
        said += f"; a time limit ends {ends[0][1]} in {format_duration(ends[0][0])} at the latest"
    return said


def _list_ends(running: Iterable[dict[str, Any]]) -> Iterable[tuple[float, str]]:
    """Yield in how many seconds each job must have ended, where that is known."""
    from datetime import datetime

    for one in running:
        if one["ends_about"]:
            left_s = datetime.fromisoformat(one["ends_about"]).timestamp() - time.time()
            if left_s > 0:
                yield left_s, one["name"]
