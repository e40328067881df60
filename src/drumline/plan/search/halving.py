"""
Successive halving: which setting of a job is measured next, over how many steps, and when one has won.

All settings are measured over few steps, the best of them over more, and so on. What is clearly slower than the best
goes no further, so that a rung may have fewer settings than it has room for, and a winner that is clear ends it.

Few steps may miss what comes rarely, or come from a queue that was full. So a winner of the first rung is measured on
the next one too before it wins, and a setting that is clearly slower there than it was counts with its newer figure:
then those that it had surpassed are looked at again.

Those that are measured on two rungs tell how much two runs of a setting differ. Where they differ little, a smaller
difference of two settings is clear, and settings that are equal need no further rung.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAXIMIZE, MINIMIZE = "maximize", "minimize"
FEWEST_STEPS = 5
"""Of the first rung."""

_PART = 3
"""A rung has a third of the settings of the one before, each over three times as many steps."""

_FEWEST_LAST = 2
"""Settings of the last rung: a winner is compared with another."""

_FEWEST_REPEATS = 2
"""Of one setting the second run may be like the first by chance."""

_SUREST = 0.025
"""Of a value: so far apart may two runs be that nothing is known to tell apart."""

_EQUAL = 0.01
"""Of a value: settings that are no further apart are equal, where runs of one setting are no further apart either."""


class Rung(NamedTuple):
    """``most``: settings that are measured; ``steps``: of each."""

    most: int
    steps: int


class Measurement(NamedTuple):
    """
    What is known of a setting on a rung. ``value``: None without one, because it failed or is not over. ``low``,
    ``high``: where the value is, all chance considered. ``spread``: the part of the value that the chance of its own
    steps may explain, another run aside; None if that is not known.
    """

    setting: int
    rung: int
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    is_over: bool = True
    spread: float | None = None


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
        repeats = _find_repeats(known.values(), index)
        newest = [_correct(one, known, goal) for one in row if one.setting not in failed]
        good = _sort([_narrow(one, repeats) for one in newest], goal)
        kept = [one for one in good if not is_worse(one, good, goal)]
        is_confirmed = len(kept) == 1 and (index > 0 or kept[0].rung > 0 or len(good) == 1)
        if not kept or is_confirmed or index + 1 == len(rungs) or _are_equal(kept, repeats):
            return Standing(index, (), good[0].setting if good else None, is_over=True)
        contenders = [one.setting for one in _list_hopeful(kept, goal)[: rungs[index + 1].most]]
        # A rung that would drop none of several tells nothing that the next does not.
        rest = range(index + 1, len(rungs) if len(kept) > 1 else index + 2)
        index = max(at for at in rest if rungs[at].most >= len(contenders))


def is_decided(rungs: Sequence[Rung], one: Measurement, measured: Iterable[Measurement], goal: str) -> bool:
    """Return whether a setting under way is worse than one of its rung, so that more steps of it say nothing."""
    known = list(measured)
    repeats = _find_repeats(known, one.rung)
    others = [_narrow(other, repeats) for other in known if other.rung == one.rung and other.is_over]
    # A single rung is there to measure every setting whole.
    return len(rungs) > 1 and is_worse(_narrow(one, repeats), others, goal)


def is_worse(one: Measurement, others: Iterable[Measurement], goal: str) -> bool:
    """Return whether a measure is worse than another, all chance considered."""
    if goal == MINIMIZE:
        return any(other.value is not None and other.high < one.low for other in others)
    return any(other.value is not None and other.low > one.high for other in others)


def list_rivals(winner: int, goal: str, measured: Iterable[Measurement]) -> list[int]:
    """Return the settings that may be as good as the one that won, all chance considered, the best first."""
    known = {(one.rung, one.setting): one for one in measured}
    failed = {one.setting for one in known.values() if one.is_over and one.value is None}
    repeats = _find_repeats(known.values(), max((rung for rung, _ in known), default=0))
    newest = {one.setting: one for _, one in sorted(known.items()) if one.value is not None}
    own = [_narrow(_correct(one, known, goal), repeats) for one in known.values() if one.setting == winner]
    others = [one for one in newest.values() if one.setting not in {winner, *failed}]
    good = _sort([_narrow(one, repeats) for one in others], goal)
    # What the winner made on an earlier rung than another's newest is older than that.
    return [
        one.setting
        for one in good
        if not is_worse(one, [best for best in own if best.rung >= one.rung], goal)
    ]


def _correct(one: Measurement, known: Mapping[tuple[int, int], Measurement], goal: str) -> Measurement:
    """Return the measure, or that of a later rung whose value is worse than the first one's chance explains."""
    later = [other for (rung, setting), other in known.items() if setting == one.setting and rung > one.rung]
    worse = [
        other
        for other in later
        if other.value is not None and (other.value > one.high if goal == MINIMIZE else other.value < one.low)
    ]
    return max(worse, key=lambda other: other.rung, default=one)


def _find_repeats(measured: Iterable[Measurement], rung: int) -> list[float]:
    """Return how far two runs of a setting were apart, as a part of its value, for all runs up to that rung."""
    of_setting: dict[int, list[tuple[int, float]]] = {}
    for one in measured:
        if one.is_over and one.value and one.rung <= rung:
            of_setting.setdefault(one.setting, []).append((one.rung, one.value))
    return [
        abs(after - before) / max(before, after)
        for runs in of_setting.values()
        for (_, before), (_, after) in pairwise(sorted(runs))
    ]


def _narrow(one: Measurement, repeats: Sequence[float]) -> Measurement:
    """Return the measure with the bounds that follow from the repeats, if they are narrower than its own."""
    if one.value is None or one.spread is None or len(repeats) < _FEWEST_REPEATS:
        return one
    doubt = one.value * max(one.spread, *repeats, _SUREST)
    return one._replace(low=max(one.low, one.value - doubt), high=min(one.high, one.value + doubt))


def _are_equal(kept: Sequence[Measurement], repeats: Sequence[float]) -> bool:
    """Return whether more steps would tell nothing of these."""
    if len(repeats) < _FEWEST_REPEATS or max(repeats) > _EQUAL:
        return False
    values = [one.value for one in kept if one.value is not None and one.spread is not None]
    return len(values) == len(kept) and max(values) - min(values) <= _EQUAL * max(values)


def _list_hopeful(kept: Sequence[Measurement], goal: str) -> list[Measurement]:
    """Return the best, and then those first that may be the best, all chance considered."""
    sign = 1.0 if goal == MINIMIZE else -1.0
    return [kept[0], *sorted(kept[1:], key=lambda one: sign * (one.low if goal == MINIMIZE else one.high))]


def _sort(measures: Iterable[Measurement], goal: str) -> list[Measurement]:
    """Return those with a value, the best first, the earliest setting of equals."""
    known = [one for one in measures if one.value is not None]
    sign = 1.0 if goal == MINIMIZE else -1.0
    return sorted(known, key=lambda one: (sign * (one.value or 0.0), one.setting))
