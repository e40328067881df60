"""Step time and lateness of each rank over the time of an attempt, in bins, from what its agents noted of steps."""

from __future__ import annotations

import math
import statistics
from array import array
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control.observing.steps.history import find_behind, read_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.steps import Window
    from drumline.control.observing.steps.history import StepHistory

LATENESS, STEP_TIME = "lateness", "step"

_NEARLY_ALL = 0.98
"""Of the values; the first steps of a job take seconds, and would leave the weakest colour for all others."""

_LATE_OF_STEP = 0.1
"""Lateness of less than that part of a step has no strong colour."""


class StepRows(NamedTuple):
    """Milliseconds of each rank in bins, nan where nothing is known. ``most``: those of the strongest colour."""

    values: Mapping[int, array[float]]
    most: float | None


def read_step_rows(
    folder: RunFolder,
    attempt: int,
    key: str,
    ranks: Collection[int],
    bins: int,
    bin_of: Callable[[float], int],
) -> StepRows:
    """
    Return what the steps of these ranks took, or by how much each came later to an all-reduce than the median of the
    others.
    """
    history = read_steps(folder.path, attempt)
    ours = history._replace(ranks={rank: found for rank, found in history.ranks.items() if rank in ranks})
    if key == STEP_TIME:
        rows = {rank: _fill_steps(windows, bins, bin_of) for rank, windows in ours.ranks.items()}
        return StepRows(rows, _find_most(rows.values(), 0.0))
    rows = _fill_lateness(ours, bins, bin_of)
    return StepRows(rows, _find_most(rows.values(), 1000 * _LATE_OF_STEP * ours.find_step_s()))


def _fill_steps(windows: Iterable[Window], bins: int, bin_of: Callable[[float], int]) -> array[float]:
    """Fill the bins of a rank: a window is of all the time since the one before."""
    values = array("d", [math.nan]) * bins
    first: int | None = None
    for window in windows:
        spread = window.seconds.get("step")
        if spread is not None:
            last = bin_of(window.time)
            begin = bin_of(window.time - window.made * spread.median) if first is None else first
            for place in range(min(begin, last), last + 1):
                values[place] = round(1000 * spread.median, 3)
            first = last + 1
    return values


def _fill_lateness(
    history: StepHistory, bins: int, bin_of: Callable[[float], int]
) -> dict[int, array[float]]:
    """Fill the bins of each rank with the median of the all-reduces in them."""
    found: dict[tuple[int, int], list[float]] = {}
    for times in history.list_entries().values():
        place = bin_of(min(times.values()))
        for rank, late_s in find_behind(times).items():
            found.setdefault((rank, place), []).append(late_s)
    rows = {rank: array("d", [math.nan]) * bins for rank in history.ranks}
    for (rank, place), late in found.items():
        rows[rank][place] = round(max(0.0, 1000 * statistics.median(late)), 3)
    return rows


def _find_most(rows: Iterable[Iterable[float]], least: float) -> float | None:
    """Return a value that nearly all are below; None where there are none."""
    known = sorted(value for values in rows for value in values if not math.isnan(value))
    return max(least, known[int(_NEARLY_ALL * (len(known) - 1))]) if known else None
