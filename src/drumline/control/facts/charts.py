"""
Charts of jobs for pages: metrics as curves, down-sampled here, so that a page gets a thousand points of a metric with a
million; the steps of a pipeline as a graph, and the trials of a sweep with their parameters.

What was read of a job is kept while it is small; the answers are kept by the sizes and times of the files behind them.
"""

from __future__ import annotations

import math
import operator
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from drumline.contract.errors import UsageError
from drumline.contract.record import ABSENT, NamedTuple
from drumline.contract.words import format_count
from drumline.control.answer_cache import KeptAnswers, stamp_files
from drumline.control.facts.history import Mark, read_marks
from drumline.control.facts.job import JobFacts
from drumline.control.facts.metrics import FoundMetrics, MetricsReader, to_json_number
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import find_plan, folder_of
from drumline.control.jobs.recovery import recover_kind
from drumline.control.times import utc
from drumline.tracking import runs
from drumline.tracking.metrics import list_some_names, metric_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.record import Absent
    from drumline.control.facts.job import SweepGoal
    from drumline.tracking.metrics import Series


AXES = ("step", "time", "relative")
MOST_POINTS = 4000
_LIMIT_S = 5.0
_MOST_READERS = 16
_MOST_VALUES = 150_000
"""Of all jobs together that are kept in memory, at 24 bytes."""

_MOST_ANSWER_BYTES = 2 << 20
MOST_JOBS = 50
_AGAIN = 5.0
"""Times the time that an answer took: for so long it is good enough while the job runs."""


class LoggedMetric(NamedTuple):
    """A metric of a run; figures are absent where only names are asked for."""

    name: str
    source: str
    run: str
    points: int | Absent = ABSENT
    last: float | str | Absent | None = ABSENT
    lowest: float | Absent | None = ABSENT
    highest: float | Absent | None = ABSENT
    steps: tuple[int, int] | Absent = ABSENT
    is_cut: bool | Absent = ABSENT


class LoggedMetrics(NamedTuple):
    metrics: list[LoggedMetric]
    left_out: int
    notes: list[str]


def list_metrics(name: str, *, names_only: bool = False) -> LoggedMetrics:
    """
    Return what the job has logged: each metric of each run with the number of its values and its range of steps.

    ``names_only``: their names, sources and runs alone, for which no value need be read.
    """

    def list_found(_job: str, found: FoundMetrics, _began: float) -> LoggedMetrics:
        metrics = [
            LoggedMetric(series.name, series.source, series.run) if names_only else _measure(series)
            for series in found.series
            if names_only or len(series)
        ]
        return LoggedMetrics(metrics, found.left_out, list(found.notes))

    wanted = "names" if names_only else "list"
    return _answer(folder_of(name), (), wanted, list_found, names_only=names_only)


def _measure(series: Series) -> LoggedMetric:
    figures = series.figures()
    last = None if figures.last is None else to_json_number(figures.last.value)
    return LoggedMetric(
        *(series.name, series.source, series.run, len(series)),
        last,
        figures.lowest,
        figures.highest,
        figures.steps,
        series.is_cut,
    )


class PlacedMark(NamedTuple):
    x: float
    kind: str
    text: str


class Curve(NamedTuple):
    """A metric of one run, or the band of several, in bins. ``a_step``: how many values it has at each step."""

    job: str
    metric: str
    source: str
    run: str
    runs: int
    rank: None
    count: int  # type: ignore[assignment]
    a_step: int | None
    is_cut: bool
    x: list[float]
    min: list[float | None]
    max: list[float | None]
    mean: list[float | None]
    last: list[float | None]
    marks: list[PlacedMark]


class Curves(NamedTuple):
    x: str
    series: list[Curve]
    left_out: int
    notes: list[str]


def read_series(
    names: Sequence[str],
    patterns: Sequence[str] = (),
    *,
    points: int = 800,
    axis: str = "step",
    band: bool = False,
    with_marks: bool = False,
) -> Curves:
    """
    Return the metrics of jobs whose names match a shell pattern, or all, each in at most ``points`` bins.

    ``axis``: ``step``; ``time``, seconds since 1970; or ``relative``, seconds since the job's ranks were started.
    ``band``: a metric that several runs of a job log is one curve, from the lowest to the highest. ``with_marks``: what
    happened to the job, at the places of each curve. Raises NotFoundError, UsageError.
    """
    if axis not in AXES:
        raise UsageError(f"x must be one of {', '.join(AXES)}; got {axis!r}")
    if len(names) > MOST_JOBS:
        raise UsageError(f"{len(names)} jobs are too many", f"{MOST_JOBS} at most")
    points = max(1, min(points, MOST_POINTS))

    def draw(job: str, found: FoundMetrics, began: float) -> Curves:
        groups = _group((one for one in found.series if len(one)), band=band)
        marks = read_marks(folder_of(job)) if with_marks else []
        curves = [_draw(job, group, points, axis, began, marks) for group in groups]
        return Curves(axis, curves, found.left_out, list(found.notes))

    wanted = (points, axis, band, with_marks)
    told = [_answer(folder_of(name), tuple(patterns), wanted, draw) for name in dict.fromkeys(names)]
    return Curves(
        axis,
        [curve for one in told for curve in one.series],
        sum(one.left_out for one in told),
        list(dict.fromkeys(note for one in told for note in one.notes)),
    )


def _group(series: Iterable[Series], *, band: bool) -> list[list[Series]]:
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in series:
        groups.setdefault((one.name, "" if band else one.run), []).append(one)
    return list(groups.values())


def _draw(job: str, group: list[Series], points: int, axis: str, began: float, marks: list[Mark]) -> Curve:
    zero = began if axis == "relative" else 0.0
    binned = put_in_bins(*_join([_place(one, axis, zero) for one in group]), points)
    first, counted = group[0], axis == "step" and binned.place_count
    return Curve(
        *(job, first.name, first.source, first.run if len(group) == 1 else "", len(group)),
        rank=None,
        count=binned.value_count,
        a_step=round(binned.value_count / binned.place_count) if counted else None,
        is_cut=any(one.is_cut for one in group),
        x=binned.x,
        min=binned.least,
        max=binned.most,
        mean=binned.mean,
        last=binned.last,
        marks=_put_marks(first, axis, zero, marks),
    )


def _put_marks(one: Series, axis: str, zero: float, marks: list[Mark]) -> list[PlacedMark]:
    """Return the marks with their places on the axis of a curve; on that of steps, the last step before each."""
    steps, times, _ = one.arrays()
    placed = []
    for mark in marks:
        x = mark.at - zero
        if axis == "step":
            before = bisect_right(times, int(1000 * mark.at))
            if not before:
                continue
            x = steps[before - 1]
        placed.append(PlacedMark(x, mark.kind, mark.text))
    return placed


def _place(one: Series, axis: str, zero: float) -> tuple[Sequence[float], array[float]]:
    """Return the places of a metric's values on an axis, and the values."""
    steps, times, values = one.arrays()
    return (steps if axis == "step" else array("d", (when / 1000 - zero for when in times))), values


def _join(placed: list[tuple[Sequence[float], array[float]]]) -> tuple[Sequence[float], array[float]]:
    """Return the values of several runs as those of one; a single one, which may have millions, is not copied."""
    if len(placed) == 1:
        return placed[0]
    places, values = array("d"), array("d")
    for own_places, own_values in placed:
        places.extend(map(float, own_places))
        values.extend(own_values)
    return places, values


# what is kept

_Made = TypeVar("_Made")
_readers: OrderedDict[tuple[str, tuple[str, ...], bool], MetricsReader] = OrderedDict()
_counts: dict[tuple[str, tuple[str, ...], bool], int] = {}


def _answer(
    folder: RunFolder,
    patterns: tuple[str, ...],
    wanted: object,
    make: Callable[[str, FoundMetrics, float], _Made],
    *,
    names_only: bool = False,
) -> _Made:
    """Return what ``make`` makes of the job's metrics, or what it made of the same before."""
    outcome = read_outcome(folder)

    def look() -> tuple[_Made, float | None]:
        place = (folder.path, patterns, names_only)
        reader = _readers.pop(place, None) or MetricsReader(folder, patterns, names_only=names_only)
        found = reader.look(_LIMIT_S)
        made = make(folder.name, found, outcome.started or 0.0)
        _readers[place] = reader
        _counts[place] = sum(map(len, found.series))
        _drop_readers()
        is_cut = any(series.is_cut for series in found.series)
        return made, 1.0 if is_cut else None if outcome.is_final else _AGAIN

    stamp = _stamp(folder) if outcome.is_final else ""
    return _answers.get_or_make((folder.path, patterns, wanted), stamp, look)


def _stamp(folder: RunFolder) -> str:
    """Return what changes when more is logged to the files of a job that has ended."""
    plan = find_plan(folder)
    run_dir = runs.find_run(folder, plan).run_dir if plan else ""
    names = list_some_names(run_dir)[0] if run_dir else []
    return stamp_files([folder.events, *(metric_path(run_dir, name) for name in names)])


def _drop_readers() -> None:
    """Forget the readers that were not used for longest, until few are left, with few values."""
    left = _MOST_VALUES
    for count, place in enumerate(reversed(list(_readers))):
        left -= _counts[place]
        if left < 0 or count >= _MOST_READERS:
            del _readers[place], _counts[place]


_answers = KeptAnswers(_MOST_ANSWER_BYTES)


# bins


class Binned(NamedTuple):
    """
    Bins that have values, in ascending order of ``x``, where their last value is. A bin without a finite value has None
    for the lowest, the highest and the mean, and ``last`` is None where it is not finite.
    """

    value_count: int
    """Of all that there are."""

    place_count: int
    """Of different places that they have."""

    x: list[float]
    least: list[float | None]
    most: list[float | None]
    mean: list[float | None]
    last: list[float | None]


def put_in_bins(places: Sequence[float], values: array[float], most: int) -> Binned:
    """
    Put values at these places into at most ``most`` bins of equal width; each value its own where they are few.

    >>> found = put_in_bins(array("d", [0, 1, 2, 3]), array("d", [5, 1, 4, 2]), 2)
    >>> found.x, found.least, found.most, found.last
    ([1.0, 3.0], [1.0, 2.0], [5.0, 4.0], [1.0, 2.0])
    """
    places, values = _sort(places, values)
    place_count = sum(map(operator.ne, places, islice(places, 1, None))) + bool(places)
    found = Binned(len(values), place_count, [], [], [], [], [])
    begin = 0
    for end in _cut(places, most):
        if end > begin:
            _add(found, places[end - 1], values[begin:end].tolist())
        begin = end
    return found


def _sort(places: Sequence[float], values: array[float]) -> tuple[Sequence[float], array[float]]:
    """Return both in ascending order of the places; equal places stay in their order."""
    if all(map(operator.le, places, islice(places, 1, None))):
        return places, values
    order = sorted(range(len(places)), key=places.__getitem__)
    return array("d", map(places.__getitem__, order)), array("d", map(values.__getitem__, order))


def _cut(places: Sequence[float], most: int) -> list[int]:
    """Return where each bin ends."""
    count = len(places)
    if count <= most:
        # Values at one place are one bin.
        ends = [index for index in range(1, count) if places[index] != places[index - 1]]
        return [*ends, count]
    low, high = places[0], places[-1]
    if low == high:
        # All at one place, such as a program that logs no steps: by their order.
        return [count * number // most for number in range(1, most + 1)]
    ends = [bisect_left(places, low + (high - low) * number / most) for number in range(1, most)]
    return [*ends, count]


def _add(found: Binned, place: float, values: list[float]) -> None:
    total = math.fsum(values) if len(values) < 64 else sum(values)
    last = values[-1]
    if not math.isfinite(total):
        values = list(filter(math.isfinite, values))
        total = sum(values)
    found.x.append(float(place))
    found.least.append(min(values) if values else None)
    found.most.append(max(values) if values else None)
    found.mean.append(total / len(values) if values else None)
    found.last.append(last if math.isfinite(last) else None)


# the parts of a job


class GraphNode(NamedTuple):
    """A step of a pipeline."""

    name: str
    job: str | None
    status: str
    type: str
    sentence: str
    began: str | None
    ended: str | None
    seconds: float | None
    reused: bool


class JobGraph(NamedTuple):
    """The steps of a pipeline in their order; each edge goes from a step to one that needs it."""

    nodes: list[GraphNode]
    edges: list[tuple[str, str]]


def describe_graph(name: str) -> JobGraph:
    """Return the steps of a pipeline, and which needs which. Raises NotFoundError, UsageError."""
    folder, outcome = recover_kind(name, "pipeline", "it has no steps")
    planned = {
        str(step.get("name")): step for step in (folder.read_json(folder.graph) or {}).get("steps") or ()
    }
    nodes = [
        GraphNode(
            *(step.step, step.job, step.status),
            str((planned.get(step.step, {}).get("job") or {}).get("type") or "command"),
            step.reason,
            utc(step.started_at),
            utc(step.ended_at),
            *(step.seconds, step.reused),
        )
        for step in JobFacts(folder, outcome).steps
    ]
    known = {node.name for node in nodes}
    edges = [
        (need, step)
        for step, told in planned.items()
        for need in told.get("needs") or ()
        if {need, step} <= known
    ]
    return JobGraph(nodes, edges)


class Trial(NamedTuple):
    name: str
    job: str
    status: str
    parameters: Mapping[str, Any]
    metric: float | str | None
    rank: int | None
    duration: float | None
    stopped_early: bool
    sentence: str
    began: str | None
    ended: str | None


class SweepTrials(NamedTuple):
    """The trials of a sweep, the best first, and its parameters. ``most``: trials that there may be."""

    sentence: str
    goal: str
    metric: str
    parameters: list[dict[str, str]]
    trials: list[Trial]
    best: str | None
    most: int | None


def describe_trials(name: str) -> SweepTrials:
    """Return the trials of a sweep. Raises NotFoundError, UsageError."""
    folder, outcome = recover_kind(name, "sweep", "it has no trials")
    facts = JobFacts(folder, outcome)
    objective = facts.objective
    trials = [
        Trial(
            *(trial.trial, trial.trial, trial.status, trial.params, trial.metric, trial.rank, trial.seconds),
            *(trial.stopped_early, trial.reason, utc(trial.started_at), utc(trial.ended_at)),
        )
        for trial in facts.trials
    ]
    best = next((trial for trial in trials if trial.rank == 1), None)
    return SweepTrials(
        _summarize(objective, trials, best),
        objective.goal,
        objective.metric,
        _list_parameters(trials),
        trials,
        best and best.job,
        objective.most_trials,
    )


def _list_parameters(trials: Iterable[Trial]) -> list[dict[str, str]]:
    """Return each parameter with its kind: ``number`` if all of its values are, else ``choice``."""
    values: dict[str, list[Any]] = {}
    for trial in trials:
        for parameter, value in trial.parameters.items():
            values.setdefault(str(parameter), []).append(value)
    return [{"name": parameter, "kind": _kind_of(given)} for parameter, given in values.items()]


def _kind_of(values: Iterable[Any]) -> str:
    is_number = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values)
    return "number" if is_number else "choice"


def _summarize(objective: SweepGoal, trials: Sequence[Trial], best: Trial | None) -> str:
    counts = Counter(trial.status for trial in trials)
    most = f" of at most {objective.most_trials}" if objective.most_trials else ""
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    sentence = f"{format_count(len(trials), 'trial')}{most}: {listed}" if trials else "no trial yet"
    return sentence if best is None else f"{sentence}; the best has {objective.metric} {best.metric:.6g}"
