"""The nodes of a pipeline: from the mappings of YAML to jobs, and each with its component filled in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.bindings import PATTERN
from drumline.spec.component import CommandComponent, Component, PipelineComponent
from drumline.spec.io import PRIMITIVES, Input, Output
from drumline.spec.parallel import SETTINGS, Parallel
from drumline.spec.parallel_component import ParallelComponent
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drumline.spec.command import Command
    from drumline.spec.job import Job

    Lookup = Callable[[str], Component]
    """The registered component that ``azureml:name:version`` names. Raises NotFoundError."""


def to_nodes(jobs: dict[str, Any] | None, base_path: str) -> dict[str, Any]:
    """Mappings of YAML become jobs; relative paths in them resolve against ``base_path``. Raises SpecError."""
    made: dict[str, Any] = {}
    if not isinstance(jobs or {}, Mapping):
        raise SpecError(f"jobs must be a mapping, not a {type(jobs).__name__}")
    with builder.building(None):
        for name, node in (jobs or {}).items():
            is_twice = any(node is other for other in made.values())
            made[name] = to_node(name, deepcopy(node) if is_twice else node, base_path)
    return made


def to_node(name: str, node: Any, base_path: str) -> Any:
    """A job; one already is left as it is."""
    from drumline.spec.job import Job

    if isinstance(node, Job):
        if not node._base_path:
            node._base_path = base_path
    elif isinstance(node, dict):
        node = _from_mapping(name, node, base_path)
    elif isinstance(node, Component):
        node = node()  # type: ignore[operator]
    else:
        raise SpecError(f"jobs.{name} must be a job, not a {type(node).__name__}")
    node._node_name = name
    return node


def _from_mapping(name: str, node: dict[str, Any], base_path: str) -> Job:
    kind = _kind_of(name, node, base_path)
    # Of what is left out the tables of YAML have told, where it was to be told.
    values = {key: value for key, value in node.items() if key in kind._fields and key != "type"}
    made: Job = kind(**values, base_path=base_path)
    made._comment = node.get("comment")
    made._warnings = []
    environment = getattr(made, "environment", None)
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = base_path
    return made


def _kind_of(name: str, node: dict[str, Any], base_path: str) -> type[Any]:
    given = node.get("type") or _type_by_content(node, base_path)
    kind = str(given).lower()
    if kind == "sweep":
        from drumline.spec.sweep import SweepJob

        return SweepJob
    if kind == "pipeline":
        from drumline.spec.pipeline import PipelineJob

        return PipelineJob
    if kind == "command":
        from drumline.spec.command import Command

        return Command
    if kind == "parallel":
        return Parallel
    problem = f"jobs.{name}: nodes of type {kind!r} are not supported"
    raise SpecError(problem, "command, parallel, sweep and pipeline are")


def _type_by_content(node: dict[str, Any], base_path: str) -> str:
    """Of a node that does not say its type: a pipeline's or parallel, or its component's."""
    component = node.get("component")
    if isinstance(component, str) and not component.startswith("azureml:"):
        from drumline.spec.files import read

        try:
            held: Any = read(os.path.join(base_path, component.removeprefix("file:")))
        except SpecError:
            return "command"  # To be told when it is needed.
    else:
        held = component if isinstance(component, dict) else node
    return "pipeline" if "jobs" in held else "parallel" if "task" in held else "command"


def component_of(node: Job, lookup: Lookup) -> Component | None:
    """The node's component, read or looked up; None for one that is written out. Raises SpecError, NotFoundError."""
    component: Any = node.__dict__.get("component")
    if component is None or isinstance(component, Component):
        return component
    if isinstance(component, dict):
        return class_of(component)(
            **{key: value for key, value in component.items() if key != "type"}, base_path=node.base_path
        )
    text = str(component)
    if text.startswith("azureml:"):
        return lookup(text)
    from drumline.spec.load import load_component

    found: Component = load_component(os.path.join(node.base_path, text.removeprefix("file:")), named=False)
    return found


def class_of(component: Mapping[str, Any]) -> type[Component]:
    """Of a component that is written out, by what it holds."""
    if "jobs" in component:
        return PipelineComponent
    return ParallelComponent if "task" in component else CommandComponent


def filled_in(node: Job, lookup: Lookup) -> Job:
    """
    The node as a job that needs no component: what it says itself goes before what its component says.

    ``_declared``: the component's inputs, by which the values are to be checked; empty for a node without one.
    Raises SpecError, NotFoundError.
    """
    component = component_of(node, lookup)
    job = deepcopy(node)
    if isinstance(component, PipelineComponent):
        return _pipeline(job if job.type == "pipeline" else _as_pipeline(job), component)
    if isinstance(component, CommandComponent):
        if job.type != "command":
            raise SpecError(f"{component._label} is a command, and this a {job.type}")
        return _command(job, component)
    if isinstance(component, ParallelComponent):
        job = _parallel(job if job.type == "parallel" else _as_parallel(job), component)
    if job.type == "parallel":
        from drumline.spec.parallel_command import to_command

        return to_command(job)  # type: ignore[arg-type]
    return job


def _as_pipeline(job: Any) -> Any:
    """A node that did not say of which type its component is."""
    from drumline.spec.pipeline import PipelineJob

    return _as(PipelineJob, job, without=("jobs", "settings"))


def _as_parallel(job: Any) -> Any:
    return _as(Parallel, job)


def _as(kind: type[Any], job: Any, without: tuple[str, ...] = ()) -> Any:
    with builder.building(None):
        made = kind()
    for name in (*kind._fields, "_base_path", "_node_name", "_comment", "_root"):
        if hasattr(job, name) and name not in ("type", *without):
            object.__setattr__(made, name, getattr(job, name))
    return made


def _parallel(job: Any, component: ParallelComponent) -> Job:
    pin(job)
    if job.task is None and component.task is not None:
        job.task = deepcopy(component.task)
        if job.task.code and not is_remote(job.task.code):
            job.task.code = resolve(component, job.task.code)
        if hasattr(job.task.environment, "_base_path"):
            job.task.environment._base_path = job.task.environment._base_path or component.base_path
    for name in (*SETTINGS, "resources"):
        if getattr(job, name) is None:
            setattr(job, name, deepcopy(getattr(component, name)))
    job._is_deterministic = component.is_deterministic
    job.component = None
    _declare(job, component)
    return job  # type: ignore[no-any-return]


def _pipeline(job: Any, component: PipelineComponent) -> Job:
    job.component = None
    pin(job)
    job.jobs = component.jobs
    if not component.is_deterministic:
        job.settings.force_rerun = True
    job._base_path = component.base_path
    job._source = os.path.abspath(component._source) if component._source else ""
    _declare(job, component)
    return job  # type: ignore[no-any-return]


def pin(job: Any) -> None:
    """Its paths are absolute afterwards, so that they may be read from another folder."""
    for given in (*job.inputs.values(), *job.outputs.values()):
        path = getattr(given, "path", None)
        if isinstance(path, str) and path and not is_remote(path) and not PATTERN.search(path):
            given.path = resolve(job, path)


def _command(job: Any, component: CommandComponent) -> Command:
    if job.environment is None and component.environment is not None:
        job.environment = deepcopy(component.environment)
        if hasattr(job.environment, "_base_path"):
            job.environment._base_path = job.environment._base_path or component.base_path
    for name in ("command", "distribution", "resources", "queue_settings"):
        if getattr(job, name) is None:
            setattr(job, name, deepcopy(getattr(component, name)))
    if job.code is None and component.code:
        job.code = component.code if is_remote(component.code) else resolve(component, component.code)
    if component.additional_includes:
        job._includes = [resolve(component, path) for path in component.additional_includes]
    job._is_deterministic = component.is_deterministic
    job.component = None
    _declare(job, component)
    return job  # type: ignore[no-any-return]


def _declare(job: Any, component: Component) -> None:
    job._declared = component.inputs
    job._component_name = component.name or ""
    job._defaults = {
        name: _default_of(declaration, component)
        for name, declaration in component.inputs.items()
        if declaration.default is not None
    }
    for name, value in job._defaults.items():
        if name not in job.inputs:
            job.inputs[name] = deepcopy(value)
    for name, written in component.outputs.items():
        mine = job.outputs.get(name)
        if mine is None:
            job.outputs[name] = Output(type=written.type, mode=written.mode)
        else:
            mine.type = written.type or mine.type
            mine.mode = mine.mode or written.mode


def _default_of(declaration: Input, component: Component) -> Any:
    """A literal, or data, which lies relative to the component's file."""
    value = declaration.default
    if declaration.type in PRIMITIVES:
        return value
    path = value if is_remote(str(value)) else resolve(component, str(value))
    return Input(type=declaration.type, path=path, mode=declaration.mode)
