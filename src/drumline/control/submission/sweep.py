"""A sweep looked through before its first trial runs: what it searches, and what that trial would be."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem
from drumline.contract.mlflow import is_server
from drumline.control.submission.fields import find_component, locate_problems
from drumline.control.submission.planning import plan, take_code
from drumline.plan.search.request import request_of, trial_job
from drumline.plan.search.samplers import next_params
from drumline.plan.search.tuning import PROPERTY
from drumline.spec.entity import plain
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.sweep import ParameterizedCommand, resolve_trial

if TYPE_CHECKING:
    from drumline.plan.search.request import SearchRequest
    from drumline.spec.jobs.sweep import SweepJob


def prepare(job: SweepJob) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph that the driver works by, as ``graph.json`` holds it, and the warnings.

    The code is taken as it is now, unless the job has it already. Raises SpecError, PlanError; nothing was created but
    a snapshot.
    """
    whole = copy(job)
    whole.name = job.name or "NAME"
    with locate_problems(job):
        whole.trial = resolve_trial(job, find_component)
        snapshots, warnings = _probe(whole, request_of(whole))
    return {
        "sweep": to_dict(whole, absolute=True),
        "objective": plain(whole.objective),
        "outputs": {name: plain(output) for name, output in job.outputs.items()},
        "snapshots": snapshots,
    }, warnings


def _probe(sweep: SweepJob, request: SearchRequest) -> tuple[dict[str, str], list[str]]:
    """Plan the first trial, and take its code. Raises PlanError for what cannot run."""
    from drumline.tracking import metrics

    _check_metric(request.primary_metric)
    _check_outputs(sweep)
    first = trial_job(sweep, sweep.trial, next_params(request.search, []) or {}, 0)
    first._snapshots = dict(sweep._snapshots)
    try:
        planned = plan(first, check=False)
        snapshots, said = (first._snapshots, []) if first._snapshots else take_code(first)
    except PlanError as error:
        raise _of_trial(error) from None
    is_read = PROPERTY not in sweep.properties
    if (
        is_read
        and not metrics.run_dir_of(planned)
        and not is_server(planned.user_env.get("MLFLOW_TRACKING_URI", ""))
    ):
        raise PlanError(
            "trial.environment_variables: the metrics of the trials go where a sweep cannot read them",
            "leave out the MLFLOW_ variables, or name an MLflow server: https://HOST:PORT",
            path="trial.environment_variables",
        )
    shared = [
        f"outputs.{name}.path: every trial writes there" for name, one in sweep.outputs.items() if one.path
    ]
    return snapshots, [*shared, *said, *planned.warnings]


def _check_metric(name: str) -> None:
    from drumline.tracking import metrics

    if metrics.clean_name(name) != name:
        what = f"objective.primary_metric: MLflow has no metric {name!r}"
        hint = f"letters, digits and '_-. :/' may be in one: {metrics.clean_name(name)!r}"
        raise PlanError(what, hint, path="objective.primary_metric")


def _check_outputs(sweep: SweepJob) -> None:
    """Check that the names of outputs can be names of links. Raises PlanError."""
    odd = next((name for name in sweep.outputs if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)), None)
    if odd is not None:
        what = f"outputs: {odd!r} cannot be an output's name"
        raise PlanError(what, "letters, digits and '_', not beginning with a digit", path=f"outputs.{odd}")


def _of_trial(error: PlanError) -> PlanError:
    """Rename the fields of the problems to those of the sweep: ``trial.command``, ``limits.trial_timeout``."""
    if not error.problems:
        return PlanError(f"trial: {error.message}", error.hint)
    problems: list[Problem] = []
    for problem in error.problems:
        if problem.path.partition(".")[0] in ParameterizedCommand._fields:
            problem.what = problem.what.replace(problem.path, f"trial.{problem.path}", 1)
            problem.path = f"trial.{problem.path}"
        elif problem.path == "limits.timeout":
            problem.path = "limits.trial_timeout"
        problems.append(problem)
    return PlanError(problems)
