"""
The history of an attempt for charts: the use of each rank or node over its time, in bins, from its agents' samples
(``contract/samples.py``), its steps, and marks for what happened to the job.

Samples count from the start of the ranks, so the difference of any two is exact, and of each bin only the last one is
read: a job of 512 ranks costs no more for a day than for an hour.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from array import array
from typing import TYPE_CHECKING, TypeAlias

from drumline.contract import events as e
from drumline.contract import samples
from drumline.contract.errors import UsageError
from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_number
from drumline.control.answer_cache import KeptAnswers, stamp_files
from drumline.control.facts.changes import text_of
from drumline.control.facts.ranks import cut_attempt, read_attempt
from drumline.control.facts.steps import (
    describe_progress,
    describe_without_hook,
    find_behind,
    list_phases,
    may_have_steps,
    read_steps,
    stands_out,
    summarize_steps,
)
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.logs.log_history import read_looks
from drumline.control.logs.merged import group_looks
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.contract.samples import RankUse, Sample
    from drumline.contract.steps import Window
    from drumline.control.facts.ranks import Attempt
    from drumline.control.facts.steps import StepHistory, TrainingFacts


MOST_BINS = 2000
_SHORTEST_BIN_S = 1.0
_MOST_ANSWER_BYTES = 1 << 20
_AGAIN = 3.0
"""Times the time that an answer took: for so long it is good enough while the job runs."""

_UNKNOWN = math.nan
_MOST_BYTES = 64 << 20
_BEGIN = re.compile(rb'\{"t":(\d{1,18}(?:\.\d{1,9})?),"a":(\d{1,9}),')
"""Of a line of samples: most lines need not be parsed."""

Values: TypeAlias = "array[float]"
"""Of 512 ranks there are very many: a quarter of what a list takes."""


class Measure(NamedTuple):
    """
    A value to draw. ``of_rank`` or ``of_node``: its value in a sample. ``is_total``: it only grows; its rate times
    ``factor`` is shown.
    """

    key: str
    title: str
    unit: str
    of_rank: Callable[[Sample, RankUse], float | None] | None = None
    of_node: Callable[[Sample], float | None] | None = None
    is_total: bool = False
    factor: float = 1.0
    is_of_steps: bool = False


def _gpu_busy(sample: Sample, use: RankUse) -> float | None:
    busy = [gpu.busy for gpu in sample.gpus if gpu.number in use.gpus and gpu.busy is not None]
    return sum(busy) / len(busy) if busy else None


def _count_disk(_sample: Sample, use: RankUse) -> float | None:
    return use.io and use.io[2] + use.io[3]


MEASURES = {
    one.key: one
    for one in (
        Measure("cpu", "CPU", "% of a core", lambda _, use: use.cpu_s, is_total=True, factor=100.0),
        Measure("memory", "Memory", "bytes", lambda _, use: use.memory),
        Measure("gpu", "GPU", "%", of_rank=_gpu_busy),
        Measure(
            "gpu_memory",
            "GPU memory",
            "bytes",
            of_rank=lambda _, use: sum(use.gpus.values()) if use.gpus else None,
        ),
        Measure("disk", "Disk", "bytes/s", of_rank=_count_disk, is_total=True),
        Measure("network", "Network", "bytes/s", of_node=lambda sample: sum(sample.network), is_total=True),
        Measure("log", "Log", "bytes/s", is_total=True),
        Measure("lateness", "Lateness", "ms", is_of_steps=True),
        Measure("step", "Step time", "ms", is_of_steps=True),
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

    def make_empty(self) -> Values:
        return array("d", [_UNKNOWN]) * self.bins


class MeasureFacts(NamedTuple):
    """A measure. ``most``: what it cannot be above, or what nearly all is below, where that is known."""

    key: str
    title: str
    unit: str
    most: float | None


class MeasuredRow(NamedTuple):
    """The values of a rank, or of a node."""

    rank: int | None
    node: int
    label: str
    values: Values


class SystemHistory(NamedTuple):
    """A measure over the time of an attempt, which is None before its ranks have started."""

    measures: list[MeasureFacts]
    measure: str
    attempt: int
    begin: str | None = None
    end: str | None = None
    bin_s: float | None = None
    rows: Sequence[MeasuredRow] = ()
    marks: Sequence[DatedMark] = ()


def read_system(
    name: str, measure: str = "cpu", points: int = 300, attempt: int | None = None
) -> SystemHistory:
    """
    Return a row for each rank, or node, with a value for each of at most ``points`` bins; nan where nothing is known.

    ``attempt``, counted from 0, None: the latest. ``marks``: what happened, to be drawn beside them. Raises
    NotFoundError, UsageError.
    """
    if measure not in MEASURES:
        raise UsageError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}")
    folder = folder_of(name)
    shown = read_attempt(folder, attempt)
    span = _measure_span(shown, max(1, min(points, MOST_BINS)))
    if span is None or not os.path.exists(folder.plan):
        known = [_describe_measure(one, []) for one in _list_measures(has_gpus=False, has_steps=False)]
        return SystemHistory(known, measure, shown.number)
    plan = read_plan(folder)
    paths = [samples.path_of(folder.path, node.node) for node in plan.nodes]
    if MEASURES[measure].is_of_steps:
        paths += [folder.clocks, *(folder.steps_path(shown.number, node.node) for node in plan.nodes)]
    return _answers.get_or_make(
        (folder.path, measure, points, shown.number),
        stamp_files([folder.events, *paths]) if shown.is_over else "",
        lambda: (_read(folder, plan, shown, span, MEASURES[measure]), None if shown.is_over else _AGAIN),
    )


_answers = KeptAnswers(_MOST_ANSWER_BYTES)
_marks = KeptAnswers(_MOST_ANSWER_BYTES)


def _measure_span(shown: Attempt, points: int) -> Span | None:
    """Return the time since the first rank was started; None before that."""
    started = [rank.started for rank in shown.outcome.ranks.values() if rank.started is not None]
    if not started:
        return None
    begin = min(started)
    end = max(shown.ended or time.time(), begin + _SHORTEST_BIN_S)
    return Span(begin, end, max(1, min(points, math.ceil((end - begin) / _SHORTEST_BIN_S))))


def _read(folder: RunFolder, plan: Plan, shown: Attempt, span: Span, measure: Measure) -> SystemHistory:
    rows: list[MeasuredRow] = []
    newest: list[Sample] = []
    ranks = {task.rank for task in plan.ranks}
    steps = _read_step_rows(folder, shown.number, measure, ranks, span) if measure.is_of_steps else None
    for node in plan.nodes:
        lines = _choose_lines(samples.path_of(folder.path, node.node), shown.number, span.bin_of)
        newest += _parse(lines[-1:])
        if measure.of_node:
            values = _fill(span, ((one.time, measure.of_node(one)) for one in _parse(lines)), measure)
            label = shown.outcome.hosts.get(node.node) or f"node {node.node}"
            rows.append(MeasuredRow(None, node.node, label, values))
        elif steps:
            nothing = span.make_empty()
            rows += [
                MeasuredRow(task.rank, node.node, task.label, steps.values.get(task.rank, nothing))
                for task in node.ranks
            ]
        elif measure.key == "log":
            logged = _read_log(folder, shown, node.node, span)
            rows += [MeasuredRow(task.rank, node.node, task.label, logged(task.rank)) for task in node.ranks]
        else:
            points = _list_points(measure.of_rank, lines) if measure.of_rank else {}
            rows += [
                MeasuredRow(task.rank, node.node, task.label, _fill(span, points.get(task.rank, ()), measure))
                for task in node.ranks
            ]
    has_steps = any(os.path.exists(folder.steps_path(shown.number, node.node)) for node in plan.nodes)
    known = _list_measures(has_gpus=any(one.gpus for one in newest), has_steps=has_steps)
    return SystemHistory(
        measures=[_describe_measure(one, newest, steps) for one in known],
        measure=measure.key,
        attempt=shown.number,
        begin=utc(span.begin),
        end=utc(span.end),
        bin_s=round(span.bin_s, 3),
        rows=sorted(rows, key=lambda row: (row.rank is not None, row.rank or 0, row.node)),
        marks=list_marks(folder, shown.number),
    )


def _list_measures(*, has_gpus: bool, has_steps: bool) -> list[Measure]:
    left_out = () if has_gpus else ("gpu", "gpu_memory")
    return [
        one for one in MEASURES.values() if one.key not in left_out and (has_steps or not one.is_of_steps)
    ]


def _describe_measure(
    measure: Measure, newest: Sequence[Sample], steps: StepRows | None = None
) -> MeasureFacts:
    most: float | None = None
    if measure.is_of_steps:
        most = steps.most if steps else None
    elif measure.key == "gpu":
        most = 100.0
    elif measure.key == "memory":
        most = max((one.memory[1] for one in newest), default=None)
    elif measure.key == "gpu_memory":
        most = max((gpu.total for one in newest for gpu in one.gpus if gpu.total), default=None)
    return MeasureFacts(measure.key, measure.title, measure.unit, most)


# samples


def _choose_lines(path: str, attempt: int, bin_of: Callable[[float], int]) -> list[tuple[float, bytes]]:
    """Return the last line of an attempt in each bin, with its time."""
    chosen: dict[int, tuple[float, bytes]] = {}
    for line in read_plain(path, _MOST_BYTES).split(b"\n"):
        begin = _BEGIN.match(line)
        if begin and int(begin[2]) == attempt:
            when = float(begin[1])
            chosen[bin_of(when)] = (when, line)
    return [one for _, one in sorted(chosen.items())]


def _parse(lines: Iterable[tuple[float, bytes]]) -> Iterator[Sample]:
    """Yield one at a time: all of a node with many ranks together are megabytes, which Python does not give back."""
    for _, line in lines:
        found = samples.from_line(line)
        if found is not None:
            yield found


def _list_points(
    of_rank: Callable[[Sample, RankUse], float | None], lines: list[tuple[float, bytes]]
) -> dict[int, list[tuple[float, float | None]]]:
    """Return what the samples of a node say of each of its ranks, as long as it lives."""
    points: dict[int, list[tuple[float, float | None]]] = {}
    ended: set[int] = set()
    for sample in _parse(lines):
        for use in sample.ranks:
            if use.rank not in ended:
                points.setdefault(use.rank, []).append((sample.time, of_rank(sample, use)))
            if use.has_ended:
                ended.add(use.rank)
    return points


def _read_log(folder: RunFolder, shown: Attempt, node: int, span: Span) -> Callable[[int], Values]:
    """Return what gives the bytes a second that a rank of a node wrote to its log, while it lived."""
    sizes: dict[int, int] = {}
    added: dict[int, dict[int, int]] = {}
    for grown in group_looks(read_looks(folder.log_times_path(shown.number, node)), span.bin_s):
        for rank, size in grown.by_rank.items():
            bins = added.setdefault(rank, {})
            place = span.bin_of(grown.time)
            bins[place] = bins.get(place, 0) + max(0, size - sizes.get(rank, 0))
            sizes[rank] = size

    def values_of(rank: int) -> Values:
        known = shown.outcome.ranks.get(rank)
        if known is None or known.started is None:
            return span.make_empty()
        bins = added.get(rank, {})
        lived = range(span.bin_of(known.started), max([span.bin_of(known.ended or span.end), *bins]) + 1)
        return array(
            "d",
            (
                round(bins.get(place, 0) / span.bin_s, 3) if place in lived else _UNKNOWN
                for place in range(span.bins)
            ),
        )

    return values_of


def _fill(span: Span, points: Iterable[tuple[float, float | None]], measure: Measure) -> Values:
    """Put values into their bins, and into those before them back to the value before: a sample is of all that time."""
    values = span.make_empty()
    before, first, known = span.begin, 0, 0.0
    begin, bin_s, most = span.begin, span.bin_s, span.bins - 1
    for when, value in points:
        # As bin_of does, 150,000 times.
        last = min(most, max(0, int((when - begin) / bin_s)))
        shown = value
        if measure.is_total and value is not None:
            took = max(when - before, 1e-3)
            shown = max(0.0, value - known) / took * measure.factor
            before, known = when, value
        if shown is not None:
            shown = round(shown, 3)
            values[last] = shown
            for place in range(first, last):
                values[place] = shown
        first = last + 1
    return values


# step time and lateness


_NEARLY_ALL = 0.98
"""Of the values; the first steps of a job take seconds, and would leave the weakest colour for all others."""

_LATE_OF_STEP = 0.1
"""Lateness of less than that part of a step has no strong colour."""


class StepRows(NamedTuple):
    """Milliseconds of each rank in bins, nan where nothing is known. ``most``: those of the strongest colour."""

    values: Mapping[int, Values]
    most: float | None


def _read_step_rows(
    folder: RunFolder, attempt: int, measure: Measure, ranks: Collection[int], span: Span
) -> StepRows:
    """
    Return what the steps of these ranks took, or by how much each came later to an all-reduce than the median of the
    others.
    """
    history = read_steps(folder.path, attempt)
    ours = history._replace(ranks={rank: found for rank, found in history.ranks.items() if rank in ranks})
    if measure.key == "step":
        rows = {rank: _fill_steps(windows, span) for rank, windows in ours.ranks.items()}
        return StepRows(rows, _find_most(rows.values(), 0.0))
    rows = _fill_lateness(ours, span)
    return StepRows(rows, _find_most(rows.values(), 1000 * _LATE_OF_STEP * ours.find_step_s()))


def _fill_steps(windows: Iterable[Window], span: Span) -> Values:
    """Fill the bins of a rank: a window is of all the time since the one before."""
    values = span.make_empty()
    first: int | None = None
    for window in windows:
        spread = window.seconds.get("step")
        if spread is not None:
            last = span.bin_of(window.time)
            begin = span.bin_of(window.time - window.made * spread.median) if first is None else first
            for place in range(min(begin, last), last + 1):
                values[place] = round(1000 * spread.median, 3)
            first = last + 1
    return values


def _fill_lateness(history: StepHistory, span: Span) -> dict[int, Values]:
    """Fill the bins of each rank with the median of the all-reduces in them."""
    found: dict[tuple[int, int], list[float]] = {}
    for times in history.list_entries().values():
        place = span.bin_of(min(times.values()))
        for rank, late_s in find_behind(times).items():
            found.setdefault((rank, place), []).append(late_s)
    rows = {rank: span.make_empty() for rank in history.ranks}
    for (rank, place), late in found.items():
        rows[rank][place] = round(max(0.0, 1000 * statistics.median(late)), 3)
    return rows


def _find_most(rows: Iterable[Iterable[float]], least: float) -> float | None:
    """Return a value that nearly all are below; None where there are none."""
    known = sorted(value for values in rows for value in values if not math.isnan(value))
    return max(least, known[int(_NEARLY_ALL * (len(known) - 1))]) if known else None


# the steps of an attempt, for a page


_CAUSES = {
    "input": "it waits {} longer for its input than the others",
    "forward": "its forward takes {} longer than that of the others",
    "backward": "its backward takes {} longer than that of the others",
    "other": "it spends {} more between steps than the others",
}


class StepPhase(NamedTuple):
    key: str
    title: str
    share: float
    seconds: float


class AttemptSteps(NamedTuple):
    """The steps of the last minute of an attempt: as ``show -o json`` has them, and the same in words."""

    attempt: int
    steps: TrainingFacts | None
    progress: str
    counted: int
    phases: list[StepPhase]
    sentence: str


def describe_attempt_steps(name: str, attempt: int | None = None) -> AttemptSteps:
    """Describe the steps of an attempt, counted from 0; None: of the latest. Raises NotFoundError, UsageError."""
    folder = folder_of(name)
    shown = read_attempt(folder, attempt)
    is_command = shown.outcome.kind == "command"
    history = steps = None
    if is_command and may_have_steps(folder):
        history = read_steps(folder.path, shown.number, is_recent=True)
        steps = summarize_steps(folder, history, is_first=shown.number == 0, is_over=shown.is_over)
    counted, sentence = 0, ""
    if history and steps:
        recent = history.keep_recent()
        counted = max(sum(window.made for window in windows) for windows in recent.ranks.values())
        sentence = _explain_latest(steps)
    elif is_command and shown.is_latest:
        steps = describe_without_hook(folder, shown.number)
    step_s = (steps and steps.step_s) or 0.0
    phases = [
        StepPhase(key, title, share, round(share * step_s, 6))
        for key, title, share in (list_phases(steps) if steps else ())
    ]
    progress = describe_progress(steps, is_over=shown.is_over) if steps else ""
    return AttemptSteps(shown.number, steps, progress, counted, phases, sentence)


def _explain_latest(steps: TrainingFacts) -> str:
    """Say which rank the others wait for, and what takes it longer; empty where that cannot be told."""
    late = steps.latest
    if late is None:
        return ""
    if not stands_out(steps):
        return "no rank holds the others up"
    said = f"the others wait for rank {late.rank}: it is the latest in {100 * late.share:.0f} % of steps, by "
    said += f"{format_number(late.late_ms)} ms"
    if late.phase is None:
        return said
    return f"{said}; {_CAUSES[late.phase].format(f'{format_number(late.more_ms)} ms')}"


# marks


class Mark(NamedTuple):
    """An event that explains what values over time show, to be drawn beside them. ``at``: seconds since 1970."""

    at: float
    kind: str
    text: str


class DatedMark(NamedTuple):
    """A mark as programs read it."""

    time: str | None
    kind: str
    text: str


_MOST_FAILED = 3
"""Of an attempt: a failure ends all other ranks, and the marks of 512 would hide what else happened."""

_MOST_MARKS = 1000
_KINDS: dict[type[e.Event], str] = {
    e.DrillBegan: "drill",
    e.DrillEnded: "drill_ended",
    e.AttemptEnded: "attempt",
    e.Preempted: "preempted",
}
"""Of events whose text is that of the list of events."""

_SHOWN = (
    *_KINDS,
    *(e.RankExited, e.NodeLost, e.JobHung, e.JobWentOn, e.CancelRequested, e.JobStopping, e.JobRunning),
)


class JobMarks(NamedTuple):
    marks: list[DatedMark]


def describe_marks(name: str) -> JobMarks:
    """Describe what happened in all attempts of a job, and who asked for it. Raises NotFoundError."""
    return JobMarks(list_marks(folder_of(name)))


def list_marks(folder: RunFolder, attempt: int | None = None) -> list[DatedMark]:
    """Return the marks of an attempt of a job; None: of all."""
    return [DatedMark(utc(mark.at), mark.kind, mark.text) for mark in read_marks(folder, attempt)]


def read_marks(folder: RunFolder, attempt: int | None = None) -> list[Mark]:
    """Return the marks of an attempt of a job; None: of all. Each chart of a page asks for them."""

    def make() -> tuple[list[Mark], None]:
        events = folder.read_events(*_SHOWN)
        return _choose(events if attempt is None else cut_attempt(events, attempt)), None

    return _marks.get_or_make((folder.path, attempt), stamp_files([folder.events]), make)


def _choose(events: Iterable[e.Event]) -> list[Mark]:
    marks: list[Mark] = []
    failed = 0
    for event in events:
        mark = _explain(event)
        if isinstance(event, e.AttemptEnded):
            failed = 0
        if mark is None or len(marks) >= _MOST_MARKS:
            continue
        failed += mark.kind == "failed"
        if mark.kind != "failed" or failed <= _MOST_FAILED:
            marks.append(mark)
    return marks


def _explain(event: e.Event) -> Mark | None:
    if type(event) in _KINDS:
        return Mark(event.time, _KINDS[type(event)], text_of(event))
    if isinstance(event, e.RankExited) and event.code != 0:
        how = f"ended by signal {event.signal}" if event.signal else f"failed with exit code {event.code}"
        return Mark(event.time, "failed", f"rank {event.rank} {event.error or how}")
    if isinstance(event, e.NodeLost):
        return Mark(event.time, "lost", f"node {event.node}: {event.reason}")
    if isinstance(event, e.JobHung):
        return Mark(event.time, "hang", event.reason)
    if isinstance(event, e.JobWentOn):
        return Mark(event.time, "went_on", "the job goes on")
    if isinstance(event, e.CancelRequested):
        return Mark(event.time, "cancel", f"canceled by {event.by}")
    if isinstance(event, e.JobStopping):
        return Mark(event.time, "stopping", event.reason or "the remaining ranks are stopped")
    return Mark(event.time, "running", "all ranks run") if isinstance(event, e.JobRunning) else None
