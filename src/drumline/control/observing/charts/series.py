"""
The metrics of jobs as curves: down-sampled here, so that a page gets a thousand points of a metric with a million.

What was read of a job is kept while it is small; the answers are kept by the sizes and times of the files behind them.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.plan import Plan
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import read_outcome
from drumline.control.observing.charts.bins import put_in_bins
from drumline.control.observing.charts.kept_answers import KeptAnswers, stamp_files
from drumline.control.observing.charts.marks import read_marks
from drumline.control.observing.metrics import MetricsReader, to_json_number
from drumline.tracking import runs
from drumline.tracking.metrics import list_some_names, metric_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.control.observing.metrics import FoundMetrics
    from drumline.tracking.series import Series

AXES = ("step", "time", "relative")
MOST_POINTS = 4000
_LIMIT_S = 5.0
_MOST_READERS = 16
_MOST_VALUES = 150_000
"""Of all jobs together that are kept in memory, at 24 bytes."""

_MOST_ANSWER_BYTES = 2 << 20
MOST_JOBS = 50
_AGAIN = 5
"""Times the time that an answer took: for so long it is good enough while the job runs."""


def list_metrics(name: str, *, names_only: bool = False) -> dict[str, Any]:
    """
    Return what the job has logged: each metric of each run with the number of its values and its range of steps.

    ``names_only``: their names, sources and runs alone, for which no value need be read.
    """
    if names_only:
        return _answer(folder_of(name), (), "names", _list_names, names_only=True)
    return _answer(folder_of(name), (), "list", _list)


def _list_names(_job: str, found: FoundMetrics, _began: float) -> dict[str, Any]:
    metrics = [{"name": one.name, "source": one.source, "run": one.run} for one in found.series]
    return {"metrics": metrics, "left_out": found.left_out, "notes": list(found.notes)}


def _list(_job: str, found: FoundMetrics, _began: float) -> dict[str, Any]:
    metrics = [_describe(one) for one in found.series if len(one)]
    return {"metrics": metrics, "left_out": found.left_out, "notes": list(found.notes)}


def _describe(one: Series) -> dict[str, Any]:
    figures = one.figures()
    return {
        "name": one.name,
        "source": one.source,
        "run": one.run,
        "points": len(one),
        "last": None if figures.last is None else to_json_number(figures.last.value),
        "lowest": figures.lowest,
        "highest": figures.highest,
        "steps": list(figures.steps),
        "is_cut": one.is_cut,
    }


def read_series(
    names: Sequence[str],
    patterns: Sequence[str] = (),
    *,
    points: int = 800,
    axis: str = "step",
    band: bool = False,
    with_marks: bool = False,
) -> dict[str, Any]:
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

    def draw(job: str, found: FoundMetrics, began: float) -> dict[str, Any]:
        groups = _group((one for one in found.series if len(one)), band=band)
        marks = read_marks(folder_of(job)) if with_marks else []
        curves = [_draw(job, group, points, axis, began, marks) for group in groups]
        return {"series": curves, "left_out": found.left_out, "notes": list(found.notes)}

    wanted = (points, axis, band, with_marks)
    told = [_answer(folder_of(name), tuple(patterns), wanted, draw) for name in dict.fromkeys(names)]
    return {
        "x": axis,
        "series": [curve for one in told for curve in one["series"]],
        "left_out": sum(one["left_out"] for one in told),
        "notes": list(dict.fromkeys(note for one in told for note in one["notes"])),
    }


def _group(series: Iterable[Series], *, band: bool) -> list[list[Series]]:
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in series:
        groups.setdefault((one.name, "" if band else one.run), []).append(one)
    return list(groups.values())


def _draw(
    job: str, group: list[Series], points: int, axis: str, began: float, marks: list[dict[str, Any]]
) -> dict[str, Any]:
    zero = began if axis == "relative" else 0.0
    binned = put_in_bins(*_join([_place(one, axis, zero) for one in group]), points)
    return {
        "job": job,
        "metric": group[0].name,
        "source": group[0].source,
        "run": group[0].run if len(group) == 1 else "",
        "runs": len(group),
        "rank": None,
        "count": binned.value_count,
        "a_step": round(binned.value_count / binned.place_count)
        if axis == "step" and binned.place_count
        else None,
        "is_cut": any(one.is_cut for one in group),
        "x": binned.x,
        "min": binned.least,
        "max": binned.most,
        "mean": binned.mean,
        "last": binned.last,
        "marks": _put_marks(group[0], axis, zero, marks),
    }


def _put_marks(one: Series, axis: str, zero: float, marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the marks with their places on the axis of a curve; on that of steps, the last step before each."""
    steps, times, _ = one.arrays()
    placed = []
    for mark in marks:
        x = mark["at"] - zero
        if axis == "step":
            before = bisect_right(times, int(1000 * mark["at"]))
            if not before:
                continue
            x = steps[before - 1]
        placed.append({"x": x, "kind": mark["kind"], "text": mark["text"]})
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

_readers: OrderedDict[tuple[str, tuple[str, ...], bool], MetricsReader] = OrderedDict()
_counts: dict[tuple[str, tuple[str, ...], bool], int] = {}
_reading = threading.Lock()
"""One at a time: a million values are in memory while they are read."""


def _answer(
    folder: RunFolder,
    patterns: tuple[str, ...],
    wanted: object,
    make: Callable[[str, FoundMetrics, float], dict[str, Any]],
    *,
    names_only: bool = False,
) -> dict[str, Any]:
    """Return what ``make`` makes of the job's metrics, or what it made of the same before."""
    with _reading:
        outcome = read_outcome(folder)
        began = time.monotonic()
        key = (folder.path, patterns, wanted)
        stamp = _stamp(folder) if outcome.is_final else ""
        kept: dict[str, Any] | None = _answers.get(key, stamp)
        if kept is not None:
            return kept
        place = (folder.path, patterns, names_only)
        reader = _readers.pop(place, None) or MetricsReader(folder, patterns, names_only=names_only)
        found = reader.look(_LIMIT_S)
        made = make(folder.name, found, outcome.started or 0.0)
        _readers[place] = reader
        _counts[place] = sum(map(len, found.series))
        _drop_readers()
        took = time.monotonic() - began
        is_cut = any(one.is_cut for one in found.series)
        _answers.put(key, stamp, made, took if is_cut else None if outcome.is_final else _AGAIN * took)
        return made


def _stamp(folder: RunFolder) -> str:
    """Return what changes when more is logged to the files of a job that has ended."""
    try:
        where = runs.find_run(folder, Plan.read(folder.plan))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return stamp_files([folder.events])
    names = list_some_names(where.run_dir)[0] if where.run_dir else []
    return stamp_files([folder.events, *(metric_path(where.run_dir, name) for name in names)])


def _drop_readers() -> None:
    """Forget the readers that were not used for longest, until few are left, with few values."""
    left = _MOST_VALUES
    for count, place in enumerate(reversed(list(_readers))):
        left -= _counts[place]
        if left < 0 or count >= _MOST_READERS:
            del _readers[place], _counts[place]


_answers = KeptAnswers(_MOST_ANSWER_BYTES)
