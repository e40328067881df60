"""The component that a job calls: written out, in a file, or registered; and the job with what a command brings."""

from __future__ import annotations

import os
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.entity_types import component_class, component_table
from drumline.spec.jobs.component import Component
from drumline.spec.kinds.report import Report
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.io import Input, Output
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.files import read_tree
from drumline.spec.reading.tree import Mapping as Tree
from drumline.spec.reading.tree import Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO, Any

    from drumline.spec.jobs.job import Job

    Lookup = Callable[[str], Component]
    """The registered component that ``azureml:name:version`` names. Raises NotFoundError."""


def component_of(node: Job, lookup: Lookup) -> Component | None:
    """Return the component that a job calls; None for one that calls none. Raises SpecError, NotFoundError."""
    component: Any = node.__dict__.get("component")
    if component is None or isinstance(component, Component):
        return component
    if isinstance(component, dict):
        values = {key: value for key, value in component.items() if key != "type"}
        return class_of(component)(**values, base_path=node.base_path)
    return find_component(str(component), node.base_path, lookup)


def find_component(reference: str, base_path: str, lookup: Lookup) -> Component:
    """Return the component that is registered, or in a file. Raises SpecError, NotFoundError."""
    if reference.startswith("azureml:"):
        return lookup(reference)
    return read_component(os.path.join(base_path, reference.removeprefix("file:")), named=False)


def class_of(component: Mapping[str, Any]) -> type[Component]:
    """Return the class of a component that is written out, by what it holds."""
    kind = "pipeline" if "jobs" in component else "parallel" if "task" in component else "command"
    return component_class(kind)


def type_of(component: Tree) -> str:
    """Return the type that a component states, else the one that its keys imply."""
    given = component.get("type")
    if isinstance(given, Scalar) and isinstance(given.value, str):
        return given.value.lower()
    return "pipeline" if "jobs" in component else "parallel" if "task" in component else "command"


def read_component(
    source: str | os.PathLike[str] | IO[Any],
    relative_origin: str | os.PathLike[str] | None = None,
    overrides: list[dict[str, Any]] | None = None,
    *,
    named: bool,
) -> Component:
    """
    Return the component in a file.

    named: it must have a name. Raises SpecError with every problem of the file.
    """
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".py"):
        what = f"{os.fspath(source)!r} is Python, which is not run to read a component"
        raise SpecError(what, "import its function under @command_component: load_component(function)")
    name, root, base_path = read_tree(source, relative_origin, overrides)
    kind = type_of(root)
    kind = kind if kind in ("parallel", "pipeline") else "command"
    report = Report(base_path)
    values = component_table(kind, named=named).check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    values.pop("type", None)
    component: Component = component_class(kind)(**values, base_path=base_path)
    component._source = name
    return component


def fill_command(job: Any, component: Any) -> None:
    """Give a command job what its component says and the job itself does not."""
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
    declare_inputs(job, component)


def declare_inputs(job: Any, component: Component) -> None:
    """Give a job the declarations, defaults and outputs of its component."""
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
    """Return an input's default: a literal, or data, which lies relative to the component's file."""
    value = declaration.default
    if declaration.type in PRIMITIVES:
        return value
    path = value if is_remote(str(value)) else resolve(component, str(value))
    return Input(type=declaration.type, path=path, mode=declaration.mode)
