"""The rows of a list of jobs, for programs to draw, and one sentence about all of them."""

from __future__ import annotations

import glob
import re
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DAMAGED, DrumlineError, UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.record import NamedTuple
from drumline.control.observing.job_list.filters import JobFilters
from drumline.control.observing.overview import KnownJobs
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drumline.control.observing.job_list.table import JobTable
    from drumline.control.observing.overview import JobOverview

_SPARK_POINTS = 40
_FEWEST_POINTS = 2
_MOST_SPARKS = 500
_FIGURES_S = 0.3
"""For how long a list waits for metrics; rows that it does not wait for are without, and have them next time."""

_RUNNING_AGAIN_S = 2.0

_WAITING = (status.NOT_STARTED, status.QUEUED)
_SORT_KEYS: Mapping[str, Callable[[JobOverview], Any]] = {
    "created": lambda job: job.created or 0.0,
    "started": lambda job: job.started or 0.0,
    "ended": lambda job: job.ended or 0.0,
    "duration": lambda job: duration_of(job) or 0.0,
    "name": lambda job: job.name,
    "display_name": lambda job: (job.display_name or job.name).lower(),
    "experiment": lambda job: job.experiment.lower(),
    "status": lambda job: job.status,
    "type": lambda job: job.kind,
    "compute": lambda job: job.compute,
}


class Page(NamedTuple):
    """
    One page of a list. ``total``: of the jobs with that parent, archived or not as was asked. ``matched``: of those
    that the filters let through. ``counts``: by status, without the filter by status.
    """

    sentence: str
    total: int
    matched: int
    counts: dict[str, int]
    jobs: list[JobOverview]


def find_page(
    table: JobTable, filters: JobFilters, sort: str = "-created", offset: int = 0, limit: int = 100
) -> Page:
    """Return a page of the list of jobs. Raises UsageError for an order that there is not."""
    key = sort.removeprefix("-")
    if key not in _SORT_KEYS:
        raise UsageError(f"sort: jobs have no order {key!r}", f"one of {', '.join(_SORT_KEYS)}, or -created")
    table.refresh()
    scope = JobFilters(archived=filters.archived, parent=filters.parent)
    listed = [job for job in table.overviews() if scope.match(job)]
    wider = filters._replace(statuses=frozenset())
    matched = listed if wider == scope else [job for job in listed if wider.match(job)]
    counts = Counter(job.status for job in matched)
    if filters.statuses:
        matched = [job for job in matched if job.status in filters.statuses]
    # Equal ones stay newest first. Two orders are made without ten thousand pairs.
    matched.sort(key=lambda job: job.name)
    matched.sort(key=_SORT_KEYS["created"], reverse=True)
    if sort != "-created":
        matched.sort(key=_SORT_KEYS[key], reverse=sort.startswith("-"))
    shown = matched[offset : offset + limit]
    return Page(summarize(listed), len(listed), len(matched), dict(counts), shown)


def summarize(jobs: Iterable[JobOverview]) -> str:
    """
    Say how many jobs there are, and what they do.

    >>> summarize([])
    'no jobs yet'
    """
    counts = Counter(job.status for job in jobs)
    ended = sum(counts[one] for one in status.TERMINAL)
    waiting = sum(counts[one] for one in _WAITING)
    running = sum(counts.values()) - ended - waiting
    if not counts:
        return "no jobs yet"
    parts: list[str] = []
    for count, verb in ((running, "run"), (waiting, "wait")):
        if count:
            noun = "" if parts else "job " if count == 1 else "jobs "
            parts.append(f"{count:,} {noun}{verb}{'s' if count == 1 else ''}")
    if not parts:
        parts.append("nothing runs")
    failed = f" ({counts[status.FAILED]:,} failed)" if counts[status.FAILED] else ""
    return ", ".join(parts) + (f"; {ended:,} ended{failed}" if ended else "")


def duration_of(job: JobOverview) -> float | None:
    return None if job.started is None else max(0.0, (job.ended or time.time()) - job.started)


def describe_row(job: JobOverview) -> dict[str, Any]:
    """Return a row. Times are RFC 3339 in UTC, durations seconds."""
    nodes, processes = _parse_size(job.size)
    took = duration_of(job)
    return {
        "name": job.name,
        "display_name": job.display_name or job.name,
        "experiment": job.experiment,
        "type": job.kind,
        "status": job.status,
        "sentence": job.hang or ("" if job.status == status.COMPLETED else job.reason),
        "hangs": bool(job.hang),
        "created": utc(job.created),
        "started": utc(job.started),
        "ended": utc(job.ended),
        "duration": None if took is None else round(took, 3),
        "size": job.size,
        "nodes": nodes,
        "processes": processes,
        "compute": job.compute,
        "attempt": job.attempt,
        "attempts": job.attempts,
        "metric": None if job.metric is None else {"name": job.metric[0], "value": job.metric[1]},
        "tags": job.tags,
        "parent": job.parent,
        "archived": job.archived,
    }


def _parse_size(size: str) -> tuple[int | None, int | None]:
    """Return the numbers of nodes and of ranks in all; None for a job without ranks of its own."""
    even, odd = re.fullmatch(r"(\d+)x(\d+)", size), re.fullmatch(r"(\d+) on (\d+)", size)
    if even:
        return int(even[1]), int(even[1]) * int(even[2])
    return (int(odd[2]), int(odd[1])) if odd else (None, None)


class RowFigures:
    """The metrics of the jobs on a page, and small curves of them. Used by several threads; keeps the latest few."""

    def __init__(self) -> None:
        self._sparks: OrderedDict[tuple[str, float | None], list[float | None]] = OrderedDict()
        self._read: dict[str, float] = {}

    def describe(
        self, table: JobTable, jobs: Sequence[JobOverview], *, sparks: bool = False
    ) -> list[dict[str, Any]]:
        """Return the rows of jobs with as many metrics as can be read in time."""
        deadline = time.monotonic() + _FIGURES_S
        known = KnownJobs()
        known.load([job.name for job in jobs if not job.has_metric])
        rows, found = [], []
        for job in jobs:
            full = self._add_metric(known, table, job, deadline)
            if full is not job:
                found.append(full)
            row = describe_row(full)
            if sparks:
                row["spark"] = self._find_spark(full, deadline)
            rows.append(row)
        known.keep()
        table.add_metrics(found)
        return rows

    def _add_metric(
        self, known: KnownJobs, table: JobTable, job: JobOverview, deadline: float
    ) -> JobOverview:
        if job.has_metric and job.is_final:
            return job
        now = time.monotonic()
        if now > deadline or (not job.is_final and now - self._read.get(job.name, -now) < _RUNNING_AGAIN_S):
            return job
        if len(self._read) > _MOST_SPARKS:
            self._read.clear()
        self._read[job.name] = now
        try:
            return known.overview(job.name, with_metric=True)
        except (DrumlineError, OSError, *DAMAGED):
            return job

    def _find_spark(self, job: JobOverview, deadline: float) -> list[float | None] | None:
        """Return the curve of the main metric; None if there was no time to read it, or the job has no curve."""
        if job.metric is None or job.kind != "command":
            return None
        key = (job.name, job.metric[1] if not job.is_final else None)
        kept = self._sparks.get(key)
        if kept is None and time.monotonic() < deadline:
            kept = self._sparks[key] = _read_spark(job.name, job.metric[0])
            while len(self._sparks) > _MOST_SPARKS:
                self._sparks.popitem(last=False)
        return kept or None


def _read_spark(name: str, metric: str) -> list[float | None]:
    from drumline.control.observing import metrics

    folder = RunFolder.for_job(name)
    try:
        # Runs below it, and the files of TensorBoard, take ten times as long to find.
        found = [metrics.read_own_series(folder, metric, _FIGURES_S)]
        if len(found[0]) < _FEWEST_POINTS:
            found = metrics.read_metrics(folder, [glob.escape(metric)], _FIGURES_S).series
    except (DrumlineError, OSError, *DAMAGED):
        return []
    one = next((one for one in found if len(one) >= _FEWEST_POINTS), None)
    return one.columns(min(_SPARK_POINTS, len(one))) if one else []
