"""The command job of one trial."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from drumline.spec import placeholders
from drumline.spec.jobs.command import Command
from drumline.spec.parts.resources import CommandJobLimits
from drumline.spec.parts.search import ParameterExpression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.spec.jobs.sweep import ParameterizedCommand, SweepJob


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
        command=_fill_command(str(program.command or ""), params),
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
    from drumline.spec.paths import is_remote, resolve

    if job.code and not is_remote(str(job.code)) and program._base_path != sweep._base_path:
        job.code = resolve(program, str(job.code))
    if program.additional_includes:
        job._includes = [resolve(program, path) for path in program.additional_includes]


def _fill_command(command: str, params: Mapping[str, Any]) -> str:
    """Fill in values as they are, as those of literal inputs; a mapping as JSON, and its content by its dotted name."""
    values = {f"search_space.{name}": text for name, text in _texts(params).items()}
    return placeholders.expand_group(command, "search_space", values, where="trial.command")


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
