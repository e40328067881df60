"""
v1's hyperparameter searches, and the sweep of today that they are.

Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.hyperdrive
"""

from __future__ import annotations

from drumline.compat.pipeline_steps import identifier
from drumline.compat.script_run_config import ScriptRunConfig, to_command
from drumline.contract.errors import SpecError
from drumline.spec.jobs.sweep import SweepJob
from drumline.spec.parts import search as policies
from drumline.spec.parts import search as space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WEEK_MIN = 10080
"""``max_duration_minutes`` of a search that states none."""


class PrimaryMetricGoal:
    MAXIMIZE = "MAXIMIZE"
    MINIMIZE = "MINIMIZE"


def choice(*options: Any) -> space.Choice:
    """Return an expression that chooses one of the options, or of a single list or range."""
    only = options[0] if len(options) == 1 else None
    return space.Choice(only if isinstance(only, (list, tuple, range)) else options)


def randint(upper: int) -> space.Randint:
    return space.Randint(upper)


def uniform(min_value: float, max_value: float) -> space.Uniform:
    return space.Uniform(min_value, max_value)


def quniform(min_value: float, max_value: float, q: float) -> space.QUniform:
    return space.QUniform(min_value, max_value, q)


def loguniform(min_value: float, max_value: float) -> space.LogUniform:
    """Return a log-uniform expression; ``min_value`` and ``max_value`` are the logarithms of the bounds."""
    return space.LogUniform(min_value, max_value)


def qloguniform(min_value: float, max_value: float, q: float) -> space.QLogUniform:
    return space.QLogUniform(min_value, max_value, q)


def normal(mu: float, sigma: float) -> space.Normal:
    return space.Normal(mu, sigma)


def qnormal(mu: float, sigma: float, q: float) -> space.QNormal:
    return space.QNormal(mu, sigma, q)


def lognormal(mu: float, sigma: float) -> space.LogNormal:
    return space.LogNormal(mu, sigma)


def qlognormal(mu: float, sigma: float, q: float) -> space.QLogNormal:
    return space.QLogNormal(mu, sigma, q)


class RandomParameterSampling:
    """
    Random choice of hyperparameters. ``parameter_space``: by argument of the script, such as ``--lr``, what it may be.
    """

    algorithm = "random"

    def __init__(self, parameter_space: dict[str, Any], properties: Any = None, **kwargs: Any) -> None:
        if not isinstance(parameter_space, dict) or not parameter_space:
            raise SpecError("parameter_space must name a hyperparameter", "{'--lr': uniform(0.01, 0.1)}")
        self.parameter_space = parameter_space


class GridParameterSampling(RandomParameterSampling):
    algorithm = "grid"


class BayesianParameterSampling(RandomParameterSampling):
    algorithm = "bayesian"


class BanditPolicy(policies.BanditPolicy):
    """v1's order of arguments: the slack comes first."""

    def __init__(
        self,
        slack_factor: float | None = None,
        slack_amount: float | None = None,
        evaluation_interval: int = 1,
        delay_evaluation: int = 0,
    ) -> None:
        super().__init__(
            slack_factor=slack_factor or 0,
            slack_amount=slack_amount or 0,
            evaluation_interval=evaluation_interval,
            delay_evaluation=delay_evaluation,
        )


class MedianStoppingPolicy(policies.MedianStoppingPolicy):
    def __init__(self, evaluation_interval: int = 1, delay_evaluation: int = 0) -> None:
        super().__init__(evaluation_interval=evaluation_interval, delay_evaluation=delay_evaluation)


class TruncationSelectionPolicy(policies.TruncationSelectionPolicy):
    def __init__(
        self,
        truncation_percentage: int,
        evaluation_interval: int = 1,
        delay_evaluation: int = 0,
        exclude_finished_jobs: bool = False,
    ) -> None:
        super().__init__(
            truncation_percentage=truncation_percentage,
            evaluation_interval=evaluation_interval,
            delay_evaluation=delay_evaluation,
            exclude_finished_jobs=exclude_finished_jobs,
        )


class NoTerminationPolicy:
    """Every trial runs to its end."""


class HyperDriveConfig:
    """
    A search for hyperparameters. ``run_config``: what each trial runs, an estimator too. Its hyperparameters are
    further arguments.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        hyperparameter_sampling: Any,
        primary_metric_name: str,
        primary_metric_goal: str,
        max_total_runs: int,
        max_concurrent_runs: int | None = None,
        max_duration_minutes: int = _WEEK_MIN,
        policy: Any = None,
        run_config: Any = None,
        estimator: Any = None,
        pipeline: Any = None,
        resume_from: Any = None,
        resume_child_runs: Any = None,
        **kwargs: Any,
    ) -> None:
        program = run_config or estimator
        if not isinstance(program, ScriptRunConfig):
            raise SpecError("a HyperDriveConfig needs a run_config", "run_config=ScriptRunConfig(...)")
        if not isinstance(hyperparameter_sampling, RandomParameterSampling):
            kind = type(hyperparameter_sampling).__name__
            raise SpecError(
                f"hyperparameter_sampling cannot be of type {kind!r}", "give RandomParameterSampling({...})"
            )
        self.run_config = program
        self.hyperparameter_sampling = hyperparameter_sampling
        self.primary_metric_name = primary_metric_name
        self.primary_metric_goal = str(getattr(primary_metric_goal, "value", primary_metric_goal))
        self.max_total_runs = max_total_runs
        self.max_concurrent_runs = max_concurrent_runs
        self.max_duration_minutes = max_duration_minutes
        self.policy = policy
        given = {"pipeline": pipeline, "resume_from": resume_from, "resume_child_runs": resume_child_runs}
        self._warnings = [f"{key}: not used" for key, value in given.items() if value is not None]


def to_sweep(config: HyperDriveConfig) -> SweepJob:
    """Return the job; nothing is read from disk. Raises SpecError."""
    trial = to_command(config.run_config)
    searched = {}
    for argument, expression in config.hyperparameter_sampling.parameter_space.items():
        name = identifier(argument.lstrip("-"))
        flag = argument if argument.startswith("-") else f"--{argument}"
        trial.command = f"{trial.command} {flag} ${{{{search_space.{name}}}}}"
        searched[name] = expression
    minutes = config.max_duration_minutes
    job = SweepJob(
        trial=trial,
        search_space=searched,
        objective={"goal": config.primary_metric_goal.lower(), "primary_metric": config.primary_metric_name},
        sampling_algorithm=config.hyperparameter_sampling.algorithm,
        early_termination=None if isinstance(config.policy, NoTerminationPolicy) else config.policy,
        limits={
            "max_total_trials": config.max_total_runs,
            "max_concurrent_trials": config.max_concurrent_runs,
            "timeout": None if minutes in (None, _WEEK_MIN) else int(minutes) * 60,
        },
    )
    job._warnings += [*trial._warnings, *config._warnings]
    return job
