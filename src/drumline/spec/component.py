"""Components: a command, or a pipeline, with declared inputs and outputs; called, one becomes a node."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.distribution import to_distribution
from drumline.spec.entity import Written, text_path
from drumline.spec.environment import Environment, to_environment
from drumline.spec.foreign.nodes import refuse_within_theirs
from drumline.spec.io import Input, Output
from drumline.spec.keywords import refuse_unknown
from drumline.spec.resources import to_queue_settings, to_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.command import Command
    from drumline.spec.pipeline import PipelineJob

_SHARED = (
    "name", "version", "type", "display_name", "description", "tags", "is_deterministic", "inputs", "outputs",
)  # fmt: skip


class Component(Written):
    """
    The root. ``inputs`` and ``outputs`` declare: by name, an ``Input`` with type, default, optional, min, max, enum,
    and an ``Output`` with type and mode. ``id`` and ``creation_context`` are set by whoever stores the component.
    """

    type = ""
    _fields: tuple[str, ...] = _SHARED

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        display_name: str | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        is_deterministic: bool = True,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.version = None if version is None else str(version)
        self.description = description
        self.tags = dict(tags or {})
        self.display_name = display_name
        self.inputs: dict[str, Input] = {key: declared(value) for key, value in (inputs or {}).items()}
        self.outputs: dict[str, Output] = {key: _written(value) for key, value in (outputs or {}).items()}
        self.is_deterministic = is_deterministic
        self.id: str | None = None
        self.creation_context: Any = None
        refuse_unknown(kwargs, (*self._fields, "base_path", "id", "creation_context"), "the component")
        self._base_path: str = text_path(kwargs.get("base_path") or kwargs.get("_base_path") or "")
        self._source = ""

    @property
    def base_path(self) -> str:
        """The folder that relative paths resolve against."""
        return self._base_path or os.getcwd()

    def _plain(self) -> dict[str, Any]:
        return to_dict(self)

    @property
    def _label(self) -> str:
        return repr(self.name) if self.name else "the component"

    def _given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """What a call gives, by input. Raises SpecError for an input that is not declared."""
        refuse_within_theirs()
        if len(arguments) > len(self.inputs):
            raise SpecError(f"{self._label} takes {len(self.inputs)} inputs, got {len(arguments)}")
        given = dict(zip(self.inputs, arguments, strict=False))
        for name, value in named.items():
            if name not in self.inputs:
                known = ", ".join(map(repr, self.inputs)) or "none"
                raise SpecError(f"{self._label} has no input {name!r}", f"valid keywords: {known}")
            if name in given:
                raise SpecError(f"{self._label} got its input {name!r} twice")
            given[name] = value
        return {name: value for name, value in given.items() if value is not None}

    def _file(self) -> dict[str, Any]:
        return to_dict(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, version={self.version!r})"


class CommandComponent(Component):
    """One command line. A call with inputs gives a node of a pipeline, which can be submitted alone too."""

    type = "command"
    _fields = (
        *_SHARED, "command", "code", "environment", "distribution", "resources", "queue_settings",
        "additional_includes", "properties",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        command: str | None = None,
        code: Any = None,
        environment: Any = None,
        distribution: Any = None,
        resources: Any = None,
        queue_settings: Any = None,
        instance_count: int | None = None,
        additional_includes: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.code = text_path(code)
        self.environment: Environment | str | None = to_environment(environment)
        self.distribution = to_distribution(distribution)
        self.resources = to_resources(resources)
        if instance_count is not None:
            if resources is not None:
                raise SpecError("resources and instance_count exclude each other", "keep one")
            self.resources = to_resources({"instance_count": instance_count})
        self.queue_settings = to_queue_settings(queue_settings)
        self.additional_includes = list(additional_includes or [])
        self.properties = dict(properties or {})

    def __call__(self, *args: Any, **kwargs: Any) -> Command:
        """Raises SpecError for an input that is not declared."""
        from drumline.spec.command import Command

        return Command(component=self, inputs=self._given(args, kwargs))


class PipelineComponent(Component):
    """A pipeline with declared inputs and outputs. ``jobs``: as of a PipelineJob."""

    type = "pipeline"
    _fields = (*_SHARED, "jobs")

    def __init__(self, *, jobs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        from drumline.spec.steps import to_nodes

        self.jobs: dict[str, Any] = to_nodes(jobs, self._base_path)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineJob:
        """Raises SpecError for an input that is not declared."""
        from drumline.spec.pipeline import PipelineJob

        return PipelineJob(component=self, inputs=self._given(args, kwargs))


def declared(value: Any) -> Input:
    """The declaration of an input. Raises SpecError for what is none."""
    if isinstance(value, Input):
        return value
    if isinstance(value, dict):
        plain = dict(value)
        default = plain.pop("default", None)
        made = Input(**plain)
        # A port may name its data; only the input of a job may not have a default.
        made.default = default
        return made
    raise SpecError(
        f"an input is declared by a mapping, not by a {type(value).__name__}", "x: {type: number}"
    )


def _written(value: Any) -> Output:
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        return Output(**value)
    raise SpecError(f"an output is declared by a mapping, not by a {type(value).__name__}")


def to_dict(component: Component, *, absolute: bool = True) -> dict[str, Any]:
    """
    The component as a mapping with the keys of YAML.

    absolute: write local paths in full, for a file that is to lie elsewhere.
    """
    from drumline.spec.dump import pin_environment, plain
    from drumline.spec.paths import is_remote, resolve

    values = {key: plain(value) for key, value in component._values().items()}
    values["inputs"] = {name: _declaration(value) for name, value in component.inputs.items()}
    kept = {key: value for key, value in values.items() if value not in ({}, [])}
    if isinstance(component, PipelineComponent):
        from drumline.spec.dump import nodes_to_dict

        kept["jobs"] = nodes_to_dict(component.jobs, component.base_path, absolute=absolute)
    if isinstance(kept.get("task"), dict):
        from drumline.spec.dump import settle_task

        settle_task(kept["task"], component, absolute=absolute)
    if not isinstance(component, CommandComponent):
        return kept
    if isinstance(component.environment, Environment):
        owner: Any = component.environment if component.environment._base_path else component
        pin_environment(kept["environment"], owner, always=absolute)
    elif component.environment and not component.environment.startswith(("azureml:", "file:")):
        kept["environment"] = f"azureml:{component.environment}"
    if absolute:
        for key in ("code",):
            if isinstance(kept.get(key), str) and not is_remote(kept[key]):
                kept[key] = resolve(component, kept[key])
        if component.additional_includes:
            kept["additional_includes"] = [resolve(component, path) for path in component.additional_includes]
    return kept


def _declaration(value: Input) -> dict[str, Any]:
    """An unset ``optional`` says no, and is left out."""
    from drumline.spec.dump import plain

    fields = {key: plain(item) for key, item in value._values().items()}
    if not fields.get("optional"):
        fields.pop("optional", None)
    return fields
