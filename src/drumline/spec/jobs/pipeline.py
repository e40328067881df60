"""Jobs that feed each other: the pipeline job, the component, and the nodes of both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import fill
from drumline.spec.entity_types import JOB_TYPES, job_class
from drumline.spec.foreign_parts import ours
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.jobs.component import (
    Component,
    class_of,
    component_of,
    declare_inputs,
    fill_command,
    find_component,
)
from drumline.spec.jobs.job import Job, to_dict
from drumline.spec.jobs.parallel import SETTINGS as PARALLEL_SETTINGS
from drumline.spec.jobs.parallel import Parallel, ParallelComponent, to_command
from drumline.spec.kinds.fields import Declared, MadeOf, field
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import Anything, Flag, Kind
from drumline.spec.parts.environment import give_folder
from drumline.spec.parts.io import PATTERN
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.files import read_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.component import Lookup
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node as TreeNode


class _DefaultCompute(Kind):
    word = "'serverless' or 'azureml:<name>'"
    json_types = ("string",)
    json_pattern = "^(azureml:|[Ss][Ee][Rr][Vv][Ee][Rr][Ll][Ee][Ss][Ss]$)"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value
        if isinstance(value, str) and (value.lower() == "serverless" or _is_name(value)):
            return value
        self.refuse(node, path, report, _suggest_setting(value, "write `compute: {}` on the steps"))
        return None


class _DefaultDatastore(Kind):
    word = "'azureml:<name>'"
    json_types = ("string",)
    json_pattern = "^azureml:"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value
        if isinstance(value, str) and _is_name(value):
            return value
        self.refuse(node, path, report, _suggest_setting(value, "write the name itself"))
        return None


def _is_name(value: str) -> bool:
    return value.startswith("azureml:") and "${{" not in value


def _suggest_setting(value: object, bound: str) -> str:
    """Return the hint for a name without ``azureml:``; ``bound``: what to do in the place of a binding."""
    if not isinstance(value, str):
        return ""
    if "${{" in value:
        return f"a setting cannot be bound; {bound.format(value.removeprefix('azureml:'))}"
    return f"write 'azureml:{value}'"


class PipelineJobSettings(Declared):
    """The settings that the nodes of a pipeline fall back on; other settings are kept as they are."""

    default_datastore: str | None = field(
        _DefaultDatastore(), "The datastore of outputs that name none.", default=None, kw_only=False
    )
    default_compute: str | None = field(
        _DefaultCompute(), "The compute of steps that name none.", default=None, kw_only=False
    )
    continue_on_step_failure: bool | None = field(
        Flag(), "Whether independent steps still run after a step failed.", default=None, kw_only=False
    )
    force_rerun: bool | None = field(
        Flag(), "Whether steps run again although nothing has changed.", default=None, kw_only=False
    )

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self.__dict__.update(others)

    def _values(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value is not None}

    def _plain(self) -> dict[str, Any]:
        """Return the settings as YAML has them: Python takes plain names, YAML does not."""
        values = self._values()
        for name in ("default_compute", "default_datastore"):
            value = values.get(name)
            if isinstance(value, str) and value != "serverless" and not value.startswith("azureml:"):
                values[name] = f"azureml:{value}"
        return values


class _Settings(Record):
    def adopt(self, value: Any) -> Any:
        value = ours(value)
        return PipelineJobSettings(**value) if isinstance(value, dict) else value


SETTINGS = _Settings("settings", list_fields(PipelineJobSettings), unknown="keep")


class PipelineJob(Job):
    """
    ``jobs`` maps the name of each node to a ``Command``, ``SweepJob`` or ``PipelineJob``, which mappings with the
    keys of YAML become. ``component``: a PipelineComponent, or what refers to one, in their place.
    """

    type = "pipeline"
    settings: MadeOf[PipelineJobSettings] = field(
        SETTINGS, "Settings of the whole pipeline.", factory=PipelineJobSettings
    )
    jobs: MadeOf[dict[str, Any]] = field(Anything(), "The steps by name.", default=None, last=True)
    component: Any = field(Anything(), default=None, last=True)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        self.jobs = to_nodes(self.jobs, self._base_path)
        self._optional: frozenset[str] = frozenset()
        """Parameters of its function that were given as None."""
        self._prepared: list[dict[str, Any]] | None = None
        """Its steps as they were when the pipeline that it is a step of was submitted."""
        for name, output in getattr(self.component, "outputs", {}).items():
            if name not in self.outputs:
                self.outputs[name] = deepcopy(output)
        builder.register(self)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineJob:
        """Return a copy with some inputs replaced. Raises SpecError for an input that it does not have."""
        takes = dict.fromkeys((*self.inputs, *getattr(self.component, "inputs", ()), *sorted(self._optional)))
        unknown = next((name for name in kwargs if name not in takes), None)
        if args or unknown is not None:
            known = ", ".join(map(repr, takes)) or "none"
            raise SpecError(f"the pipeline has no input {unknown!r}", f"valid keywords: {known}")
        builder.withdraw(self)
        copied = deepcopy(self)
        copied.name = None
        fill(copied.inputs, kwargs)
        builder.register(copied)
        return copied

    def _settle(self, values: dict[str, Any], *, absolute: bool) -> None:
        if self.jobs:
            values["jobs"] = _plain_nodes(self.jobs, self.base_path, absolute=absolute)
        super()._settle(values, absolute=absolute)


class PipelineComponent(Component):
    """A pipeline with declared inputs and outputs. ``jobs``: as of a PipelineJob."""

    type = "pipeline"
    jobs: MadeOf[dict[str, Any]] = field(Anything(), "The steps by name.", default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        self.jobs = to_nodes(self.jobs, self._base_path)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineJob:
        """Return a pipeline of this component. Raises SpecError for an input that is not declared."""
        return PipelineJob(component=self, inputs=self._bind_arguments(args, kwargs))

    def _settle(self, values: dict[str, Any]) -> None:
        values["jobs"] = _plain_nodes(self.jobs, self.base_path, absolute=True)


def _plain_nodes(jobs: dict[str, Any], base_path: str, *, absolute: bool) -> dict[str, Any]:
    """Return the nodes of a pipeline that lies in ``base_path``; one from another folder has absolute paths."""
    values = {}
    for name, node in jobs.items():
        is_absolute = absolute or node.base_path != base_path
        values[name] = to_dict(node, absolute=is_absolute)
        if is_absolute and isinstance(values[name].get("component"), dict):
            written = {key: value for key, value in values[name]["component"].items() if key != "type"}
            values[name]["component"] = class_of(written)(**written, base_path=node.base_path)._file()
    return values


def to_nodes(jobs: dict[str, Any] | None, base_path: str) -> dict[str, Any]:
    """Return jobs for mappings of YAML, whose relative paths resolve against ``base_path``. Raises SpecError."""
    made: dict[str, Any] = {}
    if not isinstance(jobs or {}, Mapping):
        raise SpecError(f"jobs must be a mapping, not a {type(jobs).__name__}")
    with builder.building(None):
        for name, node in (jobs or {}).items():
            is_twice = any(node is other for other in made.values())
            made[name] = to_node(name, deepcopy(node) if is_twice else node, base_path)
    return made


def to_node(name: str, node: Any, base_path: str) -> Any:
    """Return a job for a node; one that is a job already is left as it is."""
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
    kind = _class_of(name, node, base_path)
    # Of what is left out the tables of YAML have told, where it was to be told.
    values = {key: value for key, value in node.items() if key in kind._fields and key != "type"}
    made: Job = kind(**values, base_path=base_path)
    made._comment = node.get("comment")
    made._warnings = []
    give_folder(getattr(made, "environment", None), base_path)
    return made


def _class_of(name: str, node: dict[str, Any], base_path: str) -> type[Any]:
    given = node.get("type") or _type_by_content(node, base_path)
    kind = str(given).lower()
    if kind in JOB_TYPES:
        return job_class(kind)
    problem = f"jobs.{name}: nodes of type {kind!r} are not supported"
    raise SpecError(problem, "command, parallel, sweep and pipeline are")


def _type_by_content(node: dict[str, Any], base_path: str) -> str:
    """Return the type of a node that does not say it: a pipeline's or parallel, or its component's."""
    component = node.get("component")
    if isinstance(component, str) and not component.startswith("azureml:"):
        try:
            held: Any = read_yaml(os.path.join(base_path, component.removeprefix("file:")))
        except SpecError:
            return "command"  # To be told when it is needed.
    else:
        held = component if isinstance(component, dict) else node
    return "pipeline" if "jobs" in held else "parallel" if "task" in held else "command"


def fill_component(node: Job, lookup: Lookup) -> Job:
    """
    Return the node as a job that needs no component: its own fields go before those of its component.

    ``_declared``: the component's inputs, by which the values are to be checked; empty for a node without one.
    Raises SpecError, NotFoundError.
    """
    component = component_of(node, lookup)
    job = deepcopy(node)
    if isinstance(component, PipelineComponent):
        # A node need not say of which type its component is.
        is_pipeline = job.type == "pipeline"
        return _pipeline(
            job if is_pipeline else _as(PipelineJob, job, without=("jobs", "settings")), component
        )
    if isinstance(component, CommandComponent):
        if job.type != "command":
            raise SpecError(f"{component._label} is a command, and this a {job.type}")
        fill_command(job, component)
        return job
    if isinstance(component, ParallelComponent):
        job = _parallel(job if job.type == "parallel" else _as(Parallel, job), component)
    if job.type == "parallel":
        return to_command(job)  # type: ignore[arg-type]
    trial = getattr(job, "trial", None)
    if isinstance(trial, str):
        space: Any = job.search_space  # type: ignore[attr-defined]
        declare_inputs(job, find_component(trial, job.base_path, lookup))
        job._declared = {name: one for name, one in job._declared.items() if name not in space}
        for name in space:
            job.inputs.pop(name, None)
    return job


def _as(kind: type[Any], job: Any, without: tuple[str, ...] = ()) -> Any:
    with builder.building(None):
        made = kind()
    for name in (*kind._fields, "_base_path", "_node_name", "_comment", "_root"):
        if hasattr(job, name) and name not in ("type", *without):
            object.__setattr__(made, name, getattr(job, name))
    return made


def _parallel(job: Any, component: ParallelComponent) -> Job:
    pin_job_paths(job)
    if job.task is None and component.task is not None:
        job.task = deepcopy(component.task)
        if job.task.code and not is_remote(job.task.code):
            job.task.code = resolve(component, job.task.code)
        give_folder(job.task.environment, component.base_path)
    for name in (*PARALLEL_SETTINGS, "resources"):
        if getattr(job, name) is None:
            setattr(job, name, deepcopy(getattr(component, name)))
    job._is_deterministic = component.is_deterministic
    job.component = None
    declare_inputs(job, component)
    return job  # type: ignore[no-any-return]


def _pipeline(job: Any, component: PipelineComponent) -> Job:
    job.component = None
    pin_job_paths(job)
    job.jobs = component.jobs
    if not component.is_deterministic:
        job.settings.force_rerun = True
    job._base_path = component.base_path
    job._source = os.path.abspath(component._source) if component._source else ""
    declare_inputs(job, component)
    return job  # type: ignore[no-any-return]


def pin_job_paths(job: Any) -> None:
    """Make its paths absolute, so that they may be read from another folder."""
    for given in (*job.inputs.values(), *job.outputs.values()):
        path = getattr(given, "path", None)
        if isinstance(path, str) and path and not is_remote(path) and not PATTERN.search(path):
            given.path = resolve(job, path)
