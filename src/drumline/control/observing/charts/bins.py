"""Many values in few bins: of each bin the lowest, the highest, the mean and the last value. Pure."""

from __future__ import annotations

import math
import operator
from array import array
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        return _cut_equal(places)
    low, high = places[0], places[-1]
    if low == high:
        # All at one place, such as a program that logs no steps: by their order.
        return [count * number // most for number in range(1, most + 1)]
    ends = [bisect_left(places, low + (high - low) * number / most) for number in range(1, most)]
    return [*ends, count]


def _cut_equal(places: Sequence[float]) -> list[int]:
    """Return where a place differs from the one before: values at one place are one bin."""
    ends = [index for index in range(1, len(places)) if places[index] != places[index - 1]]
    return [*ends, len(places)]


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
