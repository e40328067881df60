"""The values of one metric, up to millions, in 24 bytes each."""

from __future__ import annotations

import math
import operator
from array import array
from itertools import islice
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.tracking.metrics import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Figures(NamedTuple):
    """A summary. ``lowest`` and ``highest`` are of the finite values; None if there are none."""

    value_count: int
    last: Point | None
    """Of the highest step, and of several the one that was logged last."""

    lowest: float | None
    highest: float | None
    odd_count: int
    """How many are nan or inf."""

    steps: tuple[int, int]
    """The first and the last."""


class Series:
    """The values in the order in which they were logged."""

    def __init__(self, name: str, source: str, run: str = "") -> None:
        self.name = name
        self.source = source
        """``mlflow`` or ``tensorboard``."""

        self.run = run
        """Where it is not the job's own: the name of the run, or the step or trial."""

        self.is_cut = False
        """Whether there are more values than were read."""

        self._steps, self._times, self._values = array("q"), array("q"), array("d")
        self._has_repeats = False
        self._ordered_count = 0
        """So many values from the first are known to have rising steps; -1: not all have."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Point]:
        return map(Point, self._steps, self._times, self._values)

    def add(self, step: int, timestamp_ms: int, value: float) -> None:
        """Add a value. Raises OverflowError, and adds nothing, for a step or a time beyond 64 bits."""
        self._steps.append(step)
        try:
            self._times.append(timestamp_ms)
        except OverflowError:
            self._steps.pop()
            raise
        self._values.append(value)

    def extend(self, points: Iterable[Point]) -> None:
        """Add the points that can be kept, and leave out the others."""
        for point in points:
            try:
                self.add(*point)
            except (OverflowError, TypeError, ValueError):
                continue

    def add_many(self, steps: array[int], timestamps_ms: array[int], values: array[float]) -> None:
        """Add as many values as there are steps and times."""
        self._steps.extend(steps)
        self._times.extend(timestamps_ms)
        self._values.extend(values)

    def arrays(self) -> tuple[array[int], array[int], array[float]]:
        """Return steps, times in ms since 1970 and values, which are not to be changed."""
        return self._steps, self._times, self._values

    def between(self, first: int | None, last: int | None) -> Series:
        """Return the values of steps from ``first`` to ``last``, both included; None: without that bound."""
        if first is None and last is None:
            return self
        found = Series(self.name, self.source, self.run)
        found.is_cut = self.is_cut
        low = -math.inf if first is None else first
        high = math.inf if last is None else last
        found.extend(point for point in self if low <= point.step <= high)
        return found

    def figures(self) -> Figures:
        if not self._values:
            return Figures(0, None, None, None, 0, (0, 0))
        finite = array("d", filter(math.isfinite, self._values))
        top = max(self._steps)
        index = len(self._steps) - 1
        while self._steps[index] != top:
            index -= 1
        return Figures(
            len(self),
            Point(top, self._times[index], self._values[index]),
            min(finite) if finite else None,
            max(finite) if finite else None,
            len(self) - len(finite),
            (min(self._steps), top),
        )

    @property
    def has_repeats(self) -> bool:
        """
        Return whether some step has several values, where steps count at all: without any, all values have one step.
        """
        new = self._steps[max(0, self._ordered_count - 1) :]
        if self._ordered_count >= 0 and all(map(operator.lt, new, islice(new, 1, None))):
            self._ordered_count = len(self)
            return False
        self._ordered_count = -1
        if not self._has_repeats and min(self._steps) < max(self._steps):
            self._has_repeats = len(set(self._steps)) < len(self)
        return self._has_repeats

    def columns(self, count: int) -> list[float | None]:
        """
        Return the mean of the finite values in each of ``count`` even parts of the steps; None for an empty part.

        Values that all have one step are divided by the order in which they came.
        """
        sums, counts = [0.0] * count, [0] * count
        low, high = (min(self._steps), max(self._steps)) if self._steps else (0, 0)
        in_order = low == high
        width = len(self) - 1 if in_order else high - low
        for index, value in enumerate(self._values):
            if math.isfinite(value):
                at = index if in_order else self._steps[index] - low
                column = at * (count - 1) // width if width else 0
                sums[column] += value
                counts[column] += 1
        return [total / many if many else None for total, many in zip(sums, counts, strict=True)]
