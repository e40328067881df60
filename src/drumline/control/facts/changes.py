"""News of a home: rows of the list of jobs; of chosen jobs events, each with one line about it, and logs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.drill_kinds import name_drill
from drumline.contract.errors import DAMAGED, DrumlineError
from drumline.contract.folder import open_plain
from drumline.contract.hiding import hide_in_job
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_duration, format_size
from drumline.control.facts.jobs import describe_row
from drumline.control.jobs.lookup import find_plan, folder_of
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.control.facts.job_table import RowFigures
    from drumline.control.facts.jobs import JobRow


_MOST_BYTES = 1 << 20
"""Of events that are read at once."""


class News(NamedTuple):
    """
    The news of one look. ``sizes``: bytes of each rank's log that has grown, by rank. ``has_samples``: whether system
    metrics have come.
    """

    events: list[dict[str, Any]]
    sizes: dict[str, int]
    has_samples: bool

    def __bool__(self) -> bool:
        return bool(self.events or self.sizes or self.has_samples)


class JobWatch:
    """
    Looks at one job again and again. ``offset``: the number of the last event that is known; None: that of now.

    Raises NotFoundError.
    """

    def __init__(self, name: str, offset: int | None = None) -> None:
        self._folder = folder_of(name)
        size = _size_of(self._folder.events)
        self.offset = size if offset is None or not 0 <= offset <= size else offset
        self._logs: dict[str, str] | None = None
        self._sizes: dict[str, int] = {}
        self._samples = _newest_in(self._samples_folder)
        self._look_at_logs()

    @property
    def _samples_folder(self) -> str:
        return os.path.join(self._folder.path, "system_metrics")

    def look(self) -> News:
        """Return what is new since the last look. Costs a few system calls where nothing is."""
        found: list[dict[str, Any]] = []
        if _size_of(self._folder.events) > self.offset:
            found, self.offset = read_events(self._folder, self.offset)
        samples = _newest_in(self._samples_folder)
        has_samples, self._samples = samples != self._samples, samples
        return News(found, self._look_at_logs(), has_samples)

    def _look_at_logs(self) -> dict[str, int]:
        if self._logs is None and (plan := find_plan(self._folder)):
            self._logs = {str(task.rank): os.path.join(self._folder.path, task.log) for task in plan.ranks}
        grown = {}
        for rank, path in (self._logs or {}).items():
            size = _size_of(path)
            if size != self._sizes.get(rank, 0):
                grown[rank] = self._sizes[rank] = size
        return grown


def read_events(folder: RunFolder, after: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events behind a place in the file, and the place behind the last of them."""
    try:
        with open_plain(folder.events) as file:
            file.seek(after)
            data = file.read(_MOST_BYTES)
    except OSError:
        return [], after
    found = list(_parse_events(data, after))
    whole = data.rfind(b"\n") + 1
    # A line longer than all that is read at once is no event that could be shown.
    return found, after + (whole or (len(data) if len(data) == _MOST_BYTES else 0))


def _parse_events(data: bytes, begin: int) -> Iterator[dict[str, Any]]:
    at = 0
    while (end := data.find(b"\n", at) + 1) > 0:
        event = e.from_line(data[at:end])
        at = end
        if event is not None:
            with contextlib.suppress(TypeError, ValueError, OverflowError, AttributeError):
                yield hide_in_job(describe_event(begin + end, event))


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _newest_in(place: str) -> int:
    """Return what changes when a file in a small folder is written to."""
    newest = 0
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime_ns)
    return newest


# all jobs of a home


_MOST_ROWS = 200
"""That are worth sending one by one; after more, the list is asked for again."""

_METRICS_S = 2.0
_MOST_RUNNING = 50
ROW, GONE, RESET, EVENT, LOG, SYSTEM = "row", "gone", "reset", "event", "log", "system"


class Message(NamedTuple):
    """
    ``job``: empty for what all may want to know. ``mark``: the version of the list after a row; the number of an event.
    """

    kind: str
    data: Mapping[str, Any] | JobRow
    job: str = ""
    mark: int = 0


class Feed:
    """The news of one home, for many viewers. Used by one thread at a time, with the home's workspace chosen."""

    def __init__(self, figures: RowFigures) -> None:
        self._table = table = figures.table
        self._figures = figures
        self._watches: dict[str, JobWatch] = {}
        self._measured = time.monotonic()
        with contextlib.suppress(DrumlineError, OSError):
            table.refresh()
        self.version = table.version
        """Of the list, as of the last look."""

    def look(self, watched: Iterable[str]) -> list[Message]:
        """Return what is new since the last look; of the jobs ``watched`` more than their rows."""
        found = []
        with contextlib.suppress(DrumlineError, OSError):
            self._table.refresh()
            self._measure()
            found += self.list_rows(self.version)
            self.version = self._table.version
        names = set(watched)
        for name in self._watches.keys() - names:
            del self._watches[name]
        for name in names:
            with contextlib.suppress(DrumlineError, OSError, *DAMAGED):
                found += _list_news(name, self._find_watch(name))
        return found

    def watch(self, name: str, after: int | None = None) -> tuple[list[Message], int]:
        """
        Begin to watch a job. Return the events behind ``after``, and the number of the last one that a look does not
        bring any more. Raises NotFoundError.
        """
        seq = self._find_watch(name).offset
        if after is None or after >= seq:
            return [], seq
        events, _ = read_events(folder_of(name), after)
        return [_to_message(name, event) for event in events if event["seq"] <= seq], seq

    def _find_watch(self, name: str) -> JobWatch:
        if name not in self._watches:
            self._watches[name] = JobWatch(name)
        return self._watches[name]

    def list_rows(self, version: int) -> list[Message]:
        """Return the rows that are new since a version of the list."""
        changes = self._table.changes_since(version)
        if len(changes.jobs) > _MOST_ROWS:
            return [Message(RESET, {}, mark=changes.version)]
        rows = [Message(ROW, describe_row(job), mark=changes.version) for job in changes.jobs]
        return rows + [Message(GONE, {"name": name}, mark=changes.version) for name in changes.gone]

    def _measure(self) -> None:
        """Read the metrics of jobs that run, so that their rows show them."""
        if time.monotonic() - self._measured < _METRICS_S:
            return
        running = [job for job in self._table.overviews() if not job.is_final and job.started is not None]
        if running:
            self._figures.describe(running[:_MOST_RUNNING])
        self._measured = time.monotonic()


def _list_news(name: str, watch: JobWatch) -> list[Message]:
    news = watch.look()
    found = [_to_message(name, event) for event in news.events]
    if news.sizes:
        found.append(Message(LOG, {"job": name, "sizes": news.sizes}, name))
    if news.has_samples:
        found.append(Message(SYSTEM, {"job": name}, name))
    return found


def _to_message(name: str, event: dict[str, Any]) -> Message:
    return Message(EVENT, {"job": name, **event}, name, event["seq"])


# one line about each event


_MOST_TEXT = 4096
_MOST_KEYS = 100


def describe_event(seq: int, event: e.Event) -> dict[str, Any]:
    """Describe an event for programs, with its fields. ``seq`` grows from event to event."""
    fields = {name: value for name, value in event._asdict().items() if name != "time"}
    return {
        "seq": seq,
        "time": utc(event.time),
        "kind": type(event).__name__,
        "text": _cut(text_of(event)),
        **{
            name: _cut(value)
            for name, value in fields.items()
            if name not in ("kind", "who", "verdict", "evidence")
        },
    }


def _cut(value: Any) -> Any:
    """Return a value that is not too much for many viewers at once; a list that is longer is left out whole."""
    if isinstance(value, dict):
        value = {name: _cut(one) for name, one in value.items()} if len(value) <= _MOST_KEYS else {}
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return value[: _MOST_TEXT - 3] + "..."
    if isinstance(value, list) and len(json.dumps(value)) > _MOST_TEXT:
        return []
    return value


def text_of(event: e.Event) -> str:
    """
    Return the text of an event.

    >>> text_of(e.RankExited(0.0, 3, 1, 1, None))
    'rank 3 ended with exit code 1'
    """
    make: Callable[[Any], str] = _TEXTS[type(event)]
    return make(event)


def _end_of_rank(event: e.RankExited) -> str:
    if event.error:
        return f"rank {event.rank} could not be started: {event.error}"
    if event.signal:
        return f"rank {event.rank} was ended by signal {event.signal}"
    return f"rank {event.rank} ended" + (f" with exit code {event.code}" if event.code else "")


def _transfer(event: e.Transferred) -> str:
    took = f" in {format_duration(event.seconds)}" if event.seconds else ""
    note = f" ({event.note})" if event.note else ""
    return f"{event.name}: {format_size(event.size_bytes)}{took}{note}"


def _service(event: e.ServiceStarted) -> str:
    return f"{event.name}: {event.error or event.url or 'started'}"


def _registration(event: e.OutputRegistered) -> str:
    if event.error:
        return f"output {event.output} was not registered: {event.error}"
    return f"output {event.output} is azureml:{event.name}:{event.version}"


def _preemption(event: e.Preempted) -> str:
    what = "all nodes are" if event.node is None else f"node {event.node} is"
    return f"{what} being taken away by {event.by}"


def _end_of_drill(event: e.DrillEnded) -> str:
    how = "was refused" if event.refused else "ended"
    return _and(f"{name_drill(event.kind, event.node, event.rank)} {how}", event.reason)


def _checks(event: e.PreflightEnded) -> str:
    found = event.detail.get("findings")
    count = len(found) if isinstance(found, list) else 0
    told = {0: "nothing found", 1: "1 finding"}.get(count, f"{count} findings")
    return f"nodes checked in {format_duration(event.seconds)}: {told}"


def _and(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


_TEXTS: dict[type[e.Event], Callable[[Any], str]] = {
    e.JobSubmitted: lambda event: f"submitted by {event.user}",
    e.JobWaiting: lambda event: _and("waits", event.reason),
    e.JobPreparing: lambda event: "code and inputs are being put in place",
    e.TransferProgress: lambda event: f"{event.name}: {format_size(event.done_bytes)} so far",
    e.Transferred: _transfer,
    e.EnvironmentBuilding: lambda event: _and("the environment is being built", event.what),
    e.EnvironmentReady: lambda event: "the environment is ready" + (" (reused)" if event.reused else ""),
    e.ServiceStarted: _service,
    e.JobStarting: lambda event: "agents are being started",
    e.AgentJoined: lambda event: f"node {event.node} joined" + (f" ({event.host})" if event.host else ""),
    e.NetworkChosen: lambda event: _and("network chosen", event.reason),
    e.PreflightEnded: _checks,
    e.RankStarted: lambda event: f"rank {event.rank} started on node {event.node}",
    e.WarmAsked: lambda event: f"node {event.node} waits for a warm interpreter",
    e.WarmStart: lambda event: f"node {event.node} starts from a warm interpreter",
    e.WarmDeclined: lambda event: _and(f"node {event.node} starts cold", event.reason),
    e.FirstOutput: lambda event: f"rank {event.rank} wrote its first line",
    e.GroupFormed: lambda event: f"rank {event.rank} joined its process group",
    e.JobRunning: lambda event: "all ranks run",
    e.RankExited: _end_of_rank,
    e.NodeLost: lambda event: _and(f"node {event.node} was lost", event.reason),
    e.AgentSilent: lambda event: f"the agent of node {event.node} {event.reason or 'answers'}",
    e.CancelRequested: lambda event: f"cancel requested by {event.by}",
    e.Preempted: _preemption,
    e.JobStopping: lambda event: _and("the other ranks are being ended", event.reason),
    e.AttemptEnded: lambda event: _and(f"attempt {event.attempt} ended", event.reason),
    e.JobHung: lambda event: _and("no rank goes on", event.reason),
    e.JobWentOn: lambda event: "the ranks go on",
    e.JobWarned: lambda event: f"warning: {event.text}",
    e.DrillBegan: lambda event: f"{name_drill(event.kind, event.node, event.rank)} began, for {event.by}",
    e.DrillEnded: _end_of_drill,
    e.StepStarted: lambda event: f"{event.step} is job {event.job}",
    e.StepEnded: lambda event: _and(f"{event.step} is {event.status}", event.reason),
    e.ExperimentBegan: lambda event: f"experiment {event.experiment} began",
    e.ExperimentEnded: lambda event: _and(f"experiment {event.experiment} is {event.status}", event.reason),
    e.JobFinalizing: lambda event: "all ranks have ended",
    e.OutputRegistered: _registration,
    e.JobEnded: lambda event: _and(event.status, event.reason),
    e.JobEdited: lambda event: "changed: " + ", ".join(map(str, event.changes or ())),
    e.JobPruned: lambda event: "pruned: " + ", ".join(map(str, event.parts)),
    e.JobArchived: lambda event: "archived",
    e.JobRestored: lambda event: "restored from the archive",
}
