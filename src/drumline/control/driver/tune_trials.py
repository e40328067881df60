"""Drives a tuning: a sweep whose trials are a job with other settings, each stopped when its steps are measured."""

from __future__ import annotations

import math
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import STEPS, RunFolder
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.driver.sweep import SweepDriver
from drumline.control.facts import parts
from drumline.control.facts.steps import read_steps
from drumline.control.jobs.lookup import read_plan
from drumline.node.metrics.step_windows import MOST_DETAILED
from drumline.plan.search import halving, tuning
from drumline.plan.search.halving import Measurement
from drumline.plan.search.sweep_request import trial_job
from drumline.plan.search.tuning import (
    MOST_WARM_STEPS,
    STEP_S,
    describe_value,
    from_properties,
    list_measures,
    prepare_measured,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, StepOutcome
    from drumline.contract.plan import Plan
    from drumline.plan.search.halving import Standing
    from drumline.spec.jobs.command import Command


_POLL_S = 0.25
_MEASURED = "its steps are measured"
_LEAST_PART = 1 / 3
"""Of the steps of a rung, before which no run is stopped as slower."""

_SLOWER = f"{_MEASURED}: clearly slower than another setting"
_PATIENCE_S = 60.0
"""For which ranks without steps are waited for while others make some: a node's file may be late to be seen."""

_TIME_LIMIT_CODE = 124


class TuneDriver(SweepDriver):
    """Its trials are those of the sweep driver; which comes next, and when one ends, follows from their steps."""

    def __init__(self, folder: RunFolder, wake: int) -> None:
        super().__init__(folder, wake)
        tuning = from_properties(self._sweep.properties)
        if tuning is None:
            raise DrumlineError(f"{folder.graph} is damaged")
        self._tuning = tuning
        self._asked: set[str] = set()
        """Trials that were asked to end."""

        self._lacking_since: dict[str, float] = {}
        """Trials of which only some ranks have made steps."""

    @property
    def _may_go_on(self) -> bool:
        return not self._find_standing().is_over

    @property
    def _pause_s(self) -> float:
        return min(_POLL_S, super()._pause_s)

    def _find_standing(self) -> Standing:
        return self._tuning.find_standing(self._children.steps.values())

    def _start_next(self) -> bool:
        if self._is_ending or self._is_full:
            return False
        standing = self._find_standing()
        if not standing.waiting:
            return False
        setting = standing.waiting[0]
        detail = {"params": self._tuning.params(setting), "setting": setting, "rung": standing.rung}
        self._submit(f"trial_{len(self._children.steps)}", detail)
        return True

    def _make_job(self, number: int, detail: Mapping[str, Any]) -> Command:
        job = trial_job(self._sweep, self._sweep.trial, {}, number)
        prepare_measured(job, self._sweep.trial.environment_variables, self._tuning, detail["setting"])
        return job

    def _apply_policy(self) -> None:
        """End the trials whose steps are measured, or that hang."""
        began = time.monotonic()
        if self._is_ending or began < self._next_look:
            return
        for name in self._children.under_way:
            why = "" if name in self._asked else self._find_end(self._children.steps[name])
            if why:
                self._asked.add(name)
                self._children.cancel(name, parts.STOPPED_BY + why, at_once=True)
        now = time.monotonic()
        self._next_look = now + max(_POLL_S, LEISURE * (now - began))

    def _find_end(self, step: StepOutcome) -> str:
        """Return why a trial is to end; empty while it is not."""
        folder = RunFolder.for_job(step.job)
        outcome = fold(folder.read_events())
        if outcome.hang:
            return f"it hangs: {outcome.hang}"
        rate = self._measure(step, outcome)
        if rate is None:
            return ""
        if lack := _explain_lack(folder, rate):
            since = self._lacking_since.setdefault(step.job, time.monotonic())
            return lack if time.monotonic() > since + _PATIENCE_S else ""
        tuning = self._tuning
        wanted = tuning.rungs[step.detail["rung"]].steps
        if rate.steps >= wanted:
            return _MEASURED
        # Of many looks at few steps one would be wrong.
        if rate.steps < wanted * _LEAST_PART:
            return ""
        known = list_measures(self._children.steps.values())
        is_decided = halving.is_decided(tuning.rungs, self._judge(step, rate), known, tuning.goal)
        return _SLOWER if is_decided else ""

    def _measure(self, step: StepOutcome, outcome: Outcome) -> StepRate | None:
        is_median = self._tuning.metric == STEP_S
        warm_steps = self._tuning.count_warm_steps(step.detail["setting"])
        return measure(RunFolder.for_job(step.job), outcome, warm_steps, is_median=is_median)

    def _judge(self, step: StepOutcome, rate: StepRate) -> Measurement:
        setting = step.detail["setting"]
        value, *bounds = (
            self._tuning.value_of(setting, step_s, rate.ranks)
            for step_s in (rate.step_s, rate.low_s, rate.high_s)
        )
        return Measurement(setting, step.detail["rung"], value, min(bounds), max(bounds), spread=rate.spread)

    def _note_end(self, name: str, outcome: Outcome) -> None:
        step = self._children.steps[name]
        by_us, reason = parts.ending(outcome)
        how, detail = outcome.status, dict[str, Any](ran_s=outcome.run_seconds(time.time()))
        # A program may end with that code too, as one under timeout(1).
        is_late = outcome.exit_code == _TIME_LIMIT_CODE and outcome.failed_rank is None
        rate = self._measure(step, outcome)
        lack = _explain_lack(RunFolder.for_job(step.job), rate) if rate else ""
        is_whole = how == status.COMPLETED or by_us.startswith(_MEASURED) or is_late
        if is_whole and lack:
            how, reason = status.FAILED, lack
        elif is_whole and rate:
            judged = self._judge(step, rate)
            ended = "" if by_us.startswith(_MEASURED) else self._explain_few(step, rate, is_late=is_late)
            value = describe_value(self._tuning.metric, judged.value or 0.0)
            more = f" ({ended})" if ended else ""
            how, reason = status.COMPLETED, f"{value} over {rate.steps} steps{more}"
            detail |= {
                "metric": judged.value,
                "low": judged.low,
                "high": judged.high,
                "spread": judged.spread,
                "step_s": rate.step_s,
                "measured": rate.steps,
                "ranks": rate.ranks,
                "stopped": by_us == _SLOWER,
                "ended": ended or None,
            }
        elif how == status.COMPLETED:
            fewest = self._tuning.count_warm_steps(step.detail["setting"]) + FEWEST
            how, reason = status.FAILED, f"it made fewer than {fewest} steps with an optimizer of PyTorch"
        elif (
            how == status.FAILED
            and outcome.failed_rank is None
            and not any(
                # It was measured again on this rung already.
                one.detail.get("again")
                and all(one.detail[key] == step.detail[key] for key in ("rung", "setting"))
                for one in self._children.steps.values()
            )
        ):
            # Its supervisor or agent was killed: that says nothing of the setting.
            detail["again"] = True
        elif by_us:
            how = status.FAILED
        self._children.note(e.StepEnded(time.time(), name, how, reason, detail))

    def _explain_few(self, step: StepOutcome, rate: StepRate, *, is_late: bool) -> str:
        """Return why a run has fewer steps than were wanted; empty where it has them."""
        if rate.steps >= self._tuning.rungs[step.detail["rung"]].steps:
            return ""
        made = rate.steps + self._tuning.count_warm_steps(step.detail["setting"])
        return f"its time limit ended it after {made} steps" if is_late else f"it ends after {made} steps"

    def _find_leader(self) -> StepOutcome | None:
        winner = self._find_standing().winner
        own = [
            step
            for step in self._children.steps.values()
            if step.detail["setting"] == winner and step.detail.get("metric") is not None
        ]
        return max(own, key=lambda step: int(step.detail["rung"])) if own else None

    def _publish(self, leader: StepOutcome) -> None:
        """Leave the outputs where they are: every trial was cut off."""

    def _summarize_trials(self, steps: Mapping[str, StepOutcome], leader: StepOutcome | None) -> str:
        said = tuning.describe_counts(self._tuning, steps.values())
        if leader is None:
            return said
        shown = tuning.describe_setting(leader.detail["params"])
        more = tuning.describe_win(self._tuning, steps.values(), leader.detail["setting"])
        return f"{said}; best: {shown}: {leader.reason}, {more}"

    def _explain_failure(self, steps: Mapping[str, StepOutcome], said: str) -> str:
        """Return in one sentence why no setting has won."""
        first = next((step for step in steps.values() if step.status == status.FAILED), None)
        why = f"; {first.job}: {first.reason}" if first else ""
        return f"no setting could be measured ({said}){why}"


def _explain_lack(folder: RunFolder, rate: StepRate) -> str:
    """Return in a few words that ranks of the job have made no steps; empty where all have."""
    ranks = len(read_plan(folder).ranks)
    return f"only {rate.ranks} of {ranks} ranks made steps" if rate.ranks < ranks else ""


# the rate of a job


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
    freedom = len(slowest) - 1
    # How many standard errors a mean may be off in 95 of 100 cases: Student's t, to 2 % for 4 degrees or more.
    quantile = 2.0 + 2.4 / freedom + 2.8 / freedom**2
    spread = quantile * statistics.stdev(slowest) / math.sqrt(len(slowest)) / step_s
    doubt = max(spread, _NEVER_SURER) * step_s
    return StepRate(step_s, max(step_s / 4, step_s - doubt), step_s + doubt, count, len(rows), spread)
