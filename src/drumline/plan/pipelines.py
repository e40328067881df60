"""
The steps of a pipeline in an order in which they can run, each with its component filled in; pure.

What Azure's client lets through and no pipeline can run is refused here: cycles, unknown inputs, wrong types. A step
gets what its component declares, and refers to what is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem, SpecError
from drumline.contract.record import NamedTuple
from drumline.spec.hints import did_you_mean
from drumline.spec.jobs.parallel import FOLDER, TABLES
from drumline.spec.jobs.pipeline import fill_component
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.io import PATTERN, RESERVED_OUTPUTS, Binding, fits_primitive, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.spec.jobs.component import Lookup
    from drumline.spec.jobs.job import Job
    from drumline.spec.jobs.pipeline import PipelineJob


Given = Mapping[str, tuple[str, Any]]
"""Of an inner pipeline's inputs that the one around it binds: type and value, as ``source`` has them."""


class BindingWarning(Problem):
    """A warning: Azure lets this through, and jobs that were made for it have it."""

    __slots__ = ()


_TYPE_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
}


def check_whole_job(job: Any) -> list[Problem]:
    """Check what a job gets that calls a component, and is no step."""
    problems = []
    for name, value in job.inputs.items():
        declared = job._declared.get(name)
        if declared is not None:
            problems += _of_value(f"inputs.{name}", str(declared.type), value, declared)
    missing = _list_missing(job, "", f"the {job.type} job")
    return [*problems, *missing, *(_list_superfluous(job, "") if job._declared else ())]


def check_step(
    pipeline: PipelineJob, step: Step, steps: Mapping[str, Step], given: Given = MappingProxyType({})
) -> list[Problem]:
    place = f"jobs.{step.name}"
    return [
        *_inputs(pipeline, step, steps, given),
        *_variables(pipeline, step, given),
        *_compute(pipeline, step, given),
        *_list_missing(step.job, f"{place}.", place),
        *_list_superfluous(step.job, f"{place}."),
        *_outputs(pipeline, step),
    ]


def leave_out_absent(pipeline: PipelineJob, job: Any) -> None:
    """
    Remove inputs of a step's job that are bound to an input of the pipeline that was not given.

    One with a default of the component gets that in its place.
    """
    for name, value in list(job.inputs.items()):
        texts = texts_of(value)
        if not texts or not _is_whole(value) or not _is_absent(pipeline, texts[0]):
            continue
        if name in job._defaults:
            job.inputs[name] = deepcopy(job._defaults[name])
            continue
        del job.inputs[name]
        if job.type == "pipeline":
            job._optional |= {name}


def take_types(pipeline: PipelineJob, job: Any) -> None:
    """Give an output of a step's job that does not say its type, and is one of the pipeline's, the type of that one."""
    for written in job.outputs.values():
        for text in texts_of(written) if written.type is None else ():
            published = pipeline.outputs.get(text.removeprefix("parent.outputs."))
            if published is not None and text.startswith("parent.outputs."):
                written.type = published.type


def _is_absent(pipeline: PipelineJob, text: str) -> bool:
    name = text.removeprefix("parent.inputs.")
    if name == text or name in pipeline.inputs:
        return False
    return name in pipeline._optional or name in pipeline._declared


def resolve_inputs(pipeline: PipelineJob, step: Step, steps: Mapping[str, Step], given: Given) -> Given:
    """Return the ``given`` of ``check_step`` for the steps of a step that is a pipeline itself."""
    found = {}
    for name, value in step.job.inputs.items():
        texts = texts_of(value)
        if texts and _is_whole(value):
            source = _source(pipeline, steps, given, texts[0], "")
            if not isinstance(source, Problem):
                found[name] = source
    return found


def _inputs(pipeline: PipelineJob, step: Step, steps: Mapping[str, Step], given: Given) -> list[Problem]:
    problems = []
    parallel = (getattr(step.job, "drumline", None) or {}).get("parallel") or {}
    for name, value in step.job.inputs.items():
        path = f"jobs.{step.name}.inputs.{name}"
        declared = step.job._declared.get(name)
        wanted = str(declared.type) if declared is not None else ""
        bound = [_source(pipeline, steps, given, text, path) for text in texts_of(value)]
        problems += [found for found in bound if isinstance(found, Problem)]
        sources = [found for found in bound if not isinstance(found, Problem)]
        if name == parallel.get("input") and any(kind == "mltable" for kind, _ in sources):
            what = f"jobs.{step.name}.input_data: {TABLES}"
            problems.append(Problem(what, path=f"jobs.{step.name}.input_data", hint=FOLDER))
        if len(sources) == 1 and wanted and _is_whole(value):
            problems += _mismatch(path, wanted, *sources[0], declared)
        elif not bound and wanted and not isinstance(value, Binding):
            problems += _of_value(path, wanted, value, declared)
    return problems


def _variables(pipeline: PipelineJob, step: Step, given: Given) -> list[Problem]:
    """Check environment variables, whose values may hold literals of the pipeline."""
    problems = []
    for name, value in (getattr(step.job, "environment_variables", None) or {}).items():
        path = f"jobs.{step.name}.environment_variables.{name}"
        for text in texts_of(value):
            if not text.startswith("parent."):
                continue
            found = _source(pipeline, {}, given, text, path)
            if isinstance(found, Problem):
                problems.append(found)
            elif found[0] not in ("literal", ""):
                what = f"{path}: a variable takes text, and gets data of type {found[0]}"
                problems.append(Problem(what, path=path, hint="give it an input of its own"))
    return problems


def _compute(pipeline: PipelineJob, step: Step, given: Given) -> list[Problem]:
    """Check the compute, which may be a text of the pipeline's."""
    path = f"jobs.{step.name}.compute"
    for text in texts_of(step.job.compute):
        found = _source(pipeline, {}, given, text, path)
        if isinstance(found, Problem):
            return [found]
        if found[0] not in ("literal", ""):
            return [
                Problem(
                    f"{path}: it takes the name of a compute, and gets data of type {found[0]}", path=path
                )
            ]
    return []


def _is_whole(value: Any) -> bool:
    """Return whether a value is a binding, and not a text or path with one in it."""
    return bool(PATTERN.fullmatch(str(getattr(value, "path", value)).strip()))


def _source(
    pipeline: PipelineJob, steps: Mapping[str, Step], given: Given, text: str, path: str
) -> Problem | tuple[str, Any]:
    """Return the type, and the value where it is known, of what a binding leads to; empty where nothing says it."""
    written = f"${{{{{text}}}}}"
    parts = text.split(".")
    if parts[:2] == ["parent", "inputs"] and len(parts) > 2:
        name = ".".join(parts[2:])
        if name in given:
            return given[name]
        if name in pipeline.inputs:
            return _kind_of(pipeline.inputs[name]), pipeline.inputs[name]
        if _is_absent(pipeline, text):
            return "", None  # Nothing, within a text.
        what = f"{path}: {written} is not an input of the pipeline"
        return Problem(what, path=path, hint=_suggest_name(name, pipeline.inputs))
    if parts[:2] == ["parent", "jobs"] and len(parts) == 5 and parts[3] == "outputs":
        source = steps.get(parts[2])
        if source is None:
            what = f"{path}: {written}: the pipeline has no job {parts[2]!r}"
            return Problem(what, path=path, hint=_suggest_name(parts[2], steps))
        outputs = source.job.outputs
        if parts[4] not in outputs and parts[4] not in RESERVED_OUTPUTS:
            what = f"{path}: {written}: {parts[2]!r} has no output {parts[4]!r}"
            return Problem(what, path=path, hint=_suggest_name(parts[4], outputs))
        kind = outputs[parts[4]].type if parts[4] in outputs else "uri_folder"
        return str(kind or "uri_folder"), None
    hint = "${{parent.inputs.NAME}} or ${{parent.jobs.NAME.outputs.NAME}}"
    return Problem(
        f"{path}: {written} is neither an input of the pipeline nor an output of a step", path=path, hint=hint
    )


def _kind_of(value: Any) -> str:
    if texts_of(value):
        return ""
    if hasattr(value, "path"):
        return str(value.type or "uri_folder")
    return "literal"


def _mismatch(path: str, wanted: str, kind: str, given: Any, declared: Any) -> list[Problem]:
    if kind == "literal":
        return _of_value(path, wanted, given, declared)
    if not kind:
        return []
    if kind in PRIMITIVES and wanted in (kind, "string", "uri_file"):
        return []
    if wanted == "number" and kind == "integer":
        return []
    if wanted in PRIMITIVES:
        return [Problem(f"{path}: it takes {_TYPE_NAMES[wanted]}, and gets data of type {kind}", path=path)]
    if {wanted, kind} == {"uri_file", "uri_folder"}:
        return [BindingWarning(f"{path}: it takes {wanted}, and gets {kind}", path=path)]
    return []


def _of_value(path: str, wanted: str, value: Any, declared: Any) -> list[Problem]:
    if hasattr(value, "path"):
        return _mismatch(path, wanted, str(value.type or "uri_folder"), value, declared)
    if wanted not in PRIMITIVES:
        shown = f"{value!r}"
        hint = "give data: {type: uri_folder, path: ...}"
        return [Problem(f"{path}: it takes {wanted}, and gets {shown}", path=path, hint=hint)]
    if not fits_primitive(wanted, value):
        return [Problem(f"{path}: it takes {_TYPE_NAMES[wanted]}, and gets {value!r}", path=path)]
    return _out_of_range(path, value, declared)


def _out_of_range(path: str, value: Any, declared: Any) -> list[Problem]:
    if declared.enum and str(value) not in [str(item) for item in declared.enum]:
        known = ", ".join(map(str, declared.enum))
        meant = next((item for item in declared.enum if _reads_as(item, value)), None)
        if meant is not None:
            return [
                BindingWarning(f"{path}: {value!r} is passed as it is written; {meant!r} is meant", path=path)
            ]
        return [Problem(f"{path}: must be one of {known}; got {value!r}", path=path)]
    for least, word in ((declared.min, "below"), (declared.max, "above")):
        try:
            distance = None if least is None else float(value) - float(least)
        except (TypeError, ValueError):
            continue
        if distance is not None and (distance < 0 if word == "below" else distance > 0):
            return [Problem(f"{path}: {value} is {word} {least}", path=path)]
    return []


def _reads_as(item: Any, value: Any) -> bool:
    """Return whether two differ only in how YAML or Python writes them: 224.0 and "224", True and "true"."""
    if str(item).lower() == str(value).lower():
        return True
    try:
        return float(str(item)) == float(str(value))
    except ValueError:
        return False


def _list_missing(job: Any, prefix: str, noun: str) -> list[Problem]:
    """List the inputs that the component of a job needs and does not get. ``prefix``: of the paths of its fields."""
    return [
        Problem(
            f"{noun} needs the input {name!r} of its component",
            path=f"{prefix}inputs.{name}",
            hint=f"{declared.type}",
        )
        for name, declared in job._declared.items()
        if name not in job.inputs and not declared.optional and declared.default is None
    ]


def _list_superfluous(job: Any, prefix: str) -> list[Problem]:
    """List the inputs that the component of a job does not have."""
    if not job._component_name and not job._declared:
        return []
    hints = {name: _suggest_name(name, job._declared) for name in job.inputs if name not in job._declared}
    return [
        BindingWarning(
            f"{prefix}inputs.{name}: not used; its component has no such input ({hint})",
            path=f"{prefix}inputs.{name}",
            hint=hint,
        )
        for name, hint in hints.items()
    ]


def drop_superfluous(job: Any) -> None:
    """Remove the inputs that the component of a job does not have; a warning has named them."""
    if job._component_name or job._declared:
        for name in [name for name in job.inputs if name not in job._declared]:
            del job.inputs[name]


def _outputs(pipeline: PipelineJob, step: Step) -> list[Problem]:
    problems = []
    for output, written in step.job.outputs.items():
        path = f"jobs.{step.name}.outputs.{output}"
        for text in texts_of(written):
            name = text.removeprefix("parent.outputs.")
            if not text.startswith("parent.outputs."):
                what = f"{path}: ${{{{{text}}}}} is not an output of the pipeline"
                problems.append(Problem(what, path=path, hint="${{parent.outputs.NAME}}"))
            elif name not in pipeline.outputs:
                what = f"{path}: ${{{{{text}}}}} is not an output of the pipeline"
                problems.append(Problem(what, path=path, hint=_suggest_name(name, pipeline.outputs)))
    return problems


def _suggest_name(name: str, names: Mapping[str, Any]) -> str:
    return did_you_mean(name, tuple(names)) or "known: " + (", ".join(names) or "none")


class Step(NamedTuple):
    name: str
    job: Job
    """Without a component; its inputs may still be bindings."""

    needs: tuple[str, ...]
    """The steps whose outputs it reads."""

    publishes: dict[str, str]
    """Its output to the pipeline's output that it is."""

    inner: Graph | None = None
    """Of a pipeline."""

    doubts: tuple[str, ...] = ()
    """Of its inputs, to be warned about."""


class Graph(NamedTuple):
    steps: tuple[Step, ...]
    """Each one after those that it needs."""

    doubts: tuple[str, ...] = ()
    """Of the inputs of the pipeline itself, where it is the call of a component."""

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


_DEEPEST = 10
"""Pipelines within pipelines."""

_MOST_STEPS = 1000


def build_graph(
    pipeline: PipelineJob,
    lookup: Lookup,
    given: Given = MappingProxyType({}),
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
    problems: list[Problem] = [] if above else check_whole_job(pipeline)
    doubts = _doubts(problems)
    problems += _check_names(pipeline.jobs, "jobs") + _check_names(pipeline.outputs, "outputs")
    steps = _steps(pipeline, lookup, problems)
    if len(steps) == len(pipeline.jobs):
        for step in list(steps.values()):
            problems += _check_names(step.job.outputs, f"jobs.{step.name}.outputs")
            found = check_step(pipeline, step, steps, given)
            steps[step.name] = step._replace(doubts=_doubts(found, step))
            problems += found
            drop_superfluous(step.job)
        problems += _published_twice(steps)
    if not problems:
        problems += _cycle(steps)
    above = (*above, pipeline._source)
    for step in [step for step in steps.values() if step.job.type == "pipeline"]:
        known = resolve_inputs(pipeline, step, steps, given)
        try:
            steps[step.name] = step._replace(inner=_inner(step, lookup, known, above))
        except PlanError as error:
            problems += locate_in_step(step.name, error)
    if problems:
        raise PlanError(problems)
    return Graph(tuple(_in_order(steps)), doubts)


def _doubts(problems: list[Problem], step: Step | None = None) -> tuple[str, ...]:
    """Take the warnings out of the problems, and return them; of a step without its name."""
    found = [problem for problem in problems if isinstance(problem, BindingWarning)]
    problems[:] = [problem for problem in problems if not isinstance(problem, BindingWarning)]
    return tuple(problem.what.removeprefix(f"jobs.{step.name}." if step else "") for problem in found)


def _steps(pipeline: PipelineJob, lookup: Lookup, problems: list[Problem]) -> dict[str, Step]:
    """Return the steps whose component is there; of the others add the problems."""
    steps = {}
    for name, node in pipeline.jobs.items():
        try:
            job = fill_component(node, lookup)
            leave_out_absent(pipeline, job)
            take_types(pipeline, job)
            steps[name] = _step(name, job)
        except (NotFoundError, PlanError, SpecError) as error:
            problems += _of_component(name, error)
    return steps


def _inner(step: Step, lookup: Lookup, known: Given, above: tuple[str, ...]) -> Graph:
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
