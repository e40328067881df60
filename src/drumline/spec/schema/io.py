"""The tables of inputs and outputs."""

from __future__ import annotations

import re

from drumline.spec.kinds.locations import LocalPath
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    PRIMITIVES,
    Kind,
    MapOf,
    OneOf,
    Text,
    VersionText,
    join,
    quote_node,
)
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_TEXT = Text()
_DATA_TYPES = ("uri_file", "uri_folder")
_MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
_READ_MODES = ("download", "ro_mount", "direct")
_TABLE_MODES = (*_READ_MODES, "eval_mount", "eval_download")


class Literal(Kind):
    """A number, text or boolean; the program sees it as text."""

    word = "text, a number or a boolean"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        finite = not isinstance(value, float) or value - value == 0
        if isinstance(value, (str, int, float)) and finite:
            return value
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


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
_VALUE = Record("input", {"value": Literal()})


class JobInput(Kind):
    """A literal, or a mapping that names data."""

    word = "text, a number, a boolean, or a mapping with 'type' and 'path'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return self._mapping(node, path, report)
        if isinstance(node, Scalar):
            literal = Literal()
            literal.word = self.word
            return literal.check(node, path, report)
        self.refuse(node, path, report)
        return None

    def _mapping(self, node: Mapping, path: str, report: Report) -> Any:
        if "value" in node and not {"type", "path"} & node.entries.keys():
            values = _VALUE.check(node, path, report)
            return values.get("value")
        given = node.get("type")
        if given is None:
            return _UNTYPED.check(node, path, report)
        kind = str(given.value).lower() if isinstance(given, Scalar) else ""
        if kind in _DATA_TYPES:
            return _DATA.check(node, path, report)
        if kind in _MODEL_TYPES:
            return _MODEL.check(node, path, report)
        if kind == "mltable":
            return _TABLE.check(node, path, report)
        known = ", ".join(map(repr, (*_DATA_TYPES, "mltable", *_MODEL_TYPES)))
        hint = f"one of {known}"
        if kind in PRIMITIVES:
            hint = f"give the value itself: `{path.rpartition('.')[2]}: ...`"
        report.add(f"{quote_node(given)} is not a type of input of a job", given, join(path, "type"), hint)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {
            "anyOf": [
                Literal().json_schema(schemas),
                schemas.share(self, "input", lambda: _make_input(schemas)),
            ]
        }


def _make_input(schemas: Schemas) -> dict[str, Any]:
    """Make the schema of an input that is a mapping."""
    from drumline.spec.kinds.schemas import lacks, when_type

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
        fields: dict[str, Kind] = {
            "name": _TEXT,
            "version": VersionText(),
            "type": OneOf(*_DATA_TYPES, *_MODEL_TYPES, "mltable", *more),
            "mode": OneOf("mount", "rw_mount", "upload", "direct"),
            "path": _TEXT,
        }
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
        return values


INPUTS = MapOf(JobInput())
OUTPUTS = MapOf(JobOutputRecord())
