"""What is known of the trials of a sweep."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.plan.search.policies import Course, best

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, StepOutcome

_SERVER_S = 2.0
_AGAIN_S = 5.0
"""Between two questions to a server about one trial."""

STOPPED_BY = "its sweep: "
"""Before the reason, where a sweep has canceled a trial itself: as in ``cancel(by=...)``."""


def values_of(job: str, metric: str) -> list[float]:
    """All that the job has logged so far of that metric, in its order."""
    from drumline.control.metrics import of_job

    return [
        point.value for series in of_job(RunFolder.of(job), (metric,), _SERVER_S).series for point in series
    ]


class Progress:
    """The course of a trial under way; each look at it reads only what is new."""

    def __init__(self, job: str, metric: str, goal: str) -> None:
        from drumline.control.metrics import Reader

        self.course = Course(goal)
        self._reader = Reader(RunFolder.of(job), (metric,))
        self._seen: dict[tuple[str, str], int] = {}
        self._next = 0.0

    def look(self) -> None:
        """Blocks for up to 2 s where that asks a server, which it then does not for a while."""
        if time.monotonic() < self._next:
            return
        for series in self._reader.look(_SERVER_S).series:
            seen = self._seen.get((series.run, series.source), 0)
            self.course.add(point.value for point in islice(series, seen, None))
            self._seen[series.run, series.source] = len(series)
        if self._reader.asks_server:
            self._next = time.monotonic() + _AGAIN_S


def logged_by(job: str) -> list[str]:
    """The names of metrics that it has logged."""
    from drumline.control.metrics import latest_of

    return list(latest_of(RunFolder.of(job))[0])


def ending(outcome: Outcome) -> tuple[str, str]:
    """How a trial ended: what it was stopped for by its sweep, else empty; and the reason to show."""
    marker = f"canceled by {STOPPED_BY}"
    if outcome.status == status.CANCELED and outcome.reason.startswith(marker):
        reason = outcome.reason.removeprefix(marker)
        return reason, reason
    return "", outcome.reason


def best_of(steps: Mapping[str, StepOutcome], goal: str) -> StepOutcome | None:
    """Of those that completed, the one with the best metric, the earliest of equals; None when no one has any."""
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
    ``trials``, in the order of their start, and the ``best_trial``, or None.

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
    done.sort(key=lambda step: float(step.detail["metric"]), reverse=goal == "maximize")
    return {step.step: index + 1 for index, step in enumerate(done)}


def _row(step: StepOutcome, goal: str, metric: str, rank: int | None) -> dict[str, Any]:
    from drumline.control import description

    state, reason, value = step.status, step.reason, step.detail.get("metric")
    if not state:
        own = fold(RunFolder.of(step.job).read_events())
        state, reason = own.status, own.reason
        value = best(values_of(step.job, metric), goal)
    return {
        "trial": step.job,
        "status": state,
        "rank": rank,
        "metric": value,
        "params": step.detail.get("params") or {},
        "stopped_early": bool(step.detail.get("stopped")),
        "reason": reason,
        "started_at": description.utc(step.started),
        "ended_at": description.utc(step.ended),
    }
