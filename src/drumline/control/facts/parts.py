"""
The parts of a job: the trials of a sweep, the steps of a pipeline as a graph, the experiments of DeepSpeed's autotuner,
and the reports that jobs were run for.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DAMAGED, DamagedError, NotFoundError
from drumline.contract.folder import RunFolder, home
from drumline.contract.outcome import fold
from drumline.contract.record import ABSENT, NamedTuple
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import all_names, folder_of, is_own
from drumline.control.times import utc
from drumline.engines.engine_table import is_elsewhere
from drumline.plan.search.policies import Course, best

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from drumline.contract.outcome import ExperimentOutcome, Outcome, StepOutcome
    from drumline.contract.record import Absent

_SERVER_S = 2.0
_SERVER_PAUSE_S = 5.0
"""Between two questions to a server about one trial."""

STOPPED_BY = "its sweep: "
"""Before the reason, where a sweep has canceled a trial itself: as in ``cancel(by=...)``."""


class StepFacts(NamedTuple):
    """A step of a pipeline. ``job``: None before it has one. ``not_reused``: why no earlier job stands for it."""

    step: str
    status: str
    job: str | None
    reused: bool
    not_reused: str
    needs: list[str]
    started_at: float | None
    ended_at: float | None
    reason: str
    seconds: float | None


class TrialFacts(NamedTuple):
    """A trial of a sweep. ``metric``: its best value so far. ``rank``: 1 for the best of those that completed."""

    trial: str
    status: str
    rank: int | None
    metric: float | None
    params: dict[str, Any]
    stopped_early: bool
    reason: str
    started_at: float | None
    ended_at: float | None
    seconds: float | None

    @property
    def job(self) -> str:
        return self.trial


Part = StepFacts | TrialFacts


def values_of(job: str, metric: str) -> list[float]:
    """Return all values of the metric that the job has logged so far, in order."""
    from drumline.control.facts.metrics import read_metrics

    folder = RunFolder.for_job(job)
    if not is_own(folder):
        return []
    return [point.value for series in read_metrics(folder, (metric,), _SERVER_S).series for point in series]


class TrialProgress:
    """The course of a trial under way; each look at it reads only what is new."""

    def __init__(self, job: str, metric: str, goal: str) -> None:
        from drumline.control.facts.metrics import MetricsReader

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
    from drumline.control.facts.metrics import read_latest

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


def list_steps(folder: RunFolder, outcome: Outcome) -> list[StepFacts]:
    """List the steps of a pipeline in their order, those too that have not started."""
    return [
        _look_at_step(planned, outcome.steps.get(str(planned.get("name"))))
        for planned in (folder.read_json(folder.graph) or {}).get("steps") or ()
    ]


def _look_at_step(planned: Mapping[str, Any], step: StepOutcome | None) -> StepFacts:
    name, needs = str(planned.get("name")), list(planned.get("needs") or ())
    if step is None:
        return StepFacts(name, status.NOT_STARTED, None, False, "", needs, None, None, "", None)
    own = _read_own_outcome(step)
    return StepFacts(
        name,
        # A driver says that it starts a step before there is a job of it, and may be killed in between.
        own.status if own else step.status or status.NOT_STARTED,
        step.job or None,
        bool(step.detail.get("reused")),
        str(step.detail.get("not_reused") or ""),
        needs,
        step.started,
        step.ended,
        own.why if own else step.reason,
        step.run_seconds(own, time.time()),
    )


def _read_own_outcome(step: StepOutcome) -> Outcome | None:
    """Return the outcome of a step under way, by its own events or its engine; None for one that has ended."""
    folder = RunFolder.for_job(step.job)
    if step.status or not step.job or not is_own(folder):
        return None
    outcome = fold(folder.read_events())
    return read_outcome(folder) if is_elsewhere(outcome.engine) else outcome


def list_trials(folder: RunFolder, outcome: Outcome) -> list[TrialFacts]:
    """List the trials of a sweep in the order of their start."""
    objective = (folder.read_json(folder.graph) or {}).get("objective") or {}
    goal, metric = str(objective.get("goal")), str(objective.get("primary_metric"))
    ranks = _ranks(outcome.steps, goal)
    return [_look_at_trial(step, goal, metric, ranks.get(step.step)) for step in outcome.steps.values()]


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


def _look_at_trial(step: StepOutcome, goal: str, metric: str, rank: int | None) -> TrialFacts:
    state, reason, value = step.status, step.reason, step.detail.get("metric")
    own = None
    if not state:
        folder = RunFolder.for_job(step.job)
        # A job can write to its own events, and name another user's there.
        own = fold(folder.read_events() if is_own(folder) else ())
        state, reason = own.status, own.why
        value = best(values_of(step.job, metric), goal)
    return TrialFacts(
        step.job,
        state,
        rank,
        value,
        step.detail.get("params") or {},
        bool(step.detail.get("stopped")),
        reason,
        step.started,
        step.ended,
        step.run_seconds(own, time.time()),
    )


# the experiments of an autotuner, which are processes of the job and no jobs


_MOST = 2000


class ExperimentFacts(NamedTuple):
    """An experiment as programs read it; its metrics are absent in brief."""

    experiment: str
    number: int | None
    status: str
    reason: str
    began_at: str | None
    ended_at: str | None
    seconds: float | None
    metrics: dict[str, float | str] | Absent


def list_experiments(folder: RunFolder, outcome: Outcome, *, brief: bool) -> list[ExperimentFacts]:
    """Return the experiments in their order. ``brief``: without their metrics."""
    measured: dict[str, dict[str, float | str]] = {}
    if not brief:
        from drumline.control.facts import metrics

        for (experiment, name), point in metrics.read_experiments(folder).items():
            measured.setdefault(experiment, {})[name] = metrics.to_json_number(point.value)
    return [
        ExperimentFacts(
            one.experiment,
            one.number,
            _find_status(one, outcome),
            one.reason,
            utc(one.began),
            utc(one.ended),
            None if one.began is None or one.ended is None else round(max(0.0, one.ended - one.began), 3),
            ABSENT if brief else measured.get(one.experiment, {}),
        )
        for one in list(outcome.experiments.values())[:_MOST]
    ]


class ExperimentTimes(NamedTuple):
    experiment: str
    status: str
    reason: str
    from_s: float
    to_s: float | None


def list_times(outcome: Outcome, zero: float, until: float) -> list[ExperimentTimes]:
    """Return when those experiments ran that began in that time, in seconds since ``zero``."""
    return [
        ExperimentTimes(
            one.experiment,
            _find_status(one, outcome),
            one.reason,
            round(one.began - zero, 6),
            None if one.ended is None else round(one.ended - zero, 6),
        )
        for one in outcome.experiments.values()
        if one.began is not None and zero <= one.began < until
    ]


def _find_status(one: ExperimentOutcome, outcome: Outcome) -> str:
    if one.status:
        return one.status
    if not outcome.is_final:
        return status.RUNNING
    return status.CANCELED if outcome.status == status.CANCELED else status.FAILED


# reports that jobs were run for, in the run folder of each of these jobs


_MOST_REPORTS = 100


def keep_report(file: str, values: Mapping[str, Any], jobs: Iterable[str]) -> None:
    """Write a report into the run folder of each of its jobs. An empty name stands for a job that was not run."""
    text = json.dumps(values)
    for job in filter(None, jobs):
        folder = RunFolder.for_job(job)
        if folder.exists():
            with contextlib.suppress(OSError):
                folder.write(os.path.join(folder.path, file), text)


def read_report(
    name: str, file: str, describe: Callable[[dict[str, Any]], dict[str, Any]], missing: NotFoundError
) -> dict[str, Any]:
    """Return what is shown of the report that a job was run for. Raises ``missing`` without one, DamagedError."""
    folder = folder_of(name)
    data = folder.read_json(os.path.join(folder.path, file))
    if data is None:
        raise missing
    try:
        return describe(data)
    except DAMAGED as error:
        raise DamagedError(f"{file} of job {name} is damaged: {type(error).__name__}") from error


def list_reports(
    file: str, summarize: Callable[[dict[str, Any]], tuple[dict[str, Any], list[str]]]
) -> list[dict[str, Any]]:
    """
    List the newest reports, each once, at the first of its jobs that is still there. ``summarize``: returns what is
    listed of a report, and its jobs.
    """
    made: dict[str, float] = {}
    place = os.path.join(home(), "jobs")
    for name in all_names():
        with contextlib.suppress(OSError):
            made[name] = os.stat(f"{place}/{name}/{file}", follow_symlinks=False).st_mtime
    found: list[dict[str, Any]] = []
    for name, at in sorted(made.items(), key=lambda one: -one[1]):
        folder = RunFolder.for_job(name)
        if len(found) >= _MOST_REPORTS:
            break
        if not is_own(folder):
            continue
        with contextlib.suppress(*DAMAGED):
            listed, jobs = summarize(folder.read_json(os.path.join(folder.path, file)) or {})
            if next((job for job in jobs if job in made), "") == name:
                found.append({"job": name, **listed, "title": listed["title"] or name, "made": utc(at)})
    return found
