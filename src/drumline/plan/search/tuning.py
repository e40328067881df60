"""What a tuning tries, launcher settings of a job as a sweep has them in its properties; and what came of it."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import SpecError
from drumline.contract.record import NamedTuple
from drumline.contract.steps import DETAIL
from drumline.contract.words import format_count
from drumline.plan.search.halving import MAXIMIZE, MINIMIZE, Measurement, Rung, find_standing, list_rivals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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


# Names of inputs and variables that say how a job trains, and the numbers that a job has there.


KNOWN_NAMES = {
    "workers": ("workers", "num_workers", "dataloader_num_workers", "dataloader_workers", "data_workers"),
    "batch": ("batch", "batch_size", "per_device_train_batch_size", "train_batch_size", "micro_batch_size"),
    "buckets": ("buckets", "bucket_cap_mb", "bucket_mb", "bucket_size_mb"),
}
"""Names of inputs; variables of a job have the same in capitals."""


def find_number(name: str, job: Any) -> tuple[str, float | None]:
    """Return the target of ``batch`` or ``workers`` in the job, and its value; empty and None where there is none."""
    target = find_target(name, job)
    value = read_current(target, job) if target else None
    return target, to_number(value)


def find_target(name: str, job: Any) -> str:
    """Return what ``workers``, ``batch`` or ``buckets`` sets in the job, an input before a variable; empty: nothing."""
    known = list_literals(job)
    variables = job.environment_variables or {}
    for one in KNOWN_NAMES[name]:
        if one in known:
            return INPUT + one
    return next((ENV + one.upper() for one in KNOWN_NAMES[name] if one.upper() in variables), "")


def list_literals(job: Any) -> list[str]:
    """List the inputs that are a value, and no data."""
    return [name for name, value in (job.inputs or {}).items() if not hasattr(value, "path")]


def read_current(target: str, job: Any) -> Any:
    """Return the job's own value of a target (``Tuning``); None: it has none."""
    if target == PROCS:
        return job.distribution.process_count_per_instance
    if target.startswith(ENV):
        return (job.environment_variables or {}).get(target.removeprefix(ENV))
    return job.inputs[target.removeprefix(INPUT)]


def to_number(value: Any) -> float | None:
    """Return a value of a job file as a number; None: it is none, or not finite."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# What came of a tuning, in words: how clear the win is, and how the best compares with the job's own setting.


def find_newest(steps: Collection[StepOutcome]) -> dict[int, StepOutcome]:
    """Return the newest trial of each setting; one that was repeated does not count."""
    return {step.detail["setting"]: step for step in steps if not step.detail.get("again")}


def describe_setting(params: Mapping[str, Any]) -> str:
    """
    Return the values of a setting in words.

    >>> describe_setting({"procs": 2, "threads": 1})
    'procs 2, threads 1'
    """
    return ", ".join(f"{name} {value}" for name, value in params.items())


def describe_counts(tuning: Tuning, steps: Collection[StepOutcome]) -> str:
    """Return how many settings were measured, in how many runs, and how many failed."""
    failed = _list_failed(steps)
    runs = format_count(len(steps), "run")
    said = f"{len(_list_measured(steps))} of {len(tuning.settings)} settings measured in {runs}"
    return f"{said}, {len(failed)} failed" if failed else said


def describe_win(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> str:
    """Return what is to be said after the figure of the best setting."""
    rivals = find_rivals(tuning, steps, winner)
    parts = [_describe_clearness(tuning, steps, rivals), _describe_gain(tuning, steps, winner, rivals)]
    parts += [_describe_edge(tuning, name, value) for name, value in tuning.params(winner).items()]
    return "; ".join(part for part in parts if part)


def find_rivals(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> list[int]:
    """Return the settings that may be as fast as the one that won, the best first."""
    return list_rivals(winner, tuning.goal, list_measures(steps))


def is_alone(steps: Collection[StepOutcome]) -> bool:
    """Return whether no other setting has a figure with which the best could be compared."""
    return len(_list_measured(steps)) < 2


def find_gain(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> float | None:
    """Return by what part the best is faster than the job's own setting; None if that was not measured."""
    newest = find_newest(steps)
    if tuning.own is None or tuning.own not in newest:
        return None
    best: float | None = newest[winner].detail.get("metric")
    own: float | None = newest[tuning.own].detail.get("metric")
    if not best or not own:
        return None
    return (own / best if tuning.goal == MINIMIZE else best / own) - 1.0


def _list_failed(steps: Collection[StepOutcome]) -> set[int]:
    return {setting for setting, step in find_newest(steps).items() if step.status == status.FAILED}


def _list_measured(steps: Collection[StepOutcome]) -> set[int]:
    known = {step.detail["setting"] for step in steps if step.detail.get("metric") is not None}
    return known - _list_failed(steps)


def _describe_clearness(tuning: Tuning, steps: Collection[StepOutcome], rivals: list[int]) -> str:
    if is_alone(steps):
        return "the only one that could be measured"
    if not rivals:
        return "clearly faster than all others"
    first = describe_setting(tuning.params(rivals[0]))
    who = first if len(rivals) == 1 else f"{len(rivals)} others ({first}; ...)"
    return f"but {who} may be as fast: two runs of one setting may differ by as much"


def _describe_gain(tuning: Tuning, steps: Collection[StepOutcome], winner: int, rivals: list[int]) -> str:
    if tuning.own == winner:
        return "it is the job's own setting"
    gain = find_gain(tuning, steps, winner)
    if gain is None or tuning.own is None:
        return ""
    percent = round(100 * gain)
    faster = f"{percent} % faster than" if percent >= 1 else "as fast as"
    doubt = ", but not clearly" if percent >= 1 and tuning.own in rivals else ""
    return f"{faster} the job's own setting{doubt}: {describe_setting(tuning.params(tuning.own))}"


def _describe_edge(tuning: Tuning, name: str, value: Any) -> str:
    smallest, largest = tuning.edges.get(name, (None, None))
    if value == largest:
        return f"{name} {value} is the largest that was tried: try more"
    return f"{name} {value} is the smallest that was tried: try less" if value == smallest else ""
