"""
The search that a sweep asks for, its numbers checked: Azure's client accepts a sweep of no trial or between 1 and 0.
"""

from __future__ import annotations

import json
import math
import sys
from copy import deepcopy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from drumline.contract import extras
from drumline.contract.errors import PlanError, Problem
from drumline.contract.record import NamedTuple
from drumline.plan.search import draw
from drumline.spec import placeholders
from drumline.spec.jobs.command import Command
from drumline.spec.parts.resources import CommandJobLimits
from drumline.spec.parts.search import ParameterExpression
from drumline.spec.paths import is_remote, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.spec.jobs.sweep import ParameterizedCommand, SweepJob
    from drumline.spec.parts.search import EarlyTerminationPolicy


MOST_TRIALS = 1000
"""Source: https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#set-limits-for-your-sweep-job"""


class Search(NamedTuple):
    """The facts that a sampler needs."""

    space: Mapping[str, ParameterExpression]
    algorithm: str
    """``random``, ``grid`` or ``bayesian``."""

    goal: str
    """``minimize`` or ``maximize``."""

    seed: str
    """The one that was given, else the sweep's name: the same for whoever asks again."""

    rule: str = "random"
    base: float = math.e


class SearchRequest(NamedTuple):
    search: Search
    primary_metric: str
    policy: EarlyTerminationPolicy | None
    max_total_trials: int
    max_concurrent_trials: int
    timeout_s: float | None
    trial_timeout_s: float | None


def request_of(sweep: SweepJob) -> SearchRequest:
    """Return the search of a sweep. Raises PlanError that names every wrong field, and one for a missing package."""
    limits, algorithm = sweep.limits, sweep.sampling_algorithm
    wrong = [
        *_of_limits(limits),
        *_of_space(sweep.search_space),
        *_of_policy(sweep.early_termination),
        *_of_objective(sweep.objective),
    ]
    base = _base(getattr(algorithm, "logbase", None))
    if base is None:
        what = f"sampling_algorithm.logbase: {algorithm.logbase!r} is neither 'e' nor a number above 0 other than 1"
        wrong.append(Problem(what, path="sampling_algorithm.logbase"))
    if wrong or base is None:
        raise PlanError(wrong)
    seed = getattr(algorithm, "seed", None)
    search = Search(
        space=sweep.search_space,
        algorithm=str(getattr(algorithm, "type", algorithm) or "random").lower(),
        goal=sweep.objective.goal,
        seed=str(sweep.name if seed is None else seed),
        rule=str(getattr(algorithm, "rule", None) or "random"),
        base=base,
    )
    _check_searchable(search)
    total = limits.max_total_trials
    return SearchRequest(
        search=search,
        primary_metric=sweep.objective.primary_metric,
        policy=sweep.early_termination,
        max_total_trials=total,
        max_concurrent_trials=min(limits.max_concurrent_trials or total, total),
        timeout_s=_seconds(limits.timeout),
        trial_timeout_s=_seconds(limits.trial_timeout),
    )


def _check_searchable(search: Search) -> None:
    """Check what only some trial would show. Raises PlanError."""
    for end in (0.0, 1.0):
        draw.draw(draw.by_path(search.space), draw.Constant(end), search.base)
    if search.algorithm == "grid":
        next(draw.combinations(search.space), None)
    package = {"bayesian": "optuna"}.get(search.algorithm) or {"sobol": "scipy"}.get(search.rule)
    if package and find_spec(package) is None:
        name = search.algorithm if package == "optuna" else f"rule: {search.rule}"
        raise PlanError(
            f"sampling_algorithm: {name} needs the package {package}, which is not installed",
            extras.install_line("sweep"),
            path="sampling_algorithm",
        )


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _base(written: Any) -> float | None:
    """Return the base of a logarithm; None for what cannot be one."""
    if written is None or str(written).lower() == "e":
        return math.e
    try:
        base = float(written)
    except (TypeError, ValueError):
        return None
    return base if base > 0 and base != 1 and base - base == 0 else None


def _of_limits(limits: Any) -> Iterator[Problem]:
    if limits is None or limits.max_total_trials is None:
        yield Problem("limits.max_total_trials: it is missing", path="limits", hint="how many trials at most")
        return
    for name, most in (
        ("max_total_trials", MOST_TRIALS),
        ("max_concurrent_trials", MOST_TRIALS),
        ("timeout", None),
        ("trial_timeout", None),
    ):
        value = getattr(limits, name)
        path = f"limits.{name}"
        if value is None:
            continue
        if not isinstance(value, int) or value < 1:
            word = "a number of seconds above 0" if most is None else f"between 1 and {most}"
            yield Problem(f"{path}: {value!r} is not {word}", path=path)
        elif most is not None and value > most:
            yield Problem(f"{path}: {value} is not between 1 and {most}", path=path)


def _of_objective(objective: Any) -> Iterator[Problem]:
    if objective is None:
        yield Problem("objective: it is missing", path="objective", hint="a goal and a primary_metric")
        return
    if objective.goal not in ("minimize", "maximize"):
        what = f"objective.goal: {objective.goal!r} is neither 'minimize' nor 'maximize'"
        yield Problem(what, path="objective.goal")
    if not objective.primary_metric:
        yield Problem("objective.primary_metric: it is missing", path="objective.primary_metric")


def _of_space(space: Mapping[str, ParameterExpression]) -> Iterator[Problem]:
    if not space:
        yield Problem("search_space: there is nothing to search", path="search_space")
    for path, expression in draw.by_path(space).items():
        what = _mistake(expression)
        if what:
            yield Problem(f"search_space.{path}: {what}", path=f"search_space.{path}")


def _mistake(expression: Any) -> str:
    """Return what is wrong with an expression; empty when nothing is."""
    missing = next((name for name in expression._fields if getattr(expression, name, None) is None), "")
    if missing:
        return f"{missing} is missing"
    numbers = [getattr(expression, name) for name in expression._fields if name not in ("type", "values")]
    if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
        return "its bounds are not numbers"
    odd = next((number for number in numbers if not abs(number) <= sys.float_info.max), None)
    if odd is not None:
        return (
            "it has a bound that is not finite"
            if isinstance(odd, float)
            else "it has a bound that is too large"
        )
    if expression.type == "choice":
        return _mistake_in(expression.values)
    if "min_value" in expression._fields and expression.min_value > expression.max_value:
        return f"min_value {expression.min_value} is above max_value {expression.max_value}"
    for name in ("sigma", "q"):
        if name in expression._fields and getattr(expression, name) <= 0:
            return f"{name} {getattr(expression, name)} is not above 0"
    if expression.type == "randint" and expression.upper < 1:
        return f"upper {expression.upper} is below 1"
    return ""


def _mistake_in(values: list[Any]) -> str:
    """Return what is wrong with the values of a choice: all are texts in a command, sooner or later."""
    if not values:
        return "there is nothing to choose from"
    texts = (
        text
        for value in values
        for text in ((*value, *value.values()) if isinstance(value, dict) else (value,))
    )
    if any(not isinstance(name, str) for value in values if isinstance(value, dict) for name in value):
        return "the names in a mapping are text"
    return next(filter(None, map(describe_refusal, texts)), "")


def _of_policy(policy: Any) -> Iterator[Problem]:
    if policy is None:
        return
    for name in ("evaluation_interval", "delay_evaluation"):
        value = getattr(policy, name) or 0
        if not isinstance(value, int) or value < 0:
            yield Problem(f"early_termination.{name}: {value!r} is not a number of reports",
                          path=f"early_termination.{name}")  # fmt: skip
    if policy.type == "bandit":
        factor, amount = policy.slack_factor or 0, policy.slack_amount or 0
        if (factor > 0) == (amount > 0) or factor < 0 or amount < 0:
            yield Problem(
                f"early_termination: one of slack_factor ({factor:g}) and slack_amount ({amount:g}) is above 0",
                path="early_termination",
                hint="slack_factor: 0.1 lets a trial be a tenth worse than the best",
            )
    elif policy.type == "truncation_selection" and not 1 <= (policy.truncation_percentage or 0) <= 99:
        what = (
            f"early_termination.truncation_percentage: {policy.truncation_percentage} is not between 1 and 99"
        )
        yield Problem(what, path="early_termination.truncation_percentage")


# The command job of one trial.


def name_of(sweep: str, number: int) -> str:
    """Return the name of a trial. ``number`` counts from 0. Source: the names of Azure's trials."""
    return f"{sweep}_{number}"


def trial_job(
    sweep: SweepJob, program: ParameterizedCommand, params: Mapping[str, Any], number: int
) -> Command:
    """
    Return the job of a trial of a sweep that has a name.

    ``program``: of its trial, with nothing left to look up.

    Outputs are of the trial alone: what is to be registered is the best trial's, by the sweep. Raises PlanError for a
    hyperparameter that the command has and the search space has not.
    """
    job = Command(
        name=name_of(str(sweep.name), number),
        display_name=f"{sweep.display_name or sweep.name} trial {number}",
        experiment_name=sweep.experiment_name,
        tags={**sweep.tags, "hyperparameters": json.dumps(params, ensure_ascii=False)},
        properties=dict(sweep.properties),
        command=placeholders.expand_group(
            str(program.command or ""),
            "search_space",
            {f"search_space.{name}": text for name, text in _texts(params).items()},
            where="trial.command",
        ),
        code=program.code,
        environment=deepcopy(program.environment),
        environment_variables={**_variables(sweep, params), **program.environment_variables},
        compute=sweep.compute,
        inputs=deepcopy(dict(sweep.inputs)),
        outputs=deepcopy(dict(sweep.outputs)),
        distribution=deepcopy(program.distribution),
        resources=deepcopy(program.resources or sweep.resources),
        queue_settings=deepcopy(program.queue_settings or sweep.queue_settings),
        identity=deepcopy(sweep.identity),
        parent_job_name=sweep.name,
        # The sweep tells of its end, not each trial.
        drumline={name: value for name, value in program.drumline.items() if name != "notify"},
        base_path=sweep._base_path,
    )
    if sweep.limits and sweep.limits.trial_timeout is not None:
        job.limits = CommandJobLimits(timeout=sweep.limits.trial_timeout)
    for output in job.outputs.values():
        output.name = output.version = None
    _place(job, sweep, program)
    return job


def _place(job: Command, sweep: SweepJob, program: ParameterizedCommand) -> None:
    """Resolve code and environment against the program's folder, inputs and outputs against the sweep's."""
    if job.code and not is_remote(str(job.code)) and program._base_path != sweep._base_path:
        job.code = resolve(program, str(job.code))
    if program.additional_includes:
        job._includes = [resolve(program, path) for path in program.additional_includes]


def describe_refusal(value: Any) -> str:
    """
    Explain why that cannot be a value of a hyperparameter; empty when it can. What is drawn anew for each trial can.
    """
    if isinstance(value, ParameterExpression):
        return ""
    if not isinstance(value, (str, int, float)):
        return f"a value is text, a number, a boolean or a mapping, and {value!r} is not"
    if isinstance(value, int) and not abs(value) <= sys.float_info.max:
        return "it has a value that is too large for a number"
    if "\0" in str(value):
        return "a value cannot hold a zero byte"
    if placeholders.is_in(str(value)):
        return f"a value cannot hold a placeholder, and {value!r} does"
    return ""


def _texts(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return values as they are, as those of literal inputs; a mapping as JSON, and its content by its dotted name."""
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, dict):
            found[prefix + name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            found |= _texts(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = str(value)
    return found


def _variables(sweep: SweepJob, params: Mapping[str, Any]) -> dict[str, str]:
    """
    Return literal inputs and hyperparameters by the names of their variables.

    Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.sweep.sweepjob (AZUREML_SWEEP_)
    """
    literals = {name: str(value) for name, value in sweep.inputs.items() if not hasattr(value, "path")}
    named = {**literals, **{name: text for name, text in _texts(params).items() if "." not in name}}
    return {
        f"{prefix}{name}": text
        for name, text in named.items()
        for prefix in ("AZUREML_SWEEP_", "AZUREML_PARAMETER_")
    }
