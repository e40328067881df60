"""``drumline df``: what takes up the disk, and how much of it ``drumline prune`` could free."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError
from drumline.control.machine import data_cache, warm
from drumline.control.upkeep import disk, pruning, stored_jobs, trash

if TYPE_CHECKING:
    from drumline.control.upkeep.disk import Size
    from drumline.control.upkeep.pruning import PruneChoice
    from drumline.control.upkeep.stored_jobs import StoredJobs

_LOGS = ("user_logs", "system_logs", "system_metrics", "steps")
_CODE = ("snapshots", "snapshot-index", stored_jobs.UPLOADS)
_COUNTED = ("jobs", "mlruns", *_CODE, "environments", "cache", "workspaces")
_OFTEN = pruning.PruneFilter(0.0)
"""What could go: all that has ended and that nothing needs."""


Row = dict[str, Any]


def _row(type: str, count: int, in_use: int, size: int, reclaimable: int, *, is_memory: bool = False) -> Row:
    """Return a row. ``reclaimable``: bytes that could be freed now. ``is_memory``: they are memory, not disk space."""
    return {
        "type": type,
        "count": count,
        "in_use": in_use,
        "size_bytes": size,
        "reclaimable_bytes": reclaimable,
        "is_memory": is_memory,
    }


def describe_usage() -> list[Row]:
    """Return what the current workspace takes up, by type, with the cache that all workspaces share. Blocks."""
    jobs = stored_jobs.StoredJobs()
    choice = pruning.choose(_OFTEN, jobs)
    roots = disk.list_roots()
    return [
        *_describe_jobs(jobs, choice, roots),
        _describe_snapshots(choice, roots),
        *_describe_environments(choice, roots),
        _describe_cache(),
        _describe_rest(roots),
        _describe_warm(),
    ]


def _describe_jobs(jobs: StoredJobs, choice: PruneChoice, roots: list[str]) -> list[Row]:
    going = choice.names
    seen: set[tuple[int, int]] = set()
    size = logs = free = free_logs = disk.Size()
    for job in jobs.by_name.values():
        part = disk.measure_all([os.path.join(job.folder.path, name) for name in _LOGS], seen)
        run = trash.find_mlflow_run(job.folder)
        if run:
            part = part.plus(disk.measure(run, seen))
        whole = disk.measure(job.folder.path, seen, leave_out=_LOGS)
        logs, size = logs.plus(part), size.plus(whole)
        if job.name in going:
            free_logs, free = free_logs.plus(part), free.plus(whole)
    # Experiments, and runs that ranks began themselves.
    other = disk.measure_all([os.path.join(root, "mlruns") for root in roots], seen)
    count = len(jobs.by_name)
    return [
        _row("jobs", count, count - len(going), size.size, free.size),
        _row("logs and metrics", count, count - len(going), logs.size + other.size, free_logs.size),
    ]


def _describe_snapshots(choice: PruneChoice, roots: list[str]) -> Row:
    listed = [one for root in roots for one in stored_jobs.list_code(root)]
    size = disk.measure_all([os.path.join(root, name) for root in roots for name in _CODE])
    free = disk.measure_unshared([one.path for one in choice.snapshots])
    return _row("snapshots", len(listed), len(listed) - len(choice.snapshots), size.size, free.size)


def _describe_environments(choice: PruneChoice, roots: list[str]) -> list[Row]:
    listed = [one for root in roots for one in stored_jobs.list_environments(root)]
    size = disk.measure_all([os.path.join(root, "environments") for root in roots])
    free = disk.measure_unshared([one.path for one in choice.environments])
    going = {one.path for one in choice.environments}
    images = {one.image: (stored_jobs.measure_image(one), one.path in going) for one in listed if one.image}
    known = [(count, goes) for count, goes in images.values() if count]
    return [
        _row("environments", len(listed), len(listed) - len(going), size.size, free.size),
        _row(
            "images",
            len(known),
            sum(not goes for _, goes in known),
            sum(count for count, _ in known),
            sum(count for count, goes in known if goes),
        ),
    ]


def _describe_cache() -> Row:
    shown, would = data_cache.show(), data_cache.prune_unused(0.0, dry_run=True)
    size, left = shown.size_bytes + shown.unfinished_bytes, shown.files - would.files
    return _row("data cache", shown.files, left, size, would.size_bytes)


def _describe_rest(roots: list[str]) -> Row:
    """Describe assets and indexes, and what a killed removal left."""
    left = disk.measure_all([os.path.join(root, trash.TRASH) for root in roots])
    size: Size = disk.Size()
    for root in roots:
        size = size.plus(disk.measure(root, leave_out=_COUNTED))
    return _row("assets and indexes", size.files, size.files - left.files, size.size, left.size)


def _describe_warm() -> Row:
    try:
        held = warm.warm_interpreters()
    except NodeError:
        held = []
    memory = [(one.memory_bytes or 0, one.idle_s is not None) for one in held]
    return _row(
        "warm interpreters",
        len(held),
        sum(not is_idle for _, is_idle in memory),
        sum(size for size, _ in memory),
        sum(size for size, is_idle in memory if is_idle),
        is_memory=True,
    )
