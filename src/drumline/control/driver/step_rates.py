"""The time of the steps of a job that is measured."""

from __future__ import annotations

import math
import os
import statistics
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.folder import STEPS
from drumline.contract.record import NamedTuple
from drumline.control.observing.steps.history import read_steps
from drumline.node.metrics.step_windows import MOST_DETAILED
from drumline.plan.search.tuning import MOST_WARM_STEPS

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan

FEWEST = 5
"""Steps that say something of a setting."""

MOST_STEPS = MOST_DETAILED - MOST_WARM_STEPS
"""Of a rank, that can be measured."""

LEISURE = 20
"""So many times as long as a look at the steps takes, the next one waits at least: the cores are the job's."""

_NEVER_SURER = 0.1
"""Of a value: the next run of the same job may differ by so much, however alike the steps of this one are."""


SWITCHES = (STEPS, "DRUMLINE_HOOK")
"""Variables that are 0 where steps are not to be followed."""


class StepRate(NamedTuple):
    """
    Seconds of a step of the slowest rank, and between which they are, another run included. ``steps``: so many were
    measured. ``spread``: the part of ``step_s`` that the chance of these steps alone may explain.
    """

    step_s: float
    low_s: float
    high_s: float
    steps: int
    ranks: int
    spread: float


def check_followed(plan: Plan) -> None:
    """Raise UsageError for a job whose steps are not followed, because it or this shell says so."""
    for name in SWITCHES:
        if (plan.user_env.get(name) or (os.environ.get(name) if name == STEPS else "")) == "0":
            raise UsageError(
                f"{name} is 0, so no steps are followed and none can be measured", f"unset {name}"
            )


def check_count(steps: int, fewest: int, of_what: str) -> None:
    """Raise UsageError for a number of steps that says nothing ``of_what``, or that no job keeps."""
    if steps < fewest:
        raise UsageError(f"--steps must be {fewest} or more: fewer say nothing of {of_what}")
    if steps > MOST_STEPS:
        raise UsageError(f"--steps must be {MOST_STEPS} or less: no more steps of a rank are kept")


def measure(
    folder: RunFolder, outcome: Outcome, warm_steps: int, *, is_median: bool = False
) -> StepRate | None:
    """
    Return how long the steps of the job's newest attempt take after its ``warm_steps`` first; None: too few of them.

    The mean, because steps that wait for input may come in groups; ``is_median``: the median.
    """
    history = read_steps(folder.path, len(outcome.attempts))
    rows = [[one for one in history.list_seconds(rank, "step")[warm_steps:] if one] for rank in history.ranks]
    return reduce_steps(rows, is_median=is_median)


def reduce_steps(rows: list[list[float]], *, is_median: bool = False) -> StepRate | None:
    """Return the rate of ranks whose steps took these seconds."""
    count = min(map(len, rows), default=0)
    if count < FEWEST:
        return None
    centre = statistics.median if is_median else statistics.fmean
    slowest = max(rows, key=centre)
    step_s = centre(slowest)
    # By parts: the mean of groups of steps varies as groups do, not as their steps.
    spread = _find_quantile(len(slowest) - 1) * statistics.stdev(slowest) / math.sqrt(len(slowest)) / step_s
    doubt = max(spread, _NEVER_SURER) * step_s
    return StepRate(step_s, max(step_s / 4, step_s - doubt), step_s + doubt, count, len(rows), spread)


def _find_quantile(freedom: int) -> float:
    """
    Return how many standard errors a mean may be off in 95 of 100 cases: Student's t, to 2 % for 4 degrees or more.

    >>> round(_find_quantile(4), 1), round(_find_quantile(59), 1)
    (2.8, 2.0)
    """
    return 2.0 + 2.4 / freedom + 2.8 / freedom**2
