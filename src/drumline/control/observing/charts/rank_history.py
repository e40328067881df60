"""
The use of each rank or node over the time of an attempt, in bins, from its agents' samples (``contract/samples.py``).

Samples count from the start of the ranks, so the difference of any two is exact, and of each bin only the last one is
read: a job of 512 ranks costs no more for a day than for an hour.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import samples
from drumline.contract.errors import UsageError
from drumline.contract.plan import Plan
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import folder_of
from drumline.control.logs.lines.growth import group_looks, read_looks
from drumline.control.observing.charts.kept_answers import KeptAnswers, stamp_files
from drumline.control.observing.ranks.rank_states import cut_attempt, read_attempt
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.samples import RankUse, Sample
    from drumline.control.observing.ranks.rank_states import Attempt

MOST_BINS = 2000
_SHORTEST_BIN_S = 1.0
_MOST_BYTES = 64 << 20
_MOST_ANSWER_BYTES = 4 << 20
_AGAIN = 3
"""Times the time that an answer took: for so long it is good enough while the job runs."""

_BEGIN = re.compile(rb'\{"t":(\d+(?:\.\d+)?),"a":(\d+),')

Values = list[float | None]


class Measure(NamedTuple):
    """
    ``of_rank`` or ``of_node``: what a sample says. ``is_total``: it only grows; its rate times ``factor`` is shown.
    """

    key: str
    title: str
    unit: str
    of_rank: Callable[[Sample, RankUse], float | None] | None = None
    of_node: Callable[[Sample], float | None] | None = None
    is_total: bool = False
    factor: float = 1.0


def _gpu_busy(sample: Sample, use: RankUse) -> float | None:
    busy = [gpu.busy for gpu in sample.gpus if gpu.number in use.gpus and gpu.busy is not None]
    return sum(busy) / len(busy) if busy else None


MEASURES = {
    one.key: one
    for one in (
        Measure("cpu", "CPU", "% of a core", lambda _, use: use.cpu_s, is_total=True, factor=100.0),
        Measure("memory", "Memory", "bytes", lambda _, use: use.memory),
        Measure("gpu", "GPU", "%", _gpu_busy),
        Measure(
            "gpu_memory", "GPU memory", "bytes", lambda _, use: sum(use.gpus.values()) if use.gpus else None
        ),
        Measure("disk", "Disk", "bytes/s", lambda _, use: use.io and use.io[2] + use.io[3], is_total=True),
        Measure("network", "Network", "bytes/s", of_node=lambda sample: sum(sample.network), is_total=True),
        Measure("log", "Log", "bytes/s", is_total=True),
    )
}


class Span(NamedTuple):
    """The time of an attempt, in seconds since 1970, and its bins."""

    begin: float
    end: float
    bins: int

    @property
    def bin_s(self) -> float:
        return (self.end - self.begin) / self.bins

    def bin_of(self, when: float) -> int:
        return min(self.bins - 1, max(0, int((when - self.begin) / self.bin_s)))


def read_system(
    name: str, measure: str = "cpu", points: int = 300, attempt: int | None = None
) -> dict[str, Any]:
    """
    Return a row for each rank, or node, with a value for each of at most ``points`` bins; None where nothing is known.

    ``attempt``, counted from 1, None: the latest. ``marks``: what happened, to be drawn beside them. Raises
    NotFoundError, UsageError.
    """
    if measure not in MEASURES:
        raise UsageError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}")
    folder = folder_of(name)
    shown = read_attempt(folder, attempt)
    span = _measure_span(shown, max(1, min(points, MOST_BINS)))
    if span is None or not os.path.exists(folder.plan):
        known = [_describe_measure(one, []) for one in MEASURES.values() if not one.key.startswith("gpu")]
        empty: dict[str, Any] = {"begin": None, "end": None, "bin_s": None, "rows": [], "marks": []}
        return {"measures": known, "measure": measure, "attempt": shown.number, **empty}
    plan = Plan.read(folder.plan)
    key = (folder.path, measure, points, shown.number)
    paths = [samples.path_of(folder.path, node.node) for node in plan.nodes]
    stamp = stamp_files([folder.events, *paths]) if shown.is_over else ""
    kept: dict[str, Any] | None = _answers.get(key, stamp)
    if kept is not None:
        return kept
    began = time.monotonic()
    told = _read(folder, plan, shown, span, MEASURES[measure])
    _answers.put(key, stamp, told, None if shown.is_over else _AGAIN * (time.monotonic() - began))
    return told


_answers = KeptAnswers(_MOST_ANSWER_BYTES)


def _measure_span(shown: Attempt, points: int) -> Span | None:
    """Return the time since the first rank was started; None before that."""
    started = [rank.started for rank in shown.outcome.ranks.values() if rank.started is not None]
    if not started:
        return None
    begin = min(started)
    end = max(shown.ended or time.time(), begin + _SHORTEST_BIN_S)
    return Span(begin, end, max(1, min(points, math.ceil((end - begin) / _SHORTEST_BIN_S))))


def _read(folder: RunFolder, plan: Plan, shown: Attempt, span: Span, measure: Measure) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    newest: list[Sample] = []
    for node in plan.nodes:
        taken = _read_samples(samples.path_of(folder.path, node.node), shown.number - 1, span)
        newest += taken[-1:]
        if measure.of_node:
            values = _fill(span, [(one.time, measure.of_node(one)) for one in taken], measure)
            label = shown.outcome.hosts.get(node.node) or f"node {node.node}"
            rows.append({"rank": None, "node": node.node, "label": label, "values": values})
            continue
        logged = _read_log(folder, shown, node.node, span) if measure.key == "log" else None
        for task in node.ranks:
            values = (
                _fill(span, _of_rank(measure, taken, task.rank), measure)
                if logged is None
                else logged(task.rank)
            )
            rows.append({"rank": task.rank, "node": node.node, "label": task.label, "values": values})
    has_gpus = any(one.gpus for one in newest)
    known = [one for one in MEASURES.values() if has_gpus or not one.key.startswith("gpu")]
    return {
        "measures": [_describe_measure(one, newest) for one in known],
        "measure": measure.key,
        "attempt": shown.number,
        "begin": utc(span.begin),
        "end": utc(span.end),
        "bin_s": round(span.bin_s, 3),
        "rows": sorted(rows, key=lambda row: (row["rank"] is not None, row["rank"] or 0, row["node"])),
        "marks": [mark for event in _list_events(folder, shown) if (mark := _mark(event)) is not None],
    }


def _describe_measure(measure: Measure, newest: Sequence[Sample]) -> dict[str, Any]:
    """``most``: what it cannot be above, where that is known."""
    most: float | None = None
    if measure.key == "gpu":
        most = 100.0
    elif measure.key == "memory":
        most = max((one.memory[1] for one in newest), default=None)
    elif measure.key == "gpu_memory":
        most = max((gpu.total for one in newest for gpu in one.gpus if gpu.total), default=None)
    return {"key": measure.key, "title": measure.title, "unit": measure.unit, "most": most}


# samples


def _read_samples(path: str, attempt: int, span: Span) -> list[Sample]:
    """Return the last sample of each bin that has one."""
    chosen: dict[int, bytes] = {}
    for line in _read_file(path).split(b"\n"):
        begin = _BEGIN.match(line)
        if begin and int(begin[2]) == attempt:
            chosen[span.bin_of(float(begin[1]))] = line
    found = [samples.from_line(line) for _, line in sorted(chosen.items())]
    return [one for one in found if one is not None]


def _read_file(path: str) -> bytes:
    """Return the content of a plain file; empty without one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(_MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _of_rank(measure: Measure, taken: Iterable[Sample], rank: int) -> list[tuple[float, float | None]]:
    """Return what the samples say of a rank, as long as it lives."""
    assert measure.of_rank
    found: list[tuple[float, float | None]] = []
    for sample in taken:
        use = next((one for one in sample.ranks if one.rank == rank), None)
        if use is None:
            continue
        found.append((sample.time, measure.of_rank(sample, use)))
        if use.has_ended:
            break
    return found


def _read_log(folder: RunFolder, shown: Attempt, node: int, span: Span) -> Callable[[int], Values]:
    """Return what gives the bytes a second that a rank of a node wrote to its log, while it lived."""
    sizes: dict[int, int] = {}
    added: dict[int, dict[int, int]] = {}
    for grown in group_looks(read_looks(folder.log_times_path(shown.number - 1, node)), span.bin_s):
        for rank, size in grown.by_rank.items():
            bins = added.setdefault(rank, {})
            place = span.bin_of(grown.time)
            bins[place] = bins.get(place, 0) + max(0, size - sizes.get(rank, 0))
            sizes[rank] = size

    def values_of(rank: int) -> Values:
        known = shown.outcome.ranks.get(rank)
        if known is None or known.started is None:
            return [None] * span.bins
        bins = added.get(rank, {})
        lived = range(span.bin_of(known.started), max([span.bin_of(known.ended or span.end), *bins]) + 1)
        return [
            round(bins.get(place, 0) / span.bin_s, 3) if place in lived else None
            for place in range(span.bins)
        ]

    return values_of


def _fill(span: Span, points: Iterable[tuple[float, float | None]], measure: Measure) -> Values:
    """Put values into their bins, and into those before them back to the value before: a sample is of all that time."""
    values: Values = [None] * span.bins
    before, first, known = span.begin, 0, 0.0
    for when, value in points:
        last = span.bin_of(when)
        shown = value
        if measure.is_total and value is not None:
            took = max(when - before, 1e-3)
            shown = max(0.0, value - known) / took * measure.factor
            before, known = when, value
        if shown is not None:
            for place in range(min(first, last), last + 1):
                values[place] = round(shown, 3)
        first = last + 1
    return values


# events


def _list_events(folder: RunFolder, shown: Attempt) -> Iterable[e.Event]:
    return cut_attempt(folder.read_events(), shown.number - 1)


def _mark(event: e.Event) -> dict[str, Any] | None:
    """Return an event that explains what the values show; None for others."""
    found = _kind_of(event)
    return None if found is None else {"time": utc(event.time), "kind": found[0], "text": found[1]}


def _kind_of(event: e.Event) -> tuple[str, str] | None:
    if isinstance(event, e.RankExited) and event.code != 0:
        how = f"ended by signal {event.signal}" if event.signal else f"failed with exit code {event.code}"
        return "failed", f"rank {event.rank} {event.error or how}"
    if isinstance(event, e.NodeLost):
        return "lost", f"node {event.node}: {event.reason}"
    if isinstance(event, e.JobHung):
        return "hang", event.reason
    if isinstance(event, e.JobWentOn):
        return "went_on", "the job goes on"
    if isinstance(event, e.Preempted):
        return "preempted", f"preempted by {event.by}"
    if isinstance(event, e.CancelRequested):
        return "cancel", f"canceled by {event.by}"
    if isinstance(event, e.JobStopping):
        return "stopping", event.reason or "the remaining ranks are stopped"
    return ("running", "all ranks run") if isinstance(event, e.JobRunning) else None
