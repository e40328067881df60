"""
The steps of a pipeline in an order in which they can run, each with its component filled in; pure.

What Azure's client lets through and no pipeline can run is refused here: cycles, unknown inputs, wrong types.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem, SpecError
from drumline.plan.pipelines import bindings
from drumline.plan.pipelines.bindings import Graph, Step
from drumline.spec.jobs.steps import fill_component
from drumline.spec.parts.io import texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.spec.jobs.component import Lookup
    from drumline.spec.jobs.job import Job
    from drumline.spec.jobs.pipeline import PipelineJob

_DEEPEST = 10
"""Pipelines within pipelines."""

_MOST_STEPS = 1000


def build_graph(
    pipeline: PipelineJob,
    lookup: Lookup,
    given: bindings.Given = MappingProxyType({}),
    above: tuple[str, ...] = (),
) -> Graph:
    """
    Build the graph of a pipeline whose component is filled in.

    Of an inner one, ``given``: what the pipeline around it binds, and ``above``: the files of those around it.

    Raises PlanError with every problem.
    """
    if len(above) > _DEEPEST:
        raise PlanError(f"jobs: pipelines lie in each other more than {_DEEPEST} deep", path="jobs")
    if not pipeline.jobs:
        raise PlanError("jobs: the pipeline has no jobs", "give it some", path="jobs")
    if len(pipeline.jobs) > _MOST_STEPS:
        raise PlanError(f"jobs: {len(pipeline.jobs)} are more than {_MOST_STEPS}", path="jobs")
    problems: list[Problem] = [] if above else bindings.check_whole_job(pipeline)
    doubts = _doubts(problems)
    problems += _check_names(pipeline.jobs, "jobs") + _check_names(pipeline.outputs, "outputs")
    steps = _steps(pipeline, lookup, problems)
    if len(steps) == len(pipeline.jobs):
        for step in list(steps.values()):
            problems += _check_names(step.job.outputs, f"jobs.{step.name}.outputs")
            found = bindings.check_step(pipeline, step, steps, given)
            steps[step.name] = step._replace(doubts=_doubts(found, step))
            problems += found
            bindings.drop_superfluous(step.job)
        problems += _published_twice(steps)
    if not problems:
        problems += _cycle(steps)
    above = (*above, pipeline._source)
    for step in [step for step in steps.values() if step.job.type == "pipeline"]:
        known = bindings.resolve_inputs(pipeline, step, steps, given)
        try:
            steps[step.name] = step._replace(inner=_inner(step, lookup, known, above))
        except PlanError as error:
            problems += locate_in_step(step.name, error)
    if problems:
        raise PlanError(problems)
    return Graph(tuple(_in_order(steps)), doubts)


def _doubts(problems: list[Problem], step: Step | None = None) -> tuple[str, ...]:
    """Take the warnings out of the problems, and return them; of a step without its name."""
    found = [problem for problem in problems if isinstance(problem, bindings.BindingWarning)]
    problems[:] = [problem for problem in problems if not isinstance(problem, bindings.BindingWarning)]
    return tuple(problem.what.removeprefix(f"jobs.{step.name}." if step else "") for problem in found)


def _steps(pipeline: PipelineJob, lookup: Lookup, problems: list[Problem]) -> dict[str, Step]:
    """Return the steps whose component is there; of the others add the problems."""
    steps = {}
    for name, node in pipeline.jobs.items():
        try:
            job = fill_component(node, lookup)
            bindings.leave_out_absent(pipeline, job)
            bindings.take_types(pipeline, job)
            steps[name] = _step(name, job)
        except (NotFoundError, PlanError, SpecError) as error:
            problems += _of_component(name, error)
    return steps


def _inner(step: Step, lookup: Lookup, known: bindings.Given, above: tuple[str, ...]) -> Graph:
    if step.job._source and step.job._source in above:
        raise PlanError("its component refers back to itself", path="component")
    return build_graph(step.job, lookup, known, above)  # type: ignore[arg-type]


def locate_in_step(step: str, error: DrumlineError) -> list[Problem]:
    """Return what is wrong with a step, as problems of its pipeline."""
    problems = list(getattr(error, "problems", ())) or [Problem(error.message, hint=error.hint)]
    for problem in problems:
        field = problem.what.partition(":")[0]
        between = "." if field and problem.path.startswith(field) else ": "
        problem.what = f"jobs.{step}{between}{problem.what}"
        problem.path = f"jobs.{step}.{problem.path}" if problem.path else f"jobs.{step}"
    return problems


def _of_component(name: str, error: DrumlineError) -> list[Problem]:
    """List the problems of a component that cannot be had. A mistake in its own file is told with its place there."""
    own = list(getattr(error, "problems", ())) or [Problem(error.message, hint=error.hint)]
    there = [problem for problem in own if problem.line]
    path = f"jobs.{name}.component"
    for problem in there:
        problem.path = problem.path or path  # One without is not listed.
    if there:
        return there
    return [Problem(f"{path}: {one}".splitlines()[0], path=path, hint=one.hint or error.hint) for one in own]


def _check_names(names: Iterable[Any], group: str) -> list[Problem]:
    """Check names, which become those of files and jobs."""
    return [
        Problem(
            f"the name {name!r} in {group} may hold letters, digits and '_', and not begin with a digit",
            path=f"{group}.{name}",
        )
        for name in names
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name))
    ]


def _step(name: str, job: Job) -> Step:
    needs = []
    for value in getattr(job, "inputs", {}).values():
        for text in texts_of(value):
            found = re.fullmatch(r"parent\.jobs\.([^.]+)\.outputs\.(.+)", text)
            if found:
                needs.append(found[1])
    publishes = {}
    for output, written in getattr(job, "outputs", {}).items():
        for text in texts_of(written):
            found = re.fullmatch(r"parent\.outputs\.(.+)", text)
            if found:
                publishes[output] = found[1]
    return Step(name, job, tuple(dict.fromkeys(needs)), publishes)


def _published_twice(steps: dict[str, Step]) -> list[Problem]:
    by: dict[str, str] = {}
    problems = []
    for step in steps.values():
        for output, published in step.publishes.items():
            path = f"jobs.{step.name}.outputs.{output}"
            if published in by:
                what = f"{path}: the pipeline's output {published!r} is written by {by[published]} already"
                problems.append(
                    Problem(what, path=path, hint="give one of them another output of the pipeline")
                )
            by.setdefault(published, path)
    return problems


def _cycle(steps: dict[str, Step]) -> list[Problem]:
    """Find the first circle of steps that wait for each other, with the way around it."""
    done: set[str] = set()
    for first in steps:
        way = [first] if first not in done else []
        while way:
            following = next((need for need in steps[way[-1]].needs if need not in done), None)
            if following is None:
                done.add(way.pop())
            elif following in way:
                return [_circle([*way[way.index(following) :], following], steps)]
            else:
                way.append(following)
    return []


def _circle(names: list[str], steps: dict[str, Step]) -> Problem:
    """Return the problem of a circle, at the input by which the first of its steps needs the second."""
    first, second = names[:2]
    inputs: dict[str, Any] = steps[first].job.inputs
    start = f"parent.jobs.{second}."
    guilty = next(
        name for name, value in inputs.items() if any(text.startswith(start) for text in texts_of(value))
    )
    around = " needs ".join(names)
    hint = "one of these inputs has to come from elsewhere"
    path = f"jobs.{first}.inputs.{guilty}"
    return Problem(f"jobs: the steps wait for each other: {around}", path=path, hint=hint)


def _in_order(steps: dict[str, Step]) -> list[Step]:
    """Return the steps as in the file, but for those that need later ones."""
    ordered: list[Step] = []
    placed: set[str] = set()
    waiting = list(steps.values())
    while waiting:
        ready = [step for step in waiting if placed.issuperset(step.needs)]
        ordered += ready
        placed.update(step.name for step in ready)
        waiting = [step for step in waiting if step.name not in placed]
    return ordered
