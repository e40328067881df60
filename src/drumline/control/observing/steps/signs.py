"""
How far a job is whose steps no hook follows, such as one of TensorFlow, JAX or MPI: what it says itself, by the steps
of the metrics that it logs, or by lines of its log. What is not certain is left out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract import log_times, steps
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import open_plain, read_plain
from drumline.contract.record import NamedTuple
from drumline.contract.words import round_rate
from drumline.control.observing.steps import log_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan, RankTask
    from drumline.tracking.metrics import Point

_TAIL_BYTES = 128 << 10
_TIMES_BYTES = 64 << 10
_EVENT_FILES_S = 0.2
_MOST_LOGS, _MOST_METRICS = 4, 50
_RECENT_S = 60.0
_SHORTEST_S = 2.0
"""Between two times that a rate is made of: those of a log are exact to about a second."""


class Sign(NamedTuple):
    """``source``: as ``contract/steps.py`` names it. ``told_by``: which metric, or whose log. ``rate``: a second."""

    done: int
    total: int | None
    rate: float | None
    source: str
    told_by: str


def describe_signs(folder: RunFolder, attempt: int) -> dict[str, Any] | None:
    """Describe the steps as ``StepHistory.summarize`` does; None: the job does not say."""
    plan = _read_plan(folder)
    if plan is None:
        return None
    found = _find_in_logs(folder, plan, attempt)
    if found is None or found.total is None:
        found = _find_in_metrics(folder, plan) or found
    if found is None:
        return None
    return {
        "done": found.done,
        "total": found.total,
        "total_source": found.told_by if found.total else None,
        "told_by": found.told_by,
        "rate": round_rate(found.rate),
        "step_s": round(1 / found.rate, 6) if found.rate else None,
        "phases": {},
        "looks": None,
        "latest": None,
        "sources": [found.source],
    }


def _read_plan(folder: RunFolder) -> Plan | None:
    from drumline.contract.plan import Plan

    try:
        return Plan.read(folder.plan)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, DrumlineError):
        return None


def _find_in_logs(folder: RunFolder, plan: Plan, attempt: int) -> Sign | None:
    """Ask the logs of the first ranks, one after the other: a parameter server says nothing."""
    tasks = [(node.node, task) for node in plan.nodes[:_MOST_LOGS] for task in node.ranks[:_MOST_LOGS]]
    for node, task in tasks[:_MOST_LOGS]:
        marks = log_lines.find_marks(_list_lines(os.path.join(folder.path, task.log)))
        if marks:
            times = _time_marks(marks, folder.log_times_path(attempt, node), task)
            rate = _find_rate([(at, mark.done) for at, mark in times])
            return Sign(marks[-1].done, marks[-1].total, rate, steps.LOG, f"log of rank {task.label}")
    return None


def _list_lines(path: str) -> list[tuple[int, bytes]]:
    """List the last lines of a log, each with the place in the file where it ends."""
    try:
        with open_plain(path) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(begin)
            data = file.read(_TAIL_BYTES)
    except OSError:
        return []
    lines, place = [], begin
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        place += len(line) + 1
        lines.append((place, line))
    return lines[1:] if begin else lines


def _time_marks(
    marks: Iterable[log_lines.StepMark], path: str, task: RankTask
) -> list[tuple[float, log_lines.StepMark]]:
    """Return the marks with the time of the first look of the agent that found their line."""
    looks = read_plain(path, _TIMES_BYTES, from_end=True).splitlines(keepends=True)
    sizes = [
        (grown.size, look.time)
        for line in looks
        if (look := log_times.from_line(line))
        for grown in look.grown
        if grown.rank == task.rank
    ]
    timed: list[tuple[float, log_lines.StepMark]] = []
    for mark in marks:
        # A look that is cut off may be the one that found it.
        at = next((time for size, time in sizes if size >= mark.place - 1), None)
        if at is not None and (not timed or at > timed[-1][0]):
            timed.append((at, mark))
    return timed


def _find_in_metrics(folder: RunFolder, plan: Plan) -> Sign | None:
    """Return what the metric says whose steps are the most: others are logged once an epoch."""
    best: tuple[int, str, Sequence[Point]] | None = None
    for name, points in _read_metrics(folder, plan):
        highest = max((point.step for point in points), default=0)
        if highest > 0 and (best is None or highest > best[0]):
            best = (highest, name, points)
    if best is None:
        return None
    highest, name, points = best
    rate = _find_rate([(point.timestamp_ms / 1000, point.step) for point in points])
    return Sign(highest, None, rate, steps.METRICS, f"metric {name}")


def _read_metrics(folder: RunFolder, plan: Plan) -> Iterable[tuple[str, Sequence[Point]]]:
    from drumline.control.observing.metrics import read_event_points
    from drumline.tracking import metrics, runs

    run_dir = runs.find_run(folder, plan).run_dir
    # MLflow counts its own looks at the machine.
    names = (
        [name for name in metrics.list_names(run_dir) if not name.startswith("system/")] if run_dir else []
    )
    if not names:
        return list(read_event_points(folder, _EVENT_FILES_S, is_whole=True).items())
    return [(name, metrics.read_tail(run_dir, name)) for name in names[:_MOST_METRICS]]


def _find_rate(known: Iterable[tuple[float, int]]) -> float | None:
    """
    Return the steps a second of the last minute, or from one time to the next where those are further apart.

    >>> _find_rate([(0.0, 0), (100.0, 50), (130.0, 80), (170.0, 120)]), _find_rate([(0.0, 0), (100.0, 50)])
    (1.0, 0.5)
    """
    ordered = sorted(known)
    if not ordered:
        return None
    end, done = ordered[-1]
    before = [(at, made) for at, made in ordered if at <= end - _SHORTEST_S and made < done]
    if not before:
        return None
    at, made = next((one for one in before if one[0] >= end - _RECENT_S), before[-1])
    return (done - made) / (end - at)
