"""The common base of all components, and the component that a job calls: written out, in a file, or registered."""

from __future__ import annotations

import os
import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain
from drumline.spec.entity_types import component_class, component_table
from drumline.spec.foreign_parts import HINT, is_within_theirs
from drumline.spec.hints import refuse_unknown
from drumline.spec.kinds.fields import Any, Located, MadeOf, OrEmpty, field
from drumline.spec.kinds.records import ByType, Record, list_fields
from drumline.spec.kinds.values import (
    PRIMITIVES,
    Anything,
    Flag,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    Report,
    Text,
    VersionText,
)
from drumline.spec.other_dialects import explain_type
from drumline.spec.parts.environment import give_folder
from drumline.spec.parts.io import Input, Output
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.files import read_tree
from drumline.spec.reading.source import problem_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

    from drumline.spec.jobs.job import Job
    from drumline.spec.reading.source import Mapping as Tree
    from drumline.spec.reading.source import Node

    Lookup = Callable[[str], "Component"]
    """The registered component that ``azureml:name:version`` names. Raises NotFoundError."""


_TEXT = Text()
_DECLARED = ("type", "mode", "optional", "default", "min", "max", "enum", "description")
_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


_PORTS = (
    "path",
    "custom_model",
    "mlflow_model",
    "mltable",
    "triton_model",
    "uri_file",
    "uri_folder",
)
_MODES = (
    "direct",
    "download",
    "eval_download",
    "eval_mount",
    "mount",
    "ro_mount",
    "rw_mount",
    "upload",
    "link",
)


def _parameter(name: str) -> Record:
    fields: dict[str, Kind] = {
        "type": _TEXT,
        "optional": Flag(),
        "default": Anything(),
        "min": Anything(),
        "max": Anything(),
        "enum": ListOf(Anything()),
        "description": _TEXT,
    }
    return Record(f"{name} input", fields, unknown="drop")


_PORT = Record(
    "input",
    {
        "type": _TEXT,
        "optional": Flag(),
        "default": Anything(),
        "mode": OneOf(*_MODES),
        "description": _TEXT,
    },
    unknown="drop",
)
DECLARED_INPUT = ByType({**{name: _parameter(name) for name in PRIMITIVES}, **dict.fromkeys(_PORTS, _PORT)})
_WRITTEN = Record(
    "output",
    {"type": _TEXT, "mode": OneOf(*_MODES), "description": _TEXT},
    unknown="drop",
)
DECLARED_OUTPUT = ByType(dict.fromkeys((*_PORTS, *PRIMITIVES), _WRITTEN))


_COMPONENT_NAME = r"^[a-z][a-z\d_]{0,254}$"


class ComponentName(Text):
    """Source: azure-ai-ml's ComponentNameStr."""

    json_types = ("string",)
    json_pattern = _COMPONENT_NAME

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if isinstance(value, str) and not re.match(_COMPONENT_NAME, value):
            what = f"the component name {value!r} may hold lower case letters, digits and '_' only"
            fixed = re.sub(r"\W", "_", value, flags=re.ASCII).lower()
            report.add(what, node, path, f"did you mean {fixed!r}?" if fixed[:1].isalpha() else "")
        return value


class _Declarations(MapOf):
    """Declared inputs or outputs by name; ``make`` makes one of a mapping of Python."""

    def __init__(self, item: Kind, make: Callable[[Any], Any]) -> None:
        super().__init__(item)
        self.make = make

    def adopt(self, value: Any) -> Any:
        return {name: self.make(item) for name, item in value.items()}


class Component(Written, Located):
    """
    The root. ``inputs`` and ``outputs`` declare: by name, an ``Input`` with type, default, optional, min, max, enum,
    and an ``Output`` with type and mode. ``id`` and ``creation_context`` are set by whoever stores the component.
    """

    name: str | None = field(_TEXT, default=None)
    version: str | None = field(VersionText(), default=None)
    type: str = field(_TEXT, default="", init=False)
    display_name: str | None = field(_TEXT, default=None)
    description: str | None = field(_TEXT, default=None)
    tags: OrEmpty[dict[str, str]] = field(MapOf(Text(nullable=True)), factory=dict)
    is_deterministic: bool = field(
        Flag(), "Whether the same inputs give the same outputs, so that results are reused.", default=True
    )
    inputs: MadeOf[dict[str, Input]] = field(
        _Declarations(DECLARED_INPUT, lambda value: to_declaration(value)), factory=dict
    )
    outputs: MadeOf[dict[str, Output]] = field(
        _Declarations(DECLARED_OUTPUT, lambda value: _to_output(value)), factory=dict
    )

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self.id: str | None = None
        self.creation_context: Any = None
        self._source = ""
        super()._settle_arguments({"_base_path": others.pop("_base_path", None)})
        refuse_unknown(others, (*self._fields, "id", "creation_context"), "the component")

    def _plain(self) -> dict[str, Any]:
        return self._file()

    @property
    def _func(self) -> Any:
        """Return what a call calls, as azure-ai-ml: public notebooks show it with ``help``."""
        return getattr(self, "__call__")  # noqa: B004, B009 - each kind has one

    @property
    def _label(self) -> str:
        return repr(self.name) if self.name else "the component"

    def _bind_arguments(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the values that a call gives, by input. Raises SpecError for an input that is not declared."""
        if is_within_theirs():
            raise SpecError("a component of drumline cannot be called under azure.ai.ml's @pipeline", HINT)
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
        values = {key: plain(value) for key, value in self._values().items()}
        values["inputs"] = {name: _plain_declaration(value) for name, value in self.inputs.items()}
        values = {key: value for key, value in values.items() if value not in ({}, [])}
        self._settle(values)
        return values

    def _settle(self, values: dict[str, Any]) -> None:
        """Write local paths in full in ``values``, the component as plain data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, version={self.version!r})"


def make_tables(
    noun: str, kind: type[Component], *required: str, make: type[Record] = Record, **kinds: Kind
) -> tuple[Record, Record]:
    """Return the tables of a component's file: of one that a job refers to, and of one that is registered by name."""
    named = list_fields(kind, name=ComponentName(), **kinds)
    return (
        make(noun, list_fields(kind, **kinds), required=required, unknown="drop"),
        make(noun, named, required=("name", *required), unknown="drop"),
    )


def to_declaration(value: Any) -> Input:
    """Return the declaration of an input. Raises SpecError if it is none."""
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


def declare(value: Any) -> Input:
    """Return the declaration of what a job has as an input: a value is the default of its type."""
    if isinstance(value, Input):
        known = {name: getattr(value, name) for name in _DECLARED}
        default = known.pop("default")
        made = Input(**{name: item for name, item in known.items() if item is not None})
        made.default = default
        return made
    for kind, word in _TYPES:
        if isinstance(value, kind):
            return Input(type=word, default=value)
    return Input(type="string")  # A search space, or what a pipeline is yet to give.


def declare_job(job: Any) -> dict[str, Any]:
    """Return the arguments that the component has which a job would be, but for those of its type."""
    fields: dict[str, Any] = {
        name: deepcopy(getattr(job, name)) for name in ("name", "display_name", "description", "tags")
    }
    fields["inputs"] = {name: declare(value) for name, value in job.inputs.items()}
    fields["outputs"] = {
        name: Output(type=output.type, mode=output.mode) for name, output in job.outputs.items()
    }
    return {**fields, "is_deterministic": job._is_deterministic, "base_path": job._base_path}


def _to_output(value: Any) -> Output:
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        # `path` is a folder or a file, and a step that writes needs to know: Azure makes it a folder.
        return Output(**{**value, "type": "uri_folder"} if value.get("type") == "path" else value)
    raise SpecError(f"an output is declared by a mapping, not by a {type(value).__name__}")


def _plain_declaration(value: Input) -> dict[str, Any]:
    """Return a declaration as plain data; an unset ``optional`` says no, and is left out."""
    fields = {key: plain(item) for key, item in value._values().items()}
    if not fields.get("optional"):
        fields.pop("optional", None)
    return fields


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
    given = component.value_of("type")
    if isinstance(given, str):
        return given.lower()
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
    if explained := explain_type(kind, "components"):
        raise SpecError([problem_at(root.get("type") or root, explained[0], path="type", hint=explained[1])])
    kind = kind if kind in ("parallel", "pipeline") else "command"
    values = component_table(kind, named=named).read(root, Report(base_path))
    values.pop("type", None)
    component: Component = component_class(kind)(**values, base_path=base_path)
    component._source = name
    return component


def fill_command(job: Any, component: Any) -> None:
    """Give a command job what its component says and the job itself does not."""
    if job.environment is None and component.environment is not None:
        job.environment = deepcopy(component.environment)
        give_folder(job.environment, component.base_path)
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
