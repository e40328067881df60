"""
The facts of all jobs of a home, kept up to date in memory for a list that is asked for many times a minute, by pages.

Jobs that have ended come from the index. Jobs that run are looked at whenever their events change, and now and then
without that, for what has no event. Only a change of the folder of jobs makes it be listed again.
"""

from __future__ import annotations

import contextlib
import glob
import os
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DAMAGED, DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.record import ABSENT, NamedTuple
from drumline.control.facts.jobs import (
    STATUSES,
    JobFilters,
    JobOverview,
    JobRow,
    KnownJobs,
    describe_row,
    duration_of,
)
from drumline.control.jobs import job_folders
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import folder_of, is_own
from drumline.control.machine.queue_view import describe_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


_FRESH_S = 0.2
"""For so long what was found is taken for the present."""

_LIMIT_S = 0.5
"""Of one look; jobs that it had no time for are next time's."""

_ENOUGH_S = 0.15
"""After which a look at jobs that the index knows is over: a page waits for it."""

_PATIENCE_S = 1.0
"""For how long one waits for the look of another thread, before it takes what is known."""

_LISTED_S = 10.0
_NEW_S = 3.0
"""A folder that has changed is listed until it has been quiet for so long: a job begins after its folder is made."""

_UNCHANGED_S = 5.0
_MOST_LOOKS = 50
_CHUNK = 200
"""Facts that are read from the index at once, so that there are never all of them twice."""

_MOST_STAMPS = 500
_SIZES = 1 << 48
"""More than any file has bytes."""

_MOST_GONE = 1000


class _Entry:
    """A job of a table, small as there may be ten thousand. ``looked`` is of jobs that run; others share a number."""

    __slots__ = ("job", "looked", "stamp", "version")

    def __init__(self, job: JobOverview, stamp: int, version: int) -> None:
        self.version = version
        self.looked = 0.0
        self.see(job, stamp)

    def see(self, job: JobOverview, stamp: int) -> None:
        self.job = job
        self.stamp = stamp
        if not job.is_final:
            self.looked = time.monotonic()


class Changes(NamedTuple):
    """Since a version: jobs that are new or different, and the names of those that are gone."""

    version: int
    jobs: list[JobOverview]
    gone: list[str]


class JobTable:
    """The jobs of one home: the current one when the table is made, and whenever it is asked. For several threads."""

    def __init__(self) -> None:
        self._home = home()
        self._jobs = os.path.join(self._home, "jobs")
        self._looking = threading.Lock()
        """Held by the thread that looks at files, which may take long."""
        self._lock = threading.Lock()
        """Held for a moment, by whoever reads or changes the entries."""
        self._entries: dict[str, _Entry] = {}
        """The one that changed last is the last."""
        self._running: set[str] = set()
        self._gone: deque[tuple[int, str]] = deque(maxlen=_MOST_GONE)
        self._version = 0
        self._waiting: deque[str] = deque()
        """Jobs that were not looked at yet."""
        self._round: deque[str] = deque()
        """Whose stamps are compared next."""
        self._looked = -_FRESH_S
        self._listed = -_LISTED_S
        self._changed = 0

    @property
    def version(self) -> int:
        return self._version

    @property
    def waiting_count(self) -> int:
        """Return how many jobs are there of which nothing is known yet."""
        return len(self._waiting)

    def refresh(self, *, now: bool = False) -> None:
        """Look at what may have changed. ``now``: even if that was done a moment ago. Raises DrumlineError, OSError."""
        if not self._looking.acquire(timeout=_PATIENCE_S):
            return
        try:
            if now or time.monotonic() - self._looked >= _FRESH_S:
                self._look()
                self._looked = time.monotonic()
        finally:
            self._looking.release()

    def touch(self, names: Iterable[str]) -> None:
        """Look at these first: something was done to them."""
        self._round.extendleft(names)
        self.refresh(now=True)

    def overviews(self) -> list[JobOverview]:
        """Return the facts of all jobs, in no order."""
        with self._lock:
            return [entry.job for entry in self._entries.values()]

    def find(self, name: str) -> JobOverview | None:
        entry = self._find_entry(name)
        return entry.job if entry else None

    def changes_since(self, version: int) -> Changes:
        with self._lock:
            found = []
            for entry in reversed(self._entries.values()):
                if entry.version <= version:
                    break
                found.append(entry.job)
            gone = [name for when, name in self._gone if when > version and name not in self._entries]
            return Changes(self._version, found[::-1], gone)

    def add_metrics(self, jobs: Iterable[JobOverview]) -> None:
        """Keep the metrics of jobs that are still as they were."""
        with self._lock:
            for job in jobs:
                entry = self._entries.get(job.name)
                if entry is None or _without_metric(entry.job) != _without_metric(job):
                    continue
                is_other = entry.job.metric != job.metric
                entry.job = job
                if is_other:
                    self._move_to_end(job.name, entry)

    # by the thread that looks

    def _look(self) -> None:
        began = time.monotonic()
        self._list()
        suspects = list(self._find_suspects())
        for at in range(0, len(suspects), _CHUNK):
            self._look_at(suspects[at : at + _CHUNK], None)
        is_enough = False
        while self._waiting and not is_enough:
            names = [self._waiting.popleft() for _ in range(min(_CHUNK, len(self._waiting)))]
            self._waiting.extendleft(reversed(self._look_at(names, began + _LIMIT_S)))
            is_enough = time.monotonic() - began > _ENOUGH_S

    def _list(self) -> None:
        """Find jobs that have come or gone."""
        changed = _stamp(self._jobs)
        now = time.monotonic()
        is_quiet = time.time_ns() - changed // _SIZES > _NEW_S * 1e9
        if changed == self._changed and is_quiet and now - self._listed < _LISTED_S:
            return
        self._listed, self._changed = now, changed
        names = job_folders.names(archived=None)
        there = set(names)
        with self._lock:
            known = set(self._entries)
        for name in known - there:
            self._remove(name)
        queued = set(self._waiting)
        self._waiting = deque(name for name in self._waiting if name in there)
        self._waiting.extend(name for name in names if name not in known and name not in queued)

    def _find_suspects(self) -> Iterator[str]:
        """Yield jobs that run and may have changed, and of all others those whose turn it is, if they have."""
        now = time.monotonic()
        looks = _MOST_LOOKS
        for name in list(self._running):
            entry = self._find_entry(name)
            if entry is None or self._stamp_of(name) != entry.stamp:
                yield name
            elif now - entry.looked > _UNCHANGED_S and looks > 0:
                looks -= 1
                yield name
        if not self._round:
            with self._lock:
                self._round.extend(self._entries)
        for _ in range(min(_MOST_STAMPS, len(self._round))):
            name = self._round.popleft()
            one = self._find_entry(name)
            if one is not None and one.job.is_final and self._stamp_of(name) != one.stamp:
                yield name

    def _look_at(self, names: list[str], deadline: float | None) -> list[str]:
        """Look at jobs, and return those for which there was no time."""
        known = KnownJobs()
        known.load(names)
        for index, name in enumerate(names):
            if deadline is not None and index and time.monotonic() > deadline:
                known.keep()
                return names[index:]
            stamp = self._stamp_of(name)
            try:
                if is_own(RunFolder.for_job(name, self._home)):
                    self._put(known.overview(name), stamp)
                else:
                    self._remove(name)
            except NotFoundError:
                self._remove(name)
            except (DrumlineError, OSError):
                continue  # As on a file server that does not answer: next time.
            except DAMAGED:
                # A job can write to its own folder, and must not hide the others by that.
                self._put(_make_unreadable(name), stamp)
        known.keep()
        return []

    def _put(self, job: JobOverview, stamp: int) -> None:
        with self._lock:
            (self._running.discard if job.is_final else self._running.add)(job.name)
            entry = self._entries.get(job.name)
            if entry is None:
                entry = _Entry(job, stamp, 0)
            else:
                known = entry.job
                is_same = _without_metric(known) == _without_metric(job)
                # Its metric is read for those who see it, and stays until then.
                other = job if job.has_metric else job._replace(metric=known.metric)
                entry.see(known if is_same else other, stamp)
                if is_same:
                    return
            self._move_to_end(job.name, entry)

    def _find_entry(self, name: str) -> _Entry | None:
        # One that is being moved is not there for a moment.
        with self._lock:
            return self._entries.get(name)

    def _move_to_end(self, name: str, entry: _Entry) -> None:
        self._version += 1
        entry.version = self._version
        self._entries.pop(name, None)
        self._entries[name] = entry

    def _remove(self, name: str) -> None:
        with self._lock:
            self._running.discard(name)
            if self._entries.pop(name, None) is not None:
                self._version += 1
                self._gone.append((self._version, name))

    def _stamp_of(self, name: str) -> int:
        return _stamp(f"{self._jobs}/{name}/events.jsonl")


def _make_unreadable(name: str) -> JobOverview:
    """Return the facts of a job whose files are damaged."""
    return JobOverview(
        name=name,
        kind="command",
        status=status.NOT_RESPONDING,
        reason="its files are damaged and cannot be read",
        created=None,
        started=None,
        ended=None,
        experiment="Default",
        compute="local",
        parent="",
        tags={},
        size="-",
        archived=False,
    )


def _without_metric(job: JobOverview) -> JobOverview:
    return job._replace(metric=None, has_metric=False)


def _stamp(path: str) -> int:
    """Return what changes with a file or folder, one number of its time and size; zero for one that is gone."""
    with contextlib.suppress(OSError):
        known = os.stat(path)
        return known.st_mtime_ns * _SIZES + known.st_size
    return 0


# pages of the list


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


def count_all(table: JobTable) -> dict[str, dict[str, int]]:
    """Return figures of the jobs of a list and of this machine's queue, by state; without archived jobs."""
    table.refresh()
    jobs = [job for job in table.overviews() if not job.archived]
    counts = Counter(job.status for job in jobs)
    running = 0
    for job in jobs:
        if job.kind == "command" and job.status == status.RUNNING:
            with contextlib.suppress(DrumlineError, OSError):
                ranks = read_outcome(folder_of(job.name)).ranks.values()
                running += sum(rank.state == "running" for rank in ranks)
    queue = describe_queue()
    return {
        "jobs": {one: counts[one] for one in STATUSES},
        "ranks": {"running": running},
        "restarts": {"": sum(job.attempt for job in jobs)},
        "queue_jobs": {"running": len(queue.running), "waiting": len(queue.waiting)},
        "queue_free": queue.free,
    }


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
    for count, verbs in ((running, ("run", "runs")), (waiting, ("wait", "waits"))):
        if count:
            noun = "" if parts else ("jobs ", "job ")[count == 1]
            parts.append(f"{count:,} {noun}{verbs[count == 1]}")
    if not parts:
        parts.append("nothing runs")
    failed = f" ({counts[status.FAILED]:,} failed)" if counts[status.FAILED] else ""
    return ", ".join(parts) + (f"; {ended:,} ended{failed}" if ended else "")


class RowFigures:
    """The metrics of a table's jobs, and small curves of them. Used by several threads; keeps the latest few."""

    def __init__(self, table: JobTable) -> None:
        self.table = table
        self._sparks: dict[tuple[str, float | None], list[float | None]] = {}
        self._read: dict[str, float] = {}

    def describe(self, jobs: Sequence[JobOverview], *, sparks: bool = False) -> list[JobRow]:
        """Return the rows of jobs with as many metrics as can be read in time."""
        deadline = time.monotonic() + _FIGURES_S
        known = KnownJobs()
        known.load([job.name for job in jobs if not job.has_metric])
        measured = [self._add_metric(known, job, deadline) for job in jobs]
        known.keep()
        self.table.add_metrics(job for job, before in zip(measured, jobs, strict=True) if job is not before)
        return [
            describe_row(job)._replace(spark=self._find_spark(job, deadline) if sparks else ABSENT)
            for job in measured
        ]

    def _add_metric(self, known: KnownJobs, job: JobOverview, deadline: float) -> JobOverview:
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
            if len(self._sparks) > _MOST_SPARKS:
                self._sparks.clear()
            kept = self._sparks[key] = _read_spark(job.name, job.metric[0])
        return kept or None


def _read_spark(name: str, metric: str) -> list[float | None]:
    from drumline.control.facts import metrics

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
