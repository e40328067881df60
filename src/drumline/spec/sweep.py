"""A sweep job: many trials of one command over a search space."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.early_termination import to_policy
from drumline.spec.entity import Entity
from drumline.spec.foreign.parts import ours
from drumline.spec.identity import to_identity
from drumline.spec.io import Inputs, Outputs, fill
from drumline.spec.job import Job, to_services
from drumline.spec.resources import QueueSettings, to_queue_settings, to_resources
from drumline.spec.sampling import to_sampling
from drumline.spec.search_space import ParameterExpression, SearchSpace
from drumline.spec.trial import as_written, no_lookup, program_of, to_trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.command import Command


class Objective(Entity):
    """``goal``: ``minimize`` or ``maximize``, in any case, of the metric that the trials log."""

    _fields = ("goal", "primary_metric")
    _folded = ("goal",)

    def __init__(self, goal: str | None, primary_metric: str | None = None, **kwargs: Any) -> None:
        self.goal = goal
        self.primary_metric = primary_metric


class SweepJobLimits(Entity):
    """``timeout`` and ``trial_timeout`` are in seconds."""

    _fields = ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout")
    _whole = _fields

    def __init__(
        self,
        *,
        max_concurrent_trials: int | None = None,
        max_total_trials: int | None = None,
        timeout: int | None = None,
        trial_timeout: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        self.max_total_trials = max_total_trials
        self.max_concurrent_trials = max_concurrent_trials
        self.timeout = timeout
        self.trial_timeout = trial_timeout


class SweepJob(Job):
    """
    Setting ``trial``, ``objective``, ``limits``, ``search_space``... to a dictionary turns it into the object.

    What a sweep lacks it takes from a ``trial`` that is a command job: compute, inputs, outputs, the limit on time.
    """

    type = "sweep"
    _fields = (
        "type",
        "name",
        "display_name",
        "experiment_name",
        "description",
        "tags",
        "properties",
        "trial",
        "search_space",
        "objective",
        "sampling_algorithm",
        "early_termination",
        "limits",
        "compute",
        "inputs",
        "outputs",
        "resources",
        "queue_settings",
        "identity",
        "services",
        "parent_job_name",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        trial: Any = None,
        search_space: dict[str, Any] | None = None,
        objective: Any = None,
        sampling_algorithm: Any = None,
        early_termination: Any = None,
        limits: Any = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        resources: Any = None,
        queue_settings: Any = None,
        identity: Any = None,
        parent_job_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trial = trial
        self.search_space: SearchSpace = search_space  # type: ignore[assignment]
        self.objective = objective
        self.sampling_algorithm = sampling_algorithm
        self.early_termination = early_termination
        self.limits = limits
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.resources = resources
        self.queue_settings = queue_settings
        self.identity = identity
        self.parent_job_name = parent_job_name
        self._take_after(self.trial)
        builder.register(self)

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS

    def set_limits(
        self,
        *,
        max_concurrent_trials: int | None = None,
        max_total_trials: int | None = None,
        timeout: int | None = None,
        trial_timeout: int | None = None,
    ) -> None:
        """Set those given, and leave the others as they are. Times are in seconds."""
        given = {
            "max_concurrent_trials": max_concurrent_trials,
            "max_total_trials": max_total_trials,
            "timeout": timeout,
            "trial_timeout": trial_timeout,
        }
        self.limits = self.limits or SweepJobLimits()
        for name, value in given.items():
            if value is not None:
                setattr(self.limits, name, value)

    def set_objective(self, *, goal: str | None = None, primary_metric: str | None = None) -> None:
        """Set those given, and leave the others as they are."""
        before = self.objective or Objective(None)
        self.objective = Objective(goal or before.goal, primary_metric or before.primary_metric)

    def _take_after(self, trial: Any) -> None:
        from drumline.spec.command import Command

        if not isinstance(trial, Command):
            return
        builder.withdraw(trial)
        self.compute = self.compute or trial.compute
        self._base_path = self._base_path or trial._base_path
        given, space = apart(trial.inputs)
        self.inputs = self.inputs or deepcopy(given)  # type: ignore[assignment]
        self.outputs = self.outputs or deepcopy(trial.outputs)
        for name, expression in space.items():
            self.search_space.setdefault(name, deepcopy(expression))
        timeout = trial.limits.timeout if trial.limits else None
        if timeout is not None and (self.limits is None or self.limits.trial_timeout is None):
            self.set_limits(trial_timeout=timeout)

    def _values(self) -> dict[str, Any]:
        values = super()._values()
        if "trial" in values:
            values["trial"] = as_written(self)
        return values


Sweep = SweepJob


def _converted(kind: type[Entity]) -> Any:
    def convert(value: Any) -> Any:
        value = ours(value)
        if value is None or isinstance(value, kind):
            return value
        if isinstance(value, dict):
            return kind(**({"goal": None, **value} if kind is Objective else value))
        word = "objective" if kind is Objective else "limits"
        raise SpecError(f"{word} cannot be of type {type(value).__name__!r}", f"give {kind.__name__}(...)")

    return convert


_CONVERTERS: dict[str, Any] = {
    "trial": to_trial,
    "search_space": lambda value: fill(SearchSpace(), value),
    "objective": _converted(Objective),
    "sampling_algorithm": to_sampling,
    "early_termination": to_policy,
    "limits": _converted(SweepJobLimits),
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "resources": to_resources,
    "queue_settings": to_queue_settings,
    "identity": to_identity,
    "services": to_services,
}


def apart(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those that have a value, and those that are hyperparameters."""
    space = {name: value for name, value in inputs.items() if isinstance(value, ParameterExpression)}
    return {name: value for name, value in inputs.items() if name not in space}, space


def sweep_of(  # noqa: PLR0913 - azure-ai-ml's signature
    job: Command,
    *,
    primary_metric: str,
    goal: str,
    sampling_algorithm: Any = "random",
    compute: str | None = None,
    max_concurrent_trials: int | None = None,
    max_total_trials: int | None = None,
    timeout: int | None = None,
    trial_timeout: int | None = None,
    early_termination_policy: Any = None,
    search_space: dict[str, Any] | None = None,
    identity: Any = None,
    queue_settings: Any = None,
    job_tier: str | None = None,
    priority: str | None = None,
) -> SweepJob:
    """
    ``Command.sweep``: the job's inputs that are parameter expressions become the search space, and so does what
    ``search_space`` gives. The job itself is left as it is.

    timeout, trial_timeout: seconds. Raises SpecError.
    """
    inputs, space = apart(_inputs_of(job))
    space |= search_space or {}
    if job_tier is not None or priority is not None:
        queue_settings = QueueSettings(job_tier=job_tier, priority=priority)
    builder.withdraw(job)
    made = SweepJob(
        search_space=deepcopy(space),
        objective=Objective(goal, primary_metric),
        sampling_algorithm=sampling_algorithm,
        early_termination=early_termination_policy,
        compute=compute or job.compute,
        inputs={name: deepcopy(value) for name, value in inputs.items() if name not in space},
        outputs=deepcopy(job.outputs),
        queue_settings=queue_settings,
        identity=identity or deepcopy(job.identity),
        name=job.name,
        display_name=job.display_name,
        description=job.description,
        experiment_name=job.experiment_name,
        tags=dict(job.tags),
        properties=dict(job.properties),
        base_path=job._base_path,
    )
    made.trial = job.called if isinstance(job.called, str) else program_of(job, made)
    made.set_limits(
        max_concurrent_trials=max_concurrent_trials,
        max_total_trials=max_total_trials,
        timeout=timeout,
        trial_timeout=trial_timeout or (job.limits.timeout if job.limits else None),
    )
    return made


def _inputs_of(job: Command) -> dict[str, Any]:
    """With what the job's component declares a default for."""
    if job.called is None or isinstance(job.called, str):
        return dict(job.inputs)
    from drumline.spec.steps import filled_in

    return dict(filled_in(job, no_lookup).inputs)  # type: ignore[attr-defined]
