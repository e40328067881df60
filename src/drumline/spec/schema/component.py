"""
The tables of a command component, inline or in a file of its own; keys that they do not know are
dropped.
"""

from __future__ import annotations

import re

from drumline.spec.kinds.records import ByType, Record
from drumline.spec.kinds.values import (
    PRIMITIVES,
    Anything,
    Flag,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    Text,
    VersionText,
    join,
)
from drumline.spec.parts.distribution import LOOSE_DISTRIBUTION
from drumline.spec.parts.resources import LOOSE_RESOURCES
from drumline.spec.reading.tree import Mapping, Scalar
from drumline.spec.schema.command import PROGRAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_TEXT = Text()
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
_BOUND = re.compile(r"\$\{\{\s*(inputs|outputs|search_space)\.([\w.-]+)\s*\}\}")


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

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if isinstance(value, str) and not re.match(_COMPONENT_NAME, value):
            what = f"the component name {value!r} may hold lower case letters, digits and '_' only"
            fixed = re.sub(r"\W", "_", value, flags=re.ASCII).lower()
            report.add(what, node, path, f"did you mean {fixed!r}?" if fixed[:1].isalpha() else "")
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": _COMPONENT_NAME}


def list_declarations(kind: str, *, named: bool) -> dict[str, Kind]:
    """Return the fields of every component, of one of type ``kind``; ``named``: one that is registered."""
    return {
        "type": OneOf(kind),
        "name": ComponentName() if named else _TEXT,
        "version": VersionText(),
        "display_name": _TEXT,
        "description": _TEXT,
        "tags": MapOf(Text(nullable=True)),
        "is_deterministic": Flag(),
        "inputs": MapOf(DECLARED_INPUT),
        "outputs": MapOf(DECLARED_OUTPUT),
    }


class CommandComponentRecord(Record):
    """A command with declared inputs and outputs; one in a file of its own, to be registered, has a name."""

    def __init__(self, *, named: bool = False) -> None:
        fields: dict[str, Kind] = {
            **PROGRAM,
            **list_declarations("command", named=named),
            "distribution": LOOSE_DISTRIBUTION,
            "resources": LOOSE_RESOURCES,
            "additional_includes": ListOf(_TEXT),
        }
        del fields["environment_variables"]
        required = ("name", "command") if named else ("command",)
        super().__init__("a component", fields, required=required, unknown="drop")

    def take(self, node: Node, path: str, report: Report) -> Any:
        before = report.count
        values = super().take(node, path, report)
        if isinstance(node, Mapping) and report.count == before:
            self._check_bindings(node, values, path, report)
        return values

    def _check_bindings(self, node: Mapping, values: dict[str, Any], path: str, report: Report) -> None:
        command = node.get("command")
        if not isinstance(command, Scalar):
            return
        for group, name in dict.fromkeys(_BOUND.findall(str(command.value))):
            owner = name.removesuffix(".path")
            if owner not in (values.get(group) or {}):
                here = join(path, "command")
                what = f"{here} refers to ${{{{{group}.{name}}}}}, which is not declared"
                hint = f"write ${{{{inputs.{name}}}}}, and declare it: a sweep gives its trials a value each"
                report.add(what, command, here, hint if group == "search_space" else "")


COMPONENT = CommandComponentRecord()
NAMED_COMPONENT = CommandComponentRecord(named=True)
