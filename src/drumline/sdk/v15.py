"""Objects of ``azure.ml.component`` (v1.5) on top of today's components and pipelines."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from drumline.compat import distributed_component
from drumline.contract.errors import SpecError, UsageError
from drumline.control.assets import asset_verbs
from drumline.sdk.v1.pipeline import submit, validate
from drumline.spec import builder
from drumline.spec.dsl import pipeline as today
from drumline.spec.jobs.command import Command, CommandComponent
from drumline.spec.jobs.pipeline import PipelineJob
from drumline.spec.load import load_component
from drumline.spec.parts.environment import BuildContext, Environment
from drumline.spec.reading.files import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Put: TypeAlias = Callable[[Command, Any], None]
    """Gives a node a value."""
    from collections.abc import Callable, Iterator

    from drumline.sdk.v1.runs.run import Run
    from drumline.sdk.v1.workspace import Workspace
    from drumline.spec.jobs.component import Component as Today
    from drumline.spec.jobs.validate import ValidationResult


class SettingsSection:
    """A part of the settings, which passes what is set on it, by ``configure`` or as an attribute, to the node."""

    _node: Command
    _name: str
    _known: Mapping[str, Put]

    def __init__(self, node: Command, name: str, known: Mapping[str, Put]) -> None:
        object.__setattr__(self, "_node", node)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_known", known)

    def configure(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None:
            return
        put = self._known.get(name)
        if put is None:
            self._node._warnings.append(f"{self._name}.{name}: not used")
        else:
            put(self._node, value)


class RunSettings(SettingsSection):
    """The settings of a node. Other sections than these are accepted, with a warning."""

    def __init__(self, node: Command) -> None:
        super().__init__(node, "runsettings", _TOP)

    @property
    def resource_layout(self) -> SettingsSection:
        """Return the section of ``instance_count`` or ``node_count``, and ``process_count_per_node``."""
        return SettingsSection(self._node, "runsettings.resource_layout", _LAYOUT)

    @property
    def docker_configuration(self) -> SettingsSection:
        return SettingsSection(self._node, "runsettings.docker_configuration", _DOCKER)

    @property
    def environment(self) -> SettingsSection:
        return SettingsSection(self._node, "runsettings.environment", _ENVIRONMENT)

    def __getattr__(self, name: str) -> SettingsSection:
        if name.startswith("_"):
            raise AttributeError(name)
        return SettingsSection(self._node, f"runsettings.{name}", {})


def compute_name(target: Any) -> str:
    """Return the name of a compute, or the name itself. Raises UsageError."""
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"target must be a compute or its name; got {target!r}")
    return name


def _nodes(node: Command, value: Any) -> None:
    node.set_resources(instance_count=value)


def _processes(node: Command, value: Any) -> None:
    distribution: Any = node.distribution
    if hasattr(distribution, "process_count_per_instance"):
        distribution.process_count_per_instance = value
    elif value != 1:
        raise SpecError(
            "process_count_per_node: the component has no launcher and runs once per node",
            "a DistributedComponent",
        )


def _target(node: Command, value: Any) -> None:
    node.compute = compute_name(value)


def _variables(node: Command, value: Any) -> None:
    if not isinstance(value, dict):
        raise SpecError(
            f"environment_variables must be a dict, got {type(value).__name__}",
            "environment_variables={'NAME': 'value'}",
        )
    node.environment_variables.update(value)


def _seconds(node: Command, value: Any) -> None:
    node.set_limits(timeout=value)


class Docker:
    """The image of a step: its name, or the file that it is built from. Raises UsageError unless it is one of them."""

    def __init__(
        self, *, image: str | None = None, file: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> None:
        if (image is None) == (file is None):
            raise UsageError("Docker takes an image or a file", 'Docker(image="python:3.11")')
        folder, name = os.path.split(os.path.abspath(file)) if file else ("", "")
        self.environment = Environment(
            image=image, build=BuildContext(path=folder, dockerfile_path=name) if file else None
        )


def _docker(node: Command, value: Any) -> None:
    if not isinstance(value, Docker):
        raise UsageError(f"docker must be a Docker; got {type(value).__name__}", "Docker(image=...)")
    node.environment = value.environment


_ENVIRONMENT: dict[str, Put] = {"docker": _docker, "os": lambda node, value: None}
_LAYOUT: dict[str, Put] = {
    "instance_count": _nodes,
    "node_count": _nodes,
    "process_count_per_node": _processes,
    "process_count_per_instance": _processes,
}
_DOCKER: dict[str, Put] = {
    "shm_size": lambda node, value: node.set_resources(shm_size=value),
    "arguments": lambda node, value: node.set_resources(docker_args=value),
    "use_docker": lambda node, value: None,
    "shared_volumes": lambda node, value: None,
}
_TOP: dict[str, Put] = {
    "target": _target,
    "environment_variables": _variables,
    "timeout_seconds": _seconds,
    "priority": lambda node, value: node.set_queue_settings(priority=value),
    **_LAYOUT,
}


class StepNode(Command):
    """A component with its inputs: a step of a pipeline, and today's ``Command`` as well."""

    _home: Workspace | None = None

    @property
    def runsettings(self) -> RunSettings:
        return RunSettings(self)

    def set_inputs(self, *args: Any, **kwargs: Any) -> StepNode:
        """Set inputs by name. Raises SpecError for one that is not declared."""
        for name, value in self.component._bind_arguments((), kwargs).items():
            self.inputs[name] = to_input(value)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> StepNode:
        home = self.__dict__.pop("_home", None)
        try:
            copied = super().__deepcopy__(memo)
        finally:
            if home is not None:
                self.__dict__["_home"] = home
        assert isinstance(copied, StepNode)
        copied.__dict__["_home"] = home
        return copied

    def submit(
        self, experiment_name: str | None = None, tags: dict[str, str] | None = None, **kwargs: Any
    ) -> Any:
        """Submit it as a job of its own, as ``Pipeline.submit``."""
        return submit(self, self._home, experiment_name, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> Any:
        return validate(self, raise_error=raise_error)


class Function:
    """A component that is called with its inputs, in their order or by name."""

    def __init__(self, workspace: Workspace | None, component: Today) -> None:
        self._workspace = workspace
        self._component = component
        self.__name__ = component.name or "component"
        self.__doc__ = component.description

    name = property(lambda self: self._component.name)
    version = property(lambda self: self._component.version)

    def __call__(self, *args: Any, **kwargs: Any) -> StepNode | PipelineJob:
        """Return a step with these inputs. Raises SpecError for one that is not declared."""
        given = {
            name: to_input(value) for name, value in self._component._bind_arguments(args, kwargs).items()
        }
        if not isinstance(self._component, CommandComponent):
            made: PipelineJob = self._component(**given)  # type: ignore[operator]
            return made
        node = StepNode(component=self._component, inputs=given)
        node.__dict__["_home"] = self._workspace
        return node

    def __repr__(self) -> str:
        return f"Function({self._component!r})"


class Component:
    @staticmethod
    def from_yaml(
        workspace: Workspace | None = None, yaml_file: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> Function:
        """
        Load a component's file, old or new, and return its function. Raises SpecError with every problem of it.
        """
        if yaml_file is None:
            raise UsageError("yaml_file is missing", 'Component.from_yaml(ws, yaml_file="component.yml")')
        return Function(workspace, _load_component(yaml_file))

    @staticmethod
    def load(
        workspace: Workspace,
        namespace: str | None = None,
        name: str | None = None,
        version: str | None = None,
        selector: str | None = None,
        **kwargs: Any,
    ) -> Function:
        """
        Load a registered component, by default the latest. ``selector``: ``name``, ``name:version`` or
        ``name@label``. Raises NotFoundError.
        """
        label = None
        if selector:
            name, version, label = _parse_selector(selector)
        if not name:
            raise UsageError("name is missing", 'Component.load(ws, name="train")')
        with workspace._here():
            return Function(workspace, asset_verbs.get("component", name, version=version, label=label))

    @staticmethod
    def batch_load(
        workspace: Workspace, ids: Any = None, selectors: Any = None, **kwargs: Any
    ) -> list[Function]:
        """
        Load several, in the order of ``selectors``: strings as for ``load``, or tuples. Raises NotFoundError.
        """
        if ids:
            raise UsageError("ids of components are not supported", "use selectors=['train:1']")
        found = []
        for one in selectors or ():
            if isinstance(one, str):
                found.append(Component.load(workspace, selector=one))
            else:
                namespace, name, version = (*one, None, None)[:3]
                found.append(Component.load(workspace, namespace, name, version))
        return found

    @staticmethod
    def register(
        workspace: Workspace,
        yaml_file: str | os.PathLike[str],
        version: str | None = None,
        set_as_default: bool = False,
        **kwargs: Any,
    ) -> Function:
        """Keep it in the workspace under its name. Raises SpecError, UsageError."""
        with workspace._here():
            kept = asset_verbs.create(_load_component(yaml_file), version=version)
            return Function(workspace, asset_verbs.get("component", kept.name, version=str(kept.version)))


def _load_component(path: str | os.PathLike[str]) -> Today:
    place = os.fspath(path)
    if distributed_component.is_todays_component(read_yaml(place, place)):
        found: Today = load_component(place)
        return found
    return distributed_component.load(place)


def _parse_selector(selector: str) -> tuple[str, str | None, str | None]:
    name, sign, rest = selector.partition("@")
    if sign:
        return name, None, rest
    name, _, rest = selector.partition(":")
    return name, rest or None, None


def to_input(value: Any) -> Any:
    """Convert a dataset of v1 to today's input; leave others as they are. Raises SpecError for several outputs."""
    if hasattr(value, "_as_input"):
        return value._as_input()
    if hasattr(value, "as_mount") and hasattr(value, "path"):
        return value.as_mount()._as_input()
    if isinstance(value, StepNode):
        outputs = list(value.outputs.values())
        if len(outputs) != 1:
            raise SpecError(
                f"a component with {len(outputs)} outputs cannot be an input", "name one: .outputs.x"
            )
        return outputs[0]
    return value


class Pipeline:
    """
    The result of calling a function under ``@dsl.pipeline``, with every attribute of today's ``PipelineJob``.
    """

    def __init__(self, job: PipelineJob, workspace: Workspace | None = None) -> None:
        if not isinstance(job, PipelineJob):
            raise UsageError(
                "Pipeline(nodes=...) is not supported", "put the calls in a function under @dsl.pipeline"
            )
        self._job = job
        self.workspace = workspace or next(_list_workspaces(job), None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._job, name)

    @property
    def nodes(self) -> dict[str, Any]:
        return self._job.jobs

    def submit(
        self,
        experiment_name: str | None = None,
        default_compute_target: Any = None,
        description: str | None = None,
        pipeline_parameters: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
        **kwargs: Any,
    ) -> Run:
        """
        Start it and return at once. ``regenerate_outputs``: run every step again, never reuse results.

        Raises SpecError, PlanError; nothing was created then.
        """
        settings = self._job.settings
        if default_compute_target is not None:
            settings.default_compute = compute_name(default_compute_target)
        if continue_on_step_failure is not None:
            settings.continue_on_step_failure = continue_on_step_failure
        if regenerate_outputs is not None:
            settings.force_rerun = regenerate_outputs
        for name, value in (pipeline_parameters or {}).items():
            if name not in self._job.inputs:
                known = ", ".join(map(repr, self._job.inputs)) or "none"
                raise SpecError(f"the pipeline has no parameter {name!r}", f"valid keywords: {known}")
            self._job.inputs[name] = to_input(value)
        workspace = kwargs.pop("workspace", None) or self.workspace
        return submit(self._job, workspace, experiment_name, description=description, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> ValidationResult:
        """Return every problem; raise SpecError with them when asked to."""
        return validate(self._job, raise_error=raise_error)

    def __repr__(self) -> str:
        return f"Pipeline({self._job.display_name!r}, nodes={list(self._job.jobs)})"


def pipeline(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    default_compute_target: Any = None,
    default_datastore: Any = None,
    **kwargs: Any,
) -> Any:
    """
    Make a call of the decorated function return a ``Pipeline``; otherwise as today's ``drumline.dsl.pipeline``.

    default_compute_target: a compute or its name, for steps that have none.
    """
    if default_compute_target is not None:
        kwargs["default_compute_target"] = compute_name(default_compute_target)
    if default_datastore is not None:
        kwargs["default_datastore"] = getattr(default_datastore, "name", default_datastore)

    def decorate(function: Callable[..., Any]) -> Callable[..., Pipeline | PipelineJob]:
        build = today(name=name, description=description, **kwargs)(function)

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Pipeline | PipelineJob:
            given = {key: to_input(value) for key, value in named.items()}
            job: PipelineJob = build(*map(to_input, args), **given)
            # Within another pipeline it is a node of that.
            return Pipeline(job) if builder.current() is None else job

        return call

    return decorate(func) if func is not None else decorate


def _list_workspaces(job: PipelineJob) -> Iterator[Workspace]:
    """List the workspaces that the components of its nodes are from."""
    for node in job.jobs.values():
        if isinstance(node, StepNode) and node._home is not None:
            yield node._home
        elif isinstance(node, PipelineJob):
            yield from _list_workspaces(node)
