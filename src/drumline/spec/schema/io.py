"""The tables of inputs, outputs and services."""

from __future__ import annotations

import re

from drumline.spec.nodes import Mapping, Scalar
from drumline.spec.schema.kinds import (
    Anything,
    Choice,
    Integer,
    Kind,
    MapOf,
    Text,
    VersionText,
    join,
    shown,
)
from drumline.spec.schema.locations import LocalPath
from drumline.spec.schema.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Node
    from drumline.spec.schema.report import Report

_TEXT = Text()
_DATA_TYPES = ("uri_file", "uri_folder")
_MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
_READ_MODES = ("download", "ro_mount", "direct")
_TABLE_MODES = (*_READ_MODES, "eval_mount", "eval_download")
PRIMITIVES = ("string", "integer", "number", "boolean")
"""Types that a component declares; a job gives the value itself."""


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


def _input(types: tuple[str, ...], modes: tuple[str, ...], **more: Kind) -> Record:
    fields: dict[str, Kind] = {
        "type": Choice(*types),
        "path": _TEXT,
        "mode": Choice(*modes),
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
        report.add(f"{shown(given)} is not a type of input of a job", given, join(path, "type"), hint)
        return None


_OUTPUT_NAME = r"[A-Za-z0-9_-]{0,255}\Z"


class JobOutput(Record):
    """A mapping or nothing; a name registers what was written as a data asset. ``more``: types that it may have too."""

    def __init__(self, *more: str) -> None:
        fields: dict[str, Kind] = {
            "name": _TEXT,
            "version": VersionText(),
            "type": Choice(*_DATA_TYPES, *_MODEL_TYPES, "mltable", *more),
            "mode": Choice("mount", "rw_mount", "upload", "direct"),
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


_SERVICE: dict[str, Kind] = {
    "type": _TEXT,
    "nodes": _TEXT,
    "port": Integer(),
    "properties": MapOf(Anything()),
}
_SERVICE_EXTRAS: dict[str, dict[str, Kind]] = {
    "ssh": {"ssh_public_keys": _TEXT},
    "tensor_board": {"log_dir": _TEXT},
}
SERVICE_TYPES = ("jupyter_lab", "ssh", "tensor_board", "vs_code")


class Service(Kind):
    """
    An interactive service next to the job; a type that is not known is accepted and not started.
    """

    word = "a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path, report)
            return None
        extras = self._extras(node)
        ignored = ("$schema", "endpoint", "status", "error_message")
        values = Record("service", {**_SERVICE, **extras}, ignored=ignored).check(node, path, report)
        nodes = values.get("nodes")
        if nodes is not None and nodes != "all":
            where = node.get("nodes") or node
            hint = "leave `nodes` out for the first node only"
            report.add(f"{path}.nodes must be 'all', got {nodes!r}", where, join(path, "nodes"), hint)
        kind = values.get("type")
        if isinstance(kind, str) and kind.lower() in SERVICE_TYPES:
            values["type"] = kind.lower()
        return values

    def _extras(self, node: Mapping) -> dict[str, Kind]:
        given = node.get("type")
        if isinstance(given, Scalar):
            return _SERVICE_EXTRAS.get(str(given.value).lower(), {})
        return next((extra for extra in _SERVICE_EXTRAS.values() if extra.keys() & node.entries), {})


INPUTS = MapOf(JobInput())
OUTPUTS = MapOf(JobOutput())
SERVICES = MapOf(Service())
