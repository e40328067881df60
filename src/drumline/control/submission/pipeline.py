"""A pipeline before anything of it runs: its steps, what each would run, and what its driver works by."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, PlanError, Problem
from drumline.contract.record import NamedTuple
from drumline.control.assets import registration
from drumline.control.submission import sweep
from drumline.control.submission.fields import check_fields, find_component, locate_problems
from drumline.control.submission.planning import plan, take_code
from drumline.control.submission.step_inputs import bind_placeholders
from drumline.control.submission.warning_groups import group_warnings
from drumline.plan import unsupported
from drumline.plan.pipelines.graph import build_graph, locate_in_step
from drumline.plan.request import check_name
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.steps import fill_component, pin_job_paths
from drumline.spec.jobs.sweep import resolve_trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.plan import Plan
    from drumline.plan.pipelines.bindings import Graph, Step
    from drumline.spec.jobs.pipeline import PipelineJob


class PlannedStep(NamedTuple):
    """A step and its plan."""

    step: Step
    plan: Plan | None
    """None: of a pipeline or a sweep. What comes from steps before it is not in it yet."""

    steps: tuple[PlannedStep, ...]
    """Of a pipeline."""

    snapshots: dict[str, str]
    """Of a sweep, whose code was taken already."""

    warnings: tuple[str, ...]


def plan_steps(job: PipelineJob) -> tuple[PipelineJob, tuple[PlannedStep, ...], tuple[str, ...]]:
    """
    Return the pipeline with its component filled in, its steps in a possible order, and doubts of its inputs.

    Raises PlanError with every problem of every step, SpecError; nothing was created but the code of sweeps.
    """
    whole: Any = fill_component(job, find_component)
    pin_job_paths(whole)
    with locate_problems(job):
        taken = list(registration.find_taken_versions(job))
        if taken:
            raise PlanError(taken)
        graph = build_graph(whole, find_component)
        looked = _plan_all(whole, graph, _compute_of(job))
    return whole, looked, graph.doubts


def _compute_of(job: Any, around: str | None = None) -> str | None:
    """Return the compute that steps of a pipeline use by default."""
    return job.settings.default_compute or job.compute or around


def _plan_all(pipeline: Any, graph: Graph, compute: str | None) -> tuple[PlannedStep, ...]:
    problems: list[Problem] = []
    found = []
    for step in graph.steps:
        try:
            found.append(_plan_step(step, pipeline, compute))
        except DrumlineError as error:
            problems += locate_in_step(step.name, error)
    if problems:
        raise PlanError(problems)
    return tuple(found)


def _plan_step(step: Step, pipeline: PipelineJob, compute: str | None) -> PlannedStep:
    """Plan a step. Raises PlanError, SpecError for what cannot run."""
    job: Any = deepcopy(step.job)
    job.name = None
    bind_placeholders(job, pipeline)
    if step.inner is not None:
        inner = _plan_all(job, step.inner, _compute_of(job, compute))
        return PlannedStep(
            step, None, inner, {}, (*step.doubts, *unsupported.list_shared_warnings(job), *_warnings(inner))
        )
    job.compute = job.compute or compute
    if job.type == "sweep":
        graph, said = sweep.prepare(job)
        warnings = tuple(dict.fromkeys((*step.doubts, *unsupported.list_shared_warnings(job), *said)))
        return PlannedStep(step, None, (), dict(graph.get("snapshots") or {}), warnings)
    planned = plan(job, check=False)
    return PlannedStep(step, planned, (), {}, (*step.doubts, *planned.warnings))


def check_name_and_fields(job: Any, *, fields: bool = True) -> None:
    """Check the name of the job, and its fields. Raises PlanError, SpecError."""
    if job.name:
        check_name(job.name)
    if fields:
        check_fields(job)


def check_pipeline(job: PipelineJob) -> tuple[tuple[PlannedStep, ...], list[str]]:
    """Return the steps of a pipeline and its warnings; nothing is created. Raises SpecError, PlanError."""
    check_name_and_fields(job)
    _, looked, doubts = plan_steps(job)
    return looked, group_warnings((*unsupported.list_shared_warnings(job), *doubts, *_warnings(looked)))


def _warnings(steps: tuple[PlannedStep, ...]) -> Iterator[str]:
    for looked in steps:
        for text in dict.fromkeys(looked.warnings):
            yield f"jobs.{looked.step.name}: {text}"


def prepare(job: PipelineJob) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph as ``graph.json`` holds it, with each step's code taken as it is now, and the warnings.

    Raises PlanError with every problem of every step, SpecError; nothing was created but snapshots.
    """
    if job._prepared is not None:
        return _graph(job, job._prepared), []
    whole, looked, doubts = plan_steps(job)
    warnings = [*doubts, *_warnings(looked)]
    with locate_problems(job):
        steps = [_to_graph_step(one, warnings) for one in looked]
    return _graph(whole, steps), warnings


def _graph(whole: PipelineJob, steps: list[dict[str, Any]]) -> dict[str, Any]:
    from drumline.spec.entity import plain

    written = to_dict(whole, absolute=True)
    return {
        "steps": steps,
        "inputs": written.get("inputs") or {},
        "outputs": {name: _with_path(written, name, plain(output)) for name, output in whole.outputs.items()},
        "compute": _compute_of(whole),
        "settings": whole.settings._plain(),
        "experiment_name": whole.experiment_name,
    }


def _with_path(written: dict[str, Any], name: str, plain: Any) -> Any:
    """Return an output as it was written, with a local path made absolute."""
    full = (written.get("outputs") or {}).get(name)
    return full if isinstance(full, dict) else plain


def _to_graph_step(looked: PlannedStep, warnings: list[str]) -> dict[str, Any]:
    """Return a step as ``graph.json`` holds it; warnings are added to ``warnings``. Raises PlanError."""
    step = looked.step
    job: Any = copy(step.job)
    job.name = None
    if job.type == "sweep":
        # Its component's file is this run's as it is now.
        job.trial = resolve_trial(job, find_component)
    told = {
        "name": step.name,
        "needs": step.needs,
        "publishes": step.publishes,
        "job": to_dict(job, absolute=True),
    }
    try:
        if step.inner is not None:
            return {**told, "steps": [_to_graph_step(one, warnings) for one in looked.steps]}
        taken = looked.snapshots if job.type == "sweep" else job._snapshots
        snapshots, said = (taken, []) if taken else take_code(job)
        warnings += [f"jobs.{step.name}: {text}" for text in said]
    except PlanError as error:
        raise PlanError(locate_in_step(step.name, error)) from None
    return {**told, "snapshots": snapshots, "is_deterministic": job._is_deterministic}
