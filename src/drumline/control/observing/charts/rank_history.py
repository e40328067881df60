"""
The use of each rank or node over the time of an attempt, in bins, from its agents' samples (``contract/samples.py``).

Samples count from the start of the ranks, so the difference of any two is exact, and of each bin only the last one is
read: a job of 512 ranks costs no more for a day than for an hour.
"""

from __future__ import annotations

import math
import os
import threading
import time
from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

from drumline.contract import samples
from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.facts.ranks import cut_attempt, read_attempt
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.logs.lines.growth import group_looks, read_looks
from drumline.control.observing.charts.kept_answers import KeptAnswers, stamp_files
from drumline.control.observing.charts.marks import SHOWN, list_marks
from drumline.control.observing.charts.sample_lines import CPU_S, MEMORY, choose_lines, list_uses
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan, RankTask
    from drumline.contract.samples import RankUse, Sample
    from drumline.control.facts.ranks import Attempt
    from drumline.control.observing.charts.step_rows import StepRows

MOST_BINS = 2000
_SHORTEST_BIN_S = 1.0
_MOST_ANSWER_BYTES = 1 << 20
_AGAIN = 3
"""Times the time that an answer took: for so long it is good enough while the job runs."""

_UNKNOWN = math.nan

Values: TypeAlias = "array[float]"
"""Of 512 ranks there are very many: a quarter of what a list takes."""


class Measure(NamedTuple):
    """
    What is drawn. ``quick``, ``of_rank`` or ``of_node``: what a sample says, quick by the place of its value in what
    ``list_uses`` returns. ``is_total``: it only grows; its rate times ``factor`` is shown.
    """

    key: str
    title: str
    unit: str
    quick: int = 0
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
        Measure("cpu", "CPU", "% of a core", CPU_S, is_total=True, factor=100.0),
        Measure("memory", "Memory", "bytes", MEMORY),
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


def read_system(
    name: str, measure: str = "cpu", points: int = 300, attempt: int | None = None
) -> dict[str, Any]:
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
        empty: dict[str, Any] = {"begin": None, "end": None, "bin_s": None, "rows": [], "marks": []}
        return {"measures": known, "measure": measure, "attempt": shown.number, **empty}
    with _reading:
        return _answer(folder, shown, span, MEASURES[measure], points)


def _answer(folder: RunFolder, shown: Attempt, span: Span, measure: Measure, points: int) -> dict[str, Any]:
    """Return what was read before if it is still so."""
    plan = read_plan(folder)
    key = (folder.path, measure.key, points, shown.number)
    paths = [samples.path_of(folder.path, node.node) for node in plan.nodes]
    if measure.is_of_steps:
        paths += [folder.clocks, *(folder.steps_path(shown.number, node.node) for node in plan.nodes)]
    stamp = stamp_files([folder.events, *paths]) if shown.is_over else ""
    kept: dict[str, Any] | None = _answers.get(key, stamp)
    if kept is not None:
        return kept
    began = time.monotonic()
    told = _read(folder, plan, shown, span, measure)
    _answers.put(key, stamp, told, None if shown.is_over else _AGAIN * (time.monotonic() - began))
    return told


_reading = threading.Lock()
"""One at a time: several pages ask the same at once, and 512 ranks take memory."""

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
    steps = _read_steps(folder, plan, shown, span, measure) if measure.is_of_steps else None
    for node in plan.nodes:
        lines = choose_lines(samples.path_of(folder.path, node.node), shown.number, span.bin_of)
        newest += _parse(lines[-1:])
        if measure.of_node:
            values = _fill(span, ((one.time, measure.of_node(one)) for one in _parse(lines)), measure)
            label = shown.outcome.hosts.get(node.node) or f"node {node.node}"
            rows.append({"rank": None, "node": node.node, "label": label, "values": values})
        elif steps:
            nothing = array("d", [_UNKNOWN]) * span.bins
            rows += [_row(task, node.node, steps.values.get(task.rank, nothing)) for task in node.ranks]
        elif measure.key == "log":
            logged = _read_log(folder, shown, node.node, span)
            rows += [_row(task, node.node, logged(task.rank)) for task in node.ranks]
        else:
            points = _list_points(measure, lines)
            rows += [
                _row(task, node.node, _fill(span, points.get(task.rank, ()), measure)) for task in node.ranks
            ]
    has_steps = any(os.path.exists(folder.steps_path(shown.number, node.node)) for node in plan.nodes)
    known = _list_measures(has_gpus=any(one.gpus for one in newest), has_steps=has_steps)
    return {
        "measures": [_describe_measure(one, newest, steps) for one in known],
        "measure": measure.key,
        "attempt": shown.number,
        "begin": utc(span.begin),
        "end": utc(span.end),
        "bin_s": round(span.bin_s, 3),
        "rows": sorted(rows, key=lambda row: (row["rank"] is not None, row["rank"] or 0, row["node"])),
        "marks": list_marks(cut_attempt(folder.read_events(*SHOWN), shown.number)),
    }


def _row(task: RankTask, node: int, values: Values) -> dict[str, Any]:
    return {"rank": task.rank, "node": node, "label": task.label, "values": values}


def _list_measures(*, has_gpus: bool, has_steps: bool) -> list[Measure]:
    left_out = () if has_gpus else ("gpu", "gpu_memory")
    return [
        one for one in MEASURES.values() if one.key not in left_out and (has_steps or not one.is_of_steps)
    ]


def _describe_measure(
    measure: Measure, newest: Sequence[Sample], steps: StepRows | None = None
) -> dict[str, Any]:
    """Describe a measure. ``most``: what it cannot be above, or what nearly all is below, where that is known."""
    most: float | None = None
    if measure.is_of_steps:
        most = steps.most if steps else None
    elif measure.key == "gpu":
        most = 100.0
    elif measure.key == "memory":
        most = max((one.memory[1] for one in newest), default=None)
    elif measure.key == "gpu_memory":
        most = max((gpu.total for one in newest for gpu in one.gpus if gpu.total), default=None)
    return {"key": measure.key, "title": measure.title, "unit": measure.unit, "most": most}


def _read_steps(folder: RunFolder, plan: Plan, shown: Attempt, span: Span, measure: Measure) -> StepRows:
    from drumline.control.observing.charts.step_rows import read_step_rows

    ranks = {task.rank for task in plan.ranks}
    return read_step_rows(folder, shown.number, measure.key, ranks, span.bins, span.bin_of)


# samples


def _parse(lines: Iterable[tuple[float, bytes]]) -> Iterator[Sample]:
    """Yield one at a time: all of a node with many ranks together are megabytes, which Python does not give back."""
    for _, line in lines:
        found = samples.from_line(line)
        if found is not None:
            yield found


def _list_points(
    measure: Measure, lines: list[tuple[float, bytes]]
) -> dict[int, list[tuple[float, float | None]]]:
    """Return what the samples of a node say of each of its ranks, as long as it lives."""
    points: dict[int, list[tuple[float, float | None]]] = {}
    ended: set[int] = set()
    for when, rank, value, has_ended in _list_uses(measure, lines):
        if rank not in ended:
            points.setdefault(rank, []).append((when, value))
        if has_ended:
            ended.add(rank)
    return points


def _list_uses(
    measure: Measure, lines: list[tuple[float, bytes]]
) -> Iterable[tuple[float, int, float | None, bool]]:
    if measure.quick:
        for when, line in lines:
            for rank, value, has_ended in list_uses(line, measure.quick):
                yield when, rank, value, has_ended
    elif measure.of_rank:
        for sample in _parse(lines):
            for use in sample.ranks:
                yield sample.time, use.rank, measure.of_rank(sample, use), use.has_ended


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
            return array("d", [_UNKNOWN]) * span.bins
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
    values = array("d", [_UNKNOWN]) * span.bins
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
