"""Inputs and outputs of a job, and the bindings by which nodes of a pipeline get them when it runs."""

from __future__ import annotations

import math
import re

from drumline.contract.errors import SpecError
from drumline.spec.entity import Attributes, Keyed
from drumline.spec.foreign_parts import ours
from drumline.spec.kinds.fields import Any, Declared, Field, field
from drumline.spec.kinds.locations import LocalPath
from drumline.spec.kinds.records import MapInto, Record
from drumline.spec.kinds.schemas import lacks, when_type
from drumline.spec.kinds.values import (
    PRIMITIVES,
    Anything,
    Flag,
    Kind,
    OneOf,
    PathText,
    Text,
    VersionText,
    join,
    quote_node,
)
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node


_TEXT = Text()
_DATA_TYPES = ("uri_file", "uri_folder")
_MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
_READ_MODES = ("download", "ro_mount", "direct")
_TABLE_MODES = (*_READ_MODES, "eval_mount", "eval_download")


_PYTHON_MODES = {"mount": "ro_mount", "eval_mount": "ro_mount", "eval_download": "download"}
"""Modes that azure-ai-ml's ``Input`` takes of all data in Python: as it sends them, and tables alone are evaluated."""

_INPUT_KINDS = "Input, a mapping, text, a number or a boolean"


class Input(Keyed, Declared):
    """Data that a job reads, or the declaration of a component's parameter."""

    type: str = field(OneOf(), default="uri_folder")
    path: Any = field(PathText(), default=None)
    mode: str | None = field(OneOf(), default=None)
    path_on_compute: str | None = field(LocalPath(), default=None)
    default: str | float | bool | None = field(Anything(), default=None)
    optional: bool | None = field(Flag(), default=None)
    min: float | None = field(Anything(), default=None)
    max: float | None = field(Anything(), default=None)
    enum: Any = field(Anything(), default=None)
    description: str | None = field(_TEXT, default=None)
    datastore: str | None = field(_TEXT, default=None)
    _of_data = ("type", "path", "mode", "path_on_compute", "datastore")

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Check what excludes each other; what else Azure's takes is dropped."""
        is_primitive = self.type in PRIMITIVES
        if is_primitive:
            for name in ("path", "mode", "datastore"):
                value = getattr(self, name)
                if value is not None:
                    raise SpecError(f"an input of type {self.type!r} has no {name!r}, got {value!r}")
        elif self.default is not None:
            raise SpecError(f"an input of type {self.type!r} has no default", "give it a `path`")

    def _plain(self) -> dict[str, Any]:
        values = self._values()
        if isinstance(self.mode, str) and self.mode.lower() in _PYTHON_MODES and self.type != "mltable":
            values["mode"] = _PYTHON_MODES[self.mode.lower()]
        return (
            values
            if self.type in PRIMITIVES
            else {key: values[key] for key in self._of_data if key in values}
        )


class Output(Keyed, Declared):
    """Data that a job writes; with a ``name``, registered as a data asset once the job is done."""

    _hidden = ("description",)
    _keeps_empty = True

    type: str | None = field(OneOf(), default="uri_folder")
    path: Any = field(PathText(), default=None)
    mode: str | None = field(OneOf("mount", "rw_mount", "upload", "direct"), default=None)
    name: str | None = field(
        _TEXT, "The name of the data asset or model that the output becomes.", default=None
    )
    version: str | None = field(VersionText(), default=None)
    description: str | None = field(_TEXT, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Check the name; what else Azure's takes is dropped."""
        if self.version and not self.name:
            raise SpecError("an output with a version needs a name", "give `name=` as well")

    def _plain(self) -> Any:
        values = self._values()
        is_bound = values.keys() == {"path"} and PATTERN.search(str(self.path))
        return self.path if is_bound else super()._plain()


class Inputs(Attributes):
    """The inputs of a job; a dictionary that is put in becomes an ``Input``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_input(name, value))


class Outputs(Attributes):
    """The outputs of a job; ``None`` and dictionaries become an ``Output``."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self:
            self.__dict__.setdefault("_replaced", []).append((name, self[name]))
        super().__setitem__(name, to_output(name, value))

    def _with_replaced(self) -> list[tuple[str, Any]]:
        """Return each output with its name, and those that it has replaced: who took one has this output still."""
        return [*self.items(), *self.__dict__.get("_replaced", ())]


class Literal(Kind):
    """A number, text or boolean; the program sees it as text."""

    word = "text, a number or a boolean"
    json_types = ("string", "number", "boolean")

    def convert(self, node: Node) -> Any:
        value = node.value
        is_finite = not isinstance(value, float) or value - value == 0
        return value if isinstance(value, (str, int, float)) and is_finite else None


def _input(types: tuple[str, ...], modes: tuple[str, ...], **more: Kind) -> Record:
    fields: dict[str, Kind] = {
        "type": OneOf(*types),
        "path": _TEXT,
        "mode": OneOf(*modes),
        "datastore": _TEXT,
    }
    return Record("input", {**fields, **more})


_DATA = _input(_DATA_TYPES, _READ_MODES, path_on_compute=LocalPath())
_MODEL = _input(_MODEL_TYPES, _READ_MODES)
_TABLE = _input(("mltable",), _TABLE_MODES, path_on_compute=LocalPath())
_UNTYPED = _input(_DATA_TYPES, _TABLE_MODES, path_on_compute=LocalPath())
_BY_TYPE = {**dict.fromkeys(_DATA_TYPES, _DATA), **dict.fromkeys(_MODEL_TYPES, _MODEL), "mltable": _TABLE}
_VALUE = Record("input", {"value": Literal()})


class JobInput(Literal):
    """A literal, or a mapping that names data."""

    word = "text, a number, a boolean, or a mapping with 'type' and 'path'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            return super().take(node, path, report)
        if "value" in node and not {"type", "path"} & node.entries.keys():
            values = _VALUE.check(node, path, report)
            return values.get("value")
        given = node.get("type")
        kind = str(node.value_of("type")).lower()
        table = _UNTYPED if given is None else _BY_TYPE.get(kind)
        if table is not None:
            before = report.count
            values = table.check(node, path, report)
            return values if report.count > before else Input._from_checked(values)
        assert given is not None
        known = ", ".join(map(repr, (*_DATA_TYPES, "mltable", *_MODEL_TYPES)))
        hint = f"one of {known}"
        if kind in PRIMITIVES:
            hint = f"give the value itself: `{path.rpartition('.')[2]}: ...`"
        report.add(f"{quote_node(given)} is not a type of input of a job", given, join(path, "type"), hint)
        return None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {
            "anyOf": [
                super().json_schema(schemas),
                schemas.share(self, "input", lambda: _make_input(schemas)),
            ]
        }


def _make_input(schemas: Schemas) -> JsonSchema:
    """Make the schema of an input that is a mapping."""
    by_type = [
        when_type(_DATA_TYPES, schemas.make(_DATA)),
        when_type(_MODEL_TYPES, schemas.make(_MODEL)),
        when_type(("mltable",), schemas.make(_TABLE)),
        {"if": lacks("type"), "then": schemas.make(_UNTYPED)},
    ]
    types = OneOf(*_DATA_TYPES, "mltable", *_MODEL_TYPES).json_schema(schemas)
    named = {"properties": {"type": types}, "allOf": by_type}
    is_value = {"required": ["value"], "allOf": [lacks("type"), lacks("path")]}
    return {"type": "object", "if": is_value, "then": schemas.make(_VALUE), "else": named}


_OUTPUT_NAME = r"[A-Za-z0-9_-]{0,255}\Z"


class JobOutputRecord(Record):
    """A mapping or nothing; a name registers what was written as a data asset. ``more``: types that it may have too."""

    def __init__(self, *more: str) -> None:
        types = OneOf(*_DATA_TYPES, *_MODEL_TYPES, "mltable", *more)
        fields = {**Output._declarations, "type": Field(types, Output._declarations["type"].text)}
        del fields["description"]
        super().__init__("output", fields, ignored=("$schema",), nullable=True)

    def take(self, node: Node, path: str, report: Report) -> Any:
        before = report.count
        values = super().take(node, path, report)
        if values is None or report.count > before or not isinstance(node, Mapping):
            return values
        name = values.get("name")
        if name and not re.match(_OUTPUT_NAME, name):
            what = f"{path}.name may hold letters, digits, '-' and '_', at most 255, got {name!r}"
            report.add(what, node.get("name") or node, join(path, "name"))
        if values.get("version") and not name:
            what = f"{path} has a version but no name"
            hint = "give the `name` to register it under, or remove `version`"
            report.add(what, node.get("version") or node, join(path, "version"), hint)
        return values if report.count > before else Output._from_checked(values)


INPUTS = MapInto(JobInput(), Inputs)
OUTPUTS = MapInto(JobOutputRecord(), Outputs)


def fits_primitive(primitive: str, value: Any) -> bool:
    """Return whether a literal can be ``string``, ``integer``, ``number`` or ``boolean``; text can, such as ``"4"``."""
    text = str(value)
    try:
        if primitive == "integer":
            return not isinstance(value, bool) and float(text) == int(float(text))
        if primitive == "number":
            return not isinstance(value, bool) and math.isfinite(float(text))
    except (ValueError, OverflowError):
        return False
    return primitive != "boolean" or text.lower() in ("true", "false", "0", "1", "yes", "no")


def to_input(name: str, value: Any) -> Any:
    """Return an ``Input`` or a literal. Raises SpecError for what cannot be an input."""
    from enum import Enum

    value = value.value if isinstance(value, Enum) else ours(value)
    if isinstance(value, dict):
        return value["value"] if value.keys() == {"value"} else Input(**value)
    if isinstance(value, (Input, str, int, float)):
        return value
    if isinstance(value, Binding):
        return value
    if isinstance(value, Output):
        return _from_output(value)
    from drumline.spec.parts.search import ParameterExpression

    if isinstance(value, ParameterExpression):
        return value  # Until ``sweep`` moves it to the search space.
    kind = type(value).__name__
    raise SpecError(f"input {name!r} cannot be of type {kind!r}", f"give {_INPUT_KINDS}")


def _from_output(value: Output) -> Any:
    """
    Return the source of an output: a node of the pipeline in the making, else an earlier job, as in Azure's samples.
    """
    from drumline.spec import builder

    current = builder.current()
    found = current.owner_of(value) if current else None
    if found:
        return NodeOutput(*found, str(value.type or ""))
    return Input(type=value.type or "uri_folder", path=value.path)


def to_output(name: str, value: Any) -> Output:
    """Return an ``Output``. Raises SpecError for what cannot be one."""
    value = ours(value)
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        return Output(**value)
    if isinstance(value, str) and PATTERN.search(value):
        return Output(type=None, path=value)  # Of a node, bound to an output of its pipeline.
    kind = type(value).__name__
    raise SpecError(f"output {name!r} cannot be of type {kind!r}", "give Output(...) or a mapping")


PATTERN = re.compile(r"\$\{\{\s*([^\s{}]*)\s*\}\}")

RESERVED_OUTPUTS = ("default", "artifacts")
"""Of every job: its ``outputs`` folder, and all that it logged and kept."""

_MACROS = ("name", "output_name", "default_datastore")
"""Of an output's path, which are known when the job is submitted. Source: azure-ai-ml's own default path."""


class Binding:
    """The root; ``str()`` is what YAML has in its place. A copy of a job refers to the same as the job."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class PipelineInput(Binding):
    """A parameter of a function under ``@pipeline``, while the function runs."""

    def __init__(self, name: str, type: str = "") -> None:
        self.name = name
        self.type = type

    def __str__(self) -> str:
        return f"${{{{parent.inputs.{self.name}}}}}"


class NodeOutput(Binding):
    """The output of a node, as the input of another; the node gets its name when the pipeline's function has ended."""

    def __init__(self, node: Any, name: str, type: str = "") -> None:
        self.node = node
        self.name = name
        self.type = type

    def __str__(self) -> str:
        return f"${{{{parent.jobs.{self.node._node_name or '?'}.outputs.{self.name}}}}}"


def texts_of(value: Any) -> list[str]:
    """Return the expressions within an input or an output of a node, such as ``parent.inputs.x``."""
    if isinstance(value, Binding):
        value = str(value)
    elif hasattr(value, "path"):
        value = value.path
    if not isinstance(value, str):
        return []
    return [text for text in PATTERN.findall(value) if text not in _MACROS]
