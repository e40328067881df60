"""A pipeline before anything of it runs: its steps, what each would run, and what its driver works by."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem
from drumline.contract.record import NamedTuple
from drumline.control.driver import code, registration
from drumline.control.driver.grouping import grouped
from drumline.control.driver.inputs import looked_at
from drumline.plan import unhonoured
from drumline.plan.graph import graph_of, within
from drumline.spec.steps import filled_in, pin
from drumline.spec.trial import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.plan import Plan
    from drumline.plan.graph import Graph, Step
    from drumline.spec.pipeline import PipelineJob


class Looked(NamedTuple):
    """A step, and what it would run."""

    step: Step
    plan: Plan | None
    """None: of a pipeline or a sweep. What comes from steps before it is not in it yet."""

    steps: tuple[Looked, ...]
    """Of a pipeline."""

    snapshots: dict[str, str]
    """Of a sweep, whose code was taken already."""

    warnings: tuple[str, ...]


def registered(reference: str) -> Any:
    """
    The component that ``azureml:name:version`` names; one of ours of the same name and version stands in for a
    registry's, which is not asked. Raises NotFoundError, PlanError.
    """
    from drumline.control import assets
    from drumline.spec.references import Asset, parse

    asset = parse(reference)
    if not isinstance(asset, Asset):
        raise PlanError(
            f"{reference!r} is not a component that is registered here",
            "azureml:NAME:VERSION, after drumline component create -f FILE",
        )
    label = asset.label or (None if asset.version else "latest")
    try:
        return assets.get("component", asset.name, version=asset.version or None, label=label)
    except NotFoundError as error:
        if not asset.registry:
            raise
        version = f" --version {asset.version}" if asset.version else ""
        line = f"drumline component create -f FILE --name {asset.name}{version}"
        hint = f"to have one of your own stand in for it: {line}"
        what = f"{reference!r} is in a registry of Azure's, which is not asked, and there is no component {asset} here"
        raise NotFoundError(what, hint) from error


def look_through(job: PipelineJob) -> tuple[PipelineJob, tuple[Looked, ...], tuple[str, ...]]:
    """
    The pipeline with its component filled in, its steps in an order in which they can run, and doubts of its inputs.

    Raises PlanError with every problem of every step, SpecError; nothing was created but the code of sweeps.
    """
    from drumline.control.driver.start import located

    whole: Any = filled_in(job, registered)
    pin(whole)
    try:
        taken = list(registration.problems_of(job))
        if taken:
            raise PlanError(taken)
        graph = graph_of(whole, registered)
        looked = _look(whole, graph, _compute_of(job))
    except PlanError as error:
        raise located(error, job) from None
    return whole, looked, graph.doubts


def _compute_of(job: Any, around: str | None = None) -> str | None:
    """What the steps of a pipeline fall back on."""
    return job.settings.default_compute or job.compute or around


def _look(pipeline: Any, graph: Graph, compute: str | None) -> tuple[Looked, ...]:
    problems: list[Problem] = []
    found = []
    for step in graph.steps:
        try:
            found.append(_look_at(step, pipeline, compute))
        except DrumlineError as error:
            problems += within(step.name, error)
    if problems:
        raise PlanError(problems)
    return tuple(found)


def _look_at(step: Step, pipeline: PipelineJob, compute: str | None) -> Looked:
    """Raises PlanError, SpecError for what cannot run."""
    job: Any = deepcopy(step.job)
    job.name = None
    looked_at(job, pipeline)
    if step.inner is not None:
        inner = _look(job, step.inner, _compute_of(job, compute))
        return Looked(step, None, inner, {}, (*step.doubts, *unhonoured.of_whole(job), *_warnings(inner)))
    job.compute = job.compute or compute
    if job.type == "sweep":
        from drumline.control.driver import sweep

        graph, said = sweep.prepare(job)
        warnings = tuple(dict.fromkeys((*step.doubts, *unhonoured.of_whole(job), *said)))
        return Looked(step, None, (), dict(graph.get("snapshots") or {}), warnings)
    from drumline.control.submit import plan

    planned = plan(job, check=False)
    return Looked(step, planned, (), {}, (*step.doubts, *planned.warnings))


def checked(job: PipelineJob) -> tuple[tuple[Looked, ...], list[str]]:
    """Its steps, and what there is to say of it before it runs; nothing is created. Raises SpecError, PlanError."""
    from drumline.control.driver import start

    start.check(job)
    _, looked, doubts = look_through(job)
    return looked, grouped((*unhonoured.of_whole(job), *doubts, *_warnings(looked)))


def _warnings(steps: tuple[Looked, ...]) -> Iterator[str]:
    for looked in steps:
        for text in dict.fromkeys(looked.warnings):
            yield f"jobs.{looked.step.name}: {text}"


def prepare(job: PipelineJob) -> tuple[dict[str, Any], list[str]]:
    """
    The graph as ``graph.json`` holds it, with the code of every step taken as it is now, and the warnings.

    Raises PlanError with every problem of every step, SpecError; nothing was created but snapshots.
    """
    if job._prepared is not None:
        return _graph(job, job._prepared), []
    whole, looked, doubts = look_through(job)
    warnings = [*doubts, *_warnings(looked)]
    try:
        steps = [_plain(one, warnings) for one in looked]
    except PlanError as error:
        from drumline.control.driver.start import located

        raise located(error, job) from None
    return _graph(whole, steps), warnings


def _graph(whole: PipelineJob, steps: list[dict[str, Any]]) -> dict[str, Any]:
    from drumline.spec.dump import plain, to_dict

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
    """An output as it was written, but for a local path, which is absolute."""
    full = (written.get("outputs") or {}).get(name)
    return full if isinstance(full, dict) else plain


def _plain(looked: Looked, warnings: list[str]) -> dict[str, Any]:
    """``warnings``: more of them. Raises PlanError."""
    from drumline.spec.dump import to_dict

    step = looked.step
    job: Any = copy(step.job)
    job.name = None
    if job.type == "sweep":
        # Its component's file is this run's as it is now.
        job.trial = resolved(job, registered)
    told = {
        "name": step.name,
        "needs": step.needs,
        "publishes": step.publishes,
        "job": to_dict(job, absolute=True),
    }
    try:
        if step.inner is not None:
            return {**told, "steps": [_plain(one, warnings) for one in looked.steps]}
        snapshots, said = (looked.snapshots, []) if job.type == "sweep" else code.taken(job)
        warnings += [f"jobs.{step.name}: {text}" for text in said]
    except PlanError as error:
        raise PlanError(within(step.name, error)) from None
    return {**told, "snapshots": snapshots, "is_deterministic": job._is_deterministic}
