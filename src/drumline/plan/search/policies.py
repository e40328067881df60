"""
The policies by which a sweep gives up trials.

An interval is one report of the primary metric. A policy looks at a trial when its number of reports reaches a multiple
of ``evaluation_interval`` that is not below ``delay_evaluation``, and compares it with every trial that has as many
reports, as they stood after that many; and with those that have completed with fewer, which is all there will be.
Source: https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#early-termination
"""

from __future__ import annotations

import math
from array import array
from statistics import median
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from drumline.spec.parts.search import EarlyTerminationPolicy

    _Standings = Mapping[str, "_Standing"]


def best(values: Sequence[float], goal: str) -> float | None:
    """
    Return a trial's worth: the best value that it ever logged, not the last; None when all are nan or inf.

    Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.hyperdrive.hyperdriverun
    (get_best_run_by_primary_metric: the minimum or maximum of the metric)
    """
    numbers = [value for value in values if math.isfinite(value)]
    if not numbers:
        return None
    return min(numbers) if goal == "minimize" else max(numbers)


def due(policy: EarlyTerminationPolicy, report_count: int) -> int:
    """Return the latest interval, of those a trial has reached, at which the policy looks at it; 0 for none yet."""
    every = policy.evaluation_interval or 1
    latest = report_count // every * every
    return latest if latest >= max(policy.delay_evaluation or 0, 1) else 0


class _Standing(NamedTuple):
    """The standing of a trial after some reports, in costs, the lower the better."""

    latest: float
    lowest: float
    average: float


class Course:
    """The reports of a trial so far, for policies to look at any interval of it: values may be added."""

    def __init__(self, goal: str, values: Iterable[float] = ()) -> None:
        self._goal = goal
        self._costs, self._lowest, self._sums = array("d"), array("d"), array("d")
        self.add(values)

    def __len__(self) -> int:
        return len(self._costs)

    def add(self, values: Iterable[float]) -> None:
        for value in values:
            cost = _cost(value, self._goal)
            self._lowest.append(min(cost, self._lowest[-1]) if self._lowest else cost)
            self._sums.append(cost + (self._sums[-1] if self._sums else 0.0))
            self._costs.append(cost)

    def after(self, interval: int) -> _Standing:
        """Return the standing after so many reports, or after all, where there are fewer."""
        at = min(interval, len(self)) - 1
        return _Standing(self._costs[at], self._lowest[at], self._sums[at] / (at + 1))


def verdict(
    policy: EarlyTerminationPolicy,
    goal: str,
    courses: Mapping[str, Course],
    trial: str,
    *,
    after: int = 0,
    finished: Collection[str] = (),
) -> str:
    """
    Return why the policy stops the trial, of those in ``courses``; empty if it goes on.

    ``after``: the interval at which it was looked at last; every later one is looked at. ``finished``: the trials that
    have completed.
    """
    every, over = policy.evaluation_interval or 1, frozenset(finished)
    first = max(after // every * every + every, -(-(policy.delay_evaluation or 0) // every) * every)
    last = due(policy, len(courses[trial]))
    if last < first:
        return ""
    decide = {"bandit": _bandit, "median_stopping": _median, "truncation_selection": _truncation}[policy.type]
    for interval in range(first, last + 1, every):
        there = {
            name: course.after(interval)
            for name, course in courses.items()
            if len(course) >= interval or (course and name in over)
        }
        why = decide(policy, goal, there, trial, over)
        if why:
            return f"{why} after {format_count(interval, 'report')}"
    return ""


def _cost(value: float, goal: str) -> float:
    """Return the cost of a value. One that is not finite costs most: ``best`` does not count it either."""
    if not math.isfinite(value):
        return math.inf
    return value if goal == "minimize" else -value


def _format_cost(cost: float, goal: str) -> str:
    if cost == math.inf:
        return "not a number"
    return f"{cost if goal == 'minimize' else -cost:.6g}"


def _bandit(policy: Any, goal: str, there: _Standings, trial: str, _: frozenset[str]) -> str:
    leader = min(there, key=lambda name: there[name].lowest)
    best_cost, mine = there[leader].lowest, there[trial].lowest
    if mine <= best_cost + _slack(policy, goal, best_cost):
        return ""
    allowed = f"factor {policy.slack_factor:g}" if policy.slack_factor else f"amount {policy.slack_amount:g}"
    theirs = f"{_format_cost(best_cost, goal)} of {leader}"
    return f"its best was {_format_cost(mine, goal)}, worse than {theirs} by more than slack {allowed}"


def _slack(policy: Any, goal: str, best_cost: float) -> float:
    """
    Return how much worse than the best is still good enough.

    A best of 0.8 and a factor of 0.2 allow 0.8 / 1.2 where more is better, and 0.8 * 1.2 where less is. Of a negative
    best, the same part of its size.
    """
    if policy.slack_amount:
        return float(policy.slack_amount)
    size = abs(best_cost) if math.isfinite(best_cost) else 0.0
    factor = float(policy.slack_factor)
    return size * factor if goal == "minimize" else size * factor / (1 + factor)


def _median(policy: Any, goal: str, there: _Standings, trial: str, _: frozenset[str]) -> str:
    """Compare the trial's best so far with the median of all trials' averages so far; return why it is stopped."""
    middle = median(standing.average for standing in there.values())
    mine = there[trial].lowest
    if not mine > middle:
        return ""
    ours, theirs = _format_cost(mine, goal), _format_cost(middle, goal)
    return f"its best was {ours}, worse than {theirs}, the median of all averages"


def _truncation(policy: Any, goal: str, there: _Standings, trial: str, over: frozenset[str]) -> str:
    """Compare its value at the interval with that of the others there; of equals none is cut."""
    if policy.exclude_finished_jobs:
        there = {name: standing for name, standing in there.items() if name == trial or name not in over}
    mine = there[trial].latest
    cut = len(there) * policy.truncation_percentage // 100
    no_better = sum(standing.latest >= mine for standing in there.values())
    if no_better > cut:
        return ""
    percentage = policy.truncation_percentage
    return f"{_format_cost(mine, goal)} was among the worst {percentage} % of {len(there)} trials"
