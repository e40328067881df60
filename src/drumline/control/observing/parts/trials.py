"""The facts about the trials of a sweep."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.jobs.lookup import is_own
from drumline.plan.search.policies import Course, best

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, StepOutcome

_SERVER_S = 2.0
_SERVER_PAUSE_S = 5.0
"""Between two questions to a server about one trial."""

STOPPED_BY = "its sweep: "
"""Before the reason, where a sweep has canceled a trial itself: as in ``cancel(by=...)``."""


def values_of(job: str, metric: str) -> list[float]:
    """Return all values of the metric that the job has logged so far, in order."""
    from drumline.control.observing.metrics import read_metrics

    folder = RunFolder.for_job(job)
    if not is_own(folder):
        return []
    return [point.value for series in read_metrics(folder, (metric,), _SERVER_S).series for point in series]


class TrialProgress:
    """The course of a trial under way; each look at it reads only what is new."""

    def __init__(self, job: str, metric: str, goal: str) -> None:
        from drumline.control.observing.metrics import MetricsReader

        self.course = Course(goal)
        self._reader = MetricsReader(RunFolder.for_job(job), (metric,))
        self._seen: dict[tuple[str, str], int] = {}
        self._next = 0.0

    def look(self) -> None:
        """Read new values. Blocks for up to 2 s if that asks a server, which is then not asked for a while."""
        if time.monotonic() < self._next:
            return
        for series in self._reader.look(_SERVER_S).series:
            seen = self._seen.get((series.run, series.source), 0)
            self.course.add(point.value for point in islice(series, seen, None))
            self._seen[series.run, series.source] = len(series)
        if self._reader.asks_server:
            self._next = time.monotonic() + _SERVER_PAUSE_S


def logged_by(job: str) -> list[str]:
    """Return the names of the metrics that the job has logged."""
    from drumline.control.observing.metrics import read_latest

    return list(read_latest(RunFolder.for_job(job))[0])


def ending(outcome: Outcome) -> tuple[str, str]:
    """Return why the sweep stopped a trial, empty if it did not, and the reason to show."""
    marker = f"canceled by {STOPPED_BY}"
    if outcome.status == status.CANCELED and outcome.reason.startswith(marker):
        reason = outcome.reason.removeprefix(marker)
        return reason, reason
    return "", outcome.reason


def best_of(steps: Mapping[str, StepOutcome], goal: str) -> StepOutcome | None:
    """Return the completed trial with the best metric, the earliest of equals; None without any."""
    found: StepOutcome | None = None
    for step in steps.values():
        value = step.detail.get("metric")
        if step.status != status.COMPLETED or value is None:
            continue
        if found is None or best([found.detail["metric"], value], goal) != found.detail["metric"]:
            found = step
    return found


def describe(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """
    Return ``trials``, in the order of their start, and the ``best_trial``, or None.

    ``metric``: the best value of a trial so far. ``rank``: 1 for the best of those that completed; None for others.
    """
    objective = (folder.read_json(folder.graph) or {}).get("objective") or {}
    goal, metric = str(objective.get("goal")), str(objective.get("primary_metric"))
    ranks = _ranks(outcome.steps, goal)
    rows = [_row(step, goal, metric, ranks.get(step.step)) for step in outcome.steps.values()]
    leader = next((row for row in rows if row["rank"] == 1), None)
    return {
        "trials": rows,
        "best_trial": leader and {key: leader[key] for key in ("trial", "metric", "params")},
    }


def _ranks(steps: Mapping[str, StepOutcome], goal: str) -> dict[str, int]:
    done = [
        step
        for step in steps.values()
        if step.status == status.COMPLETED and step.detail.get("metric") is not None
    ]
    sign = -1.0 if goal == "maximize" else 1.0
    # Of a tuning, what was measured longer is known better.
    done.sort(key=lambda step: (-(step.detail.get("rung") or 0), sign * float(step.detail["metric"])))
    return {step.step: index + 1 for index, step in enumerate(done)}


def _row(step: StepOutcome, goal: str, metric: str, rank: int | None) -> dict[str, Any]:
    from drumline.control.times import utc

    state, reason, value = step.status, step.reason, step.detail.get("metric")
    own = None
    if not state:
        folder = RunFolder.for_job(step.job)
        # A job can write to its own events, and name another user's there.
        own = fold(folder.read_events() if is_own(folder) else ())
        state, reason = own.status, own.why
        value = best(values_of(step.job, metric), goal)
    return {
        "trial": step.job,
        "status": state,
        "rank": rank,
        "metric": value,
        "params": step.detail.get("params") or {},
        "stopped_early": bool(step.detail.get("stopped")),
        "reason": reason,
        "started_at": utc(step.started),
        "ended_at": utc(step.ended),
        "seconds": step.run_seconds(own, time.time()),
    }
