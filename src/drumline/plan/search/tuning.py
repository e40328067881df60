"""What a tuning tries: launcher settings of a job, as the sweep that tries them has them in its properties."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.contract.record import NamedTuple
from drumline.contract.steps import DETAIL
from drumline.plan.search.halving import MAXIMIZE, MINIMIZE, Measurement, Rung, find_standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.outcome import StepOutcome
    from drumline.plan.search.halving import Standing
    from drumline.spec.jobs.command import Command

PROPERTY = "drumline.tuning"
"""The property of a sweep that is a tuning."""

THROUGHPUT, LATENCY = "throughput", "latency"
PROCS = "procs"
"""The target of a parameter; others are ``env:NAME`` and ``input:NAME``."""

ENV, INPUT = "env:", "input:"

SAMPLES, STEPS, RANK_STEPS, STEP_S = "samples_per_s", "steps_per_s", "rank_steps_per_s", "step_s"
"""What is compared: samples or steps per second, those of all ranks added up, or the seconds of a step."""

UNITS = {SAMPLES: "samples/s", STEPS: "steps/s", RANK_STEPS: "steps/s of all ranks", STEP_S: "seconds a step"}

WARM_STEPS, MOST_WARM_STEPS = 5, 100
"""Not measured: PyTorch chooses its buckets anew after the first step, and caches fill."""

_READY_BATCHES = 2
"""Of each worker of a DataLoader, as PyTorch has it: after a slow first step they say nothing of the loader."""

_RESTARTS = ("max_restarts", "restart_on", "notify")
"""Settings of a job that the measurements of a tuning do not have: a failure is a result."""

_UNMEASURED = ("steps", "hang_action")
"""Settings that no measurement has: the steps are what is wanted, and a hang is told of by who measures."""


class Tuning(NamedTuple):
    """
    ``targets``: what each parameter sets, by the name that the user gave. ``settings``: values in that order.

    ``batch``: the batch of a rank, or with ``strong`` of all ranks; ``batch_of``: the parameter that is it instead.
    ``workers``, ``workers_of``: the same of the workers of its DataLoader. ``own``: the setting that the job file has,
    if it is tried. ``edges``: by parameter, the smallest and the largest of its values if there may be a better one
    beyond, else None.
    """

    metric: str
    targets: Mapping[str, str]
    settings: tuple[tuple[Any, ...], ...]
    rungs: tuple[Rung, ...]
    strong: bool = False
    batch: float | None = None
    batch_of: str = ""
    workers: float | None = None
    workers_of: str = ""
    own: int | None = None
    edges: Mapping[str, Sequence[Any]] = MappingProxyType({})

    @property
    def goal(self) -> str:
        return MINIMIZE if self.metric == STEP_S else MAXIMIZE

    def find_standing(self, steps: Iterable[StepOutcome]) -> Standing:
        """Return what is to be done next. ``steps``: the trials of the sweep so far."""
        return find_standing(self.rungs, len(self.settings), self.goal, list_measures(steps))

    def params(self, setting: int) -> dict[str, Any]:
        """Return the values of a setting by the names of their parameters."""
        return dict(zip(self.targets, self.settings[setting], strict=True))

    def count_warm_steps(self, setting: int) -> int:
        """Return how many steps of a setting are not measured: those that the batches take which are ready."""
        workers = self.params(setting)[self.workers_of] if self.workers_of else self.workers
        return count_warm_steps(workers, WARM_STEPS)

    def value_of(self, setting: int, step_s: float, ranks: int) -> float:
        """Return what is compared, of a setting whose steps take that long on so many ranks."""
        if self.metric == STEP_S:
            return step_s
        of_step = 1.0 if self.strong or self.metric == STEPS else float(ranks)
        if self.metric == SAMPLES:
            of_step *= float(self.params(setting)[self.batch_of] if self.batch_of else self.batch or 1)
        return of_step / step_s


def count_warm_steps(workers: Any, least: int) -> int:
    """
    Return how many first steps are not measured: those that the batches take which are ready. ``workers``: of each
    rank's DataLoader, as a job file has the number; None: not known.

    >>> count_warm_steps(None, 5), count_warm_steps("8", 5), count_warm_steps(500, 5)
    (5, 17, 100)
    """
    try:
        ready = _READY_BATCHES * int(float(workers or 0)) + 1
    except (ValueError, TypeError, OverflowError):
        ready = 0
    return min(max(least, ready), MOST_WARM_STEPS)


def list_measured_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a job's ``drumline`` settings as a measurement has them: nothing ends a hang before who measures tells of it,
    or lets it last.
    """
    kept = {name: value for name, value in given.items() if name not in _UNMEASURED}
    if "hang_after" in kept and not float(kept["hang_after"]):
        del kept["hang_after"]
    return kept


def list_measures(steps: Iterable[StepOutcome]) -> list[Measurement]:
    """Return what the trials say of their settings; a trial that was repeated says nothing."""
    return [
        Measurement(
            step.detail["setting"],
            step.detail["rung"],
            step.detail.get("metric"),
            step.detail.get("low") or 0.0,
            step.detail.get("high") or 0.0,
            is_over=bool(step.status),
            spread=step.detail.get("spread"),
        )
        for step in steps
        if not step.detail.get("again")
    ]


def to_text(tuning: Tuning) -> str:
    """Return the value of the property."""
    return json.dumps({**tuning._asdict(), "edges": dict(tuning.edges)}, ensure_ascii=False)


def from_properties(properties: Mapping[str, Any] | None) -> Tuning | None:
    """Return the tuning that a sweep is; None for any other. Raises SpecError for a property that none has written."""
    text = (properties or {}).get(PROPERTY)
    if text is None:
        return None
    try:
        found = json.loads(text)
        found["settings"] = tuple(tuple(one) for one in found["settings"])
        found["rungs"] = tuple(Rung(*one) for one in found["rungs"])
        tuning = Tuning(**found)
        for number in range(len(tuning.settings)):
            tuning.params(number)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise SpecError(f"properties: {PROPERTY} is no tuning", "drumline tune -f FILE") from error
    return tuning


def apply_setting(job: Command, targets: Mapping[str, str], params: Mapping[str, Any]) -> None:
    """Set the values in the job, as its file would have them."""
    for name, value in params.items():
        target = targets[name]
        if target == PROCS:
            job.distribution.process_count_per_instance = value
        elif target.startswith(ENV):
            job.environment_variables = {
                **(job.environment_variables or {}),
                target.removeprefix(ENV): str(value),
            }
        else:
            job.inputs[target.removeprefix(INPUT)] = value


def prepare_measured(job: Command, variables: Mapping[str, Any], tuning: Tuning, setting: int) -> None:
    """
    Make a sweep's trial the measurement of a setting. ``variables``: the job's own, without those of trials, which
    would differ from the job's in the end and give each its own warm interpreter.
    """
    params = tuning.params(setting)
    job.environment_variables = {**variables, DETAIL: "1"}
    settings = list_measured_settings(job.drumline or {})
    job.drumline = {name: value for name, value in settings.items() if name not in _RESTARTS}
    job.properties = {name: value for name, value in job.properties.items() if name != PROPERTY}
    shown = ", ".join(f"{name} {value}" for name, value in params.items())
    job.display_name = f"{job.parent_job_name}: {shown}"
    job.tags = {**job.tags, "hyperparameters": json.dumps(params, ensure_ascii=False)}
    apply_setting(job, tuning.targets, params)


def describe_value(metric: str, value: float) -> str:
    """
    Return the value with its unit.

    >>> describe_value(STEP_S, 0.0523), describe_value(SAMPLES, 1234.5)
    ('52.3 ms a step', '1234 samples/s')
    """
    if metric == STEP_S:
        return f"{_short(1000 * value)} ms a step"
    return f"{_short(value)} {UNITS[metric]}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
