"""
Successive halving: which setting of a job is measured next, over how many steps, and when one has won.

All settings are measured over few steps, the best of them over more, and so on. What is clearly slower than the best
goes no further, so that a rung may have fewer settings than it has room for, and a winner that is clear ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAXIMIZE, MINIMIZE = "maximize", "minimize"
FEWEST_STEPS = 5
"""Of the first rung."""

_PART = 3
"""A rung has a third of the settings of the one before, each over three times as many steps."""

_FEWEST_LAST = 2
"""Settings of the last rung: a winner is compared with another."""


class Rung(NamedTuple):
    """``most``: settings that are measured; ``steps``: of each."""

    most: int
    steps: int


class Measurement(NamedTuple):
    """
    What is known of a setting on a rung. ``value``: None without one, because it failed or is not over. ``low``,
    ``high``: where the value is, all chance considered.
    """

    setting: int
    rung: int
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    is_over: bool = True


class Standing(NamedTuple):
    """``waiting``: settings of that rung to be measured now. ``winner``: None before the end, and if all failed."""

    rung: int
    waiting: tuple[int, ...]
    winner: int | None = None
    is_over: bool = False


def plan_rungs(count: int, steps: int, *, exhaustive: bool = False) -> tuple[Rung, ...]:
    """
    Return the rungs for so many settings, of which the last measures ``steps``. ``exhaustive``: one for all of them.

    >>> plan_rungs(12, 60)
    (Rung(most=12, steps=7), Rung(most=4, steps=20), Rung(most=2, steps=60))
    >>> plan_rungs(2, 60)
    (Rung(most=2, steps=20), Rung(most=2, steps=60))
    """
    if exhaustive or count == 1:
        return (Rung(count, steps),)
    sizes = [count]
    while sizes[-1] > _FEWEST_LAST or len(sizes) == 1:
        sizes.append(max(_FEWEST_LAST, -(-sizes[-1] // _PART)))
    last = len(sizes) - 1
    return tuple(
        Rung(size, max(min(FEWEST_STEPS, steps), round(steps / _PART ** (last - index))))
        for index, size in enumerate(sizes)
    )


def find_standing(rungs: Sequence[Rung], count: int, goal: str, measured: Iterable[Measurement]) -> Standing:
    """Return what is to be done next. ``measured``: at most one of a setting and rung."""
    known = {(one.rung, one.setting): one for one in measured}
    failed = {one.setting for one in known.values() if one.is_over and one.value is None}
    contenders, index = list(range(count)), 0
    while True:
        waiting = tuple(setting for setting in contenders if (index, setting) not in known)
        row = [known[index, setting] for setting in contenders if (index, setting) in known]
        if waiting or not all(one.is_over for one in row):
            return Standing(index, waiting)
        # One that fails on a later rung makes room for the next best.
        good = _sort([one for one in row if one.setting not in failed], goal)
        kept = [one for one in good if not is_worse(one, good, goal)]
        if len(kept) <= 1 or index + 1 == len(rungs):
            return Standing(index, (), good[0].setting if good else None, is_over=True)
        contenders = [one.setting for one in kept[: rungs[index + 1].most]]
        # A rung that would drop none of them tells nothing that the next does not.
        index = max(at for at in range(index + 1, len(rungs)) if rungs[at].most >= len(contenders))


def is_decided(rungs: Sequence[Rung], one: Measurement, measured: Iterable[Measurement], goal: str) -> bool:
    """Return whether a setting under way is worse than one of its rung, so that more steps of it say nothing."""
    others = [other for other in measured if other.rung == one.rung and other.is_over]
    # A single rung is there to measure every setting whole.
    return len(rungs) > 1 and is_worse(one, others, goal)


def is_worse(one: Measurement, others: Iterable[Measurement], goal: str) -> bool:
    """Return whether a measure is worse than another, all chance considered."""
    if goal == MINIMIZE:
        return any(other.value is not None and other.high < one.low for other in others)
    return any(other.value is not None and other.low > one.high for other in others)


def _sort(measures: Iterable[Measurement], goal: str) -> list[Measurement]:
    """Return those with a value, the best first, the earliest setting of equals."""
    known = [one for one in measures if one.value is not None]
    sign = 1.0 if goal == MINIMIZE else -1.0
    return sorted(known, key=lambda one: (sign * (one.value or 0.0), one.setting))
