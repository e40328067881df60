"""
The tables of a command component, inline or in a file of its own; keys that they do not know are
dropped.
"""

from __future__ import annotations

import re

from drumline.spec.nodes import Mapping, Scalar
from drumline.spec.schema.command import LOOSE_DISTRIBUTION, PROGRAM, RESOURCES
from drumline.spec.schema.io import PRIMITIVES
from drumline.spec.schema.kinds import (
    Anything,
    Choice,
    Flag,
    Kind,
    ListOf,
    MapOf,
    Text,
    VersionText,
    join,
)
from drumline.spec.schema.records import ByType, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Node
    from drumline.spec.schema.report import Report

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
_BOUND = re.compile(r"\$\{\{\s*(inputs|outputs)\.([\w.-]+)\s*\}\}")


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
        "mode": Choice(*_MODES),
        "description": _TEXT,
    },
    unknown="drop",
)
_INPUT = ByType({**{name: _parameter(name) for name in PRIMITIVES}, **dict.fromkeys(_PORTS, _PORT)})
_WRITTEN = Record(
    "output",
    {"type": _TEXT, "mode": Choice(*_MODES), "description": _TEXT},
    unknown="drop",
)
_OUTPUT = ByType(dict.fromkeys((*_PORTS, *PRIMITIVES), _WRITTEN))


class CommandComponent(Record):
    """A command with declared inputs and outputs."""

    def __init__(self) -> None:
        fields: dict[str, Kind] = {
            **PROGRAM,
            "type": Choice("command"),
            "version": VersionText(),
            "display_name": _TEXT,
            "description": _TEXT,
            "tags": MapOf(Text(nullable=True)),
            "is_deterministic": Flag(),
            "inputs": MapOf(_INPUT),
            "outputs": MapOf(_OUTPUT),
            "distribution": LOOSE_DISTRIBUTION,
            "resources": Record("resources", RESOURCES.fields, unknown="drop"),
            "additional_includes": ListOf(_TEXT),
        }
        del fields["environment_variables"]
        super().__init__("a component", fields, required=("command",), unknown="drop")

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
                report.add(what, command, here)


COMPONENT = CommandComponent()
