"""
The tables of component files of ``azure.ml.component`` (v1.5). Keys that they do not know are left out, as in that SDK.

Source: the schemas that such files name, https://componentsdk.azureedge.net/jsonschema/DistributedComponent.json and
CommandComponent.json.
"""

from __future__ import annotations

import os

from drumline.compat.run_configuration.environment import DEFAULT_CPU_IMAGE
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Flag, Integer, Kind, ListOf, MapOf, Number, Text, join
from drumline.spec.reading.tree import Mapping, Scalar, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node

_PARAMETERS = {
    "string": "string",
    "str": "string",
    "enum": "string",
    "integer": "integer",
    "int": "integer",
    "float": "number",
    "number": "number",
    "boolean": "boolean",
    "bool": "boolean",
}


class _Type(Kind):
    """Today's word; a list of types is data of any."""

    word = "the name of a type, or a list of such"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Sequence) and node.items:
            kinds = {self.check(item, path, report) for item in node.items}
            return kinds.pop() if len(kinds) == 1 else "path"
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.refuse(node, path, report)
            return None
        word = node.value.lower()
        if word in _PARAMETERS:
            return _PARAMETERS[word]
        if word.endswith("directory") or word == "uri_folder":
            return "uri_folder"
        return "uri_file" if word.endswith("file") else "path"


_VALUES: dict[str, Kind] = {
    "string": Text(),
    "integer": Integer(),
    "number": Number(),
    "boolean": Flag(),
}


class _InputKind(Kind):
    """The declaration of an input."""

    word = "a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        given = node.get("type") if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping):
            self.refuse(node, path, report, f"write `type:` on a line below `{path.rpartition('.')[2]}:`")
            return None
        if given is None:
            report.add(f"missing key 'type' in {path}", node.key or node, join(path, "type"))
            return None
        kind = _Type().check(given, join(path, "type"), report)
        value = _VALUES.get(kind or "", Anything())
        fields = {
            "optional": Flag(nullable=True),
            "default": value if kind in _VALUES else Text(nullable=True),
            "description": Text(nullable=True),
        }
        if kind in _VALUES:
            fields |= {"enum": ListOf(value), "min": value, "max": value}
        if (
            (default := node.get("default")) is not None
            and isinstance(default, Scalar)
            and default.value is None
        ):
            fields["default"] = Anything()
        checked = Record("input", fields, unknown="drop").check(node, path, report) or {}
        return {"type": kind, **{key: one for key, one in checked.items() if one is not None}}


class _OutputKind(Kind):
    word = "a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path, report)
            return None
        fields = {"type": _Type(nullable=True), "description": Text(nullable=True)}
        checked = Record("output", fields, unknown="drop").check(node, path, report)
        kind = checked.get("type") or "uri_folder"
        said = {"description": checked["description"]} if checked.get("description") else {}
        return {"type": "uri_file" if kind == "uri_file" else "uri_folder", **said}


class _Tags(Kind):
    """A mapping, or a list of words."""

    word = "a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Sequence):
            return dict.fromkeys((str(word) for word in ListOf(Text()).check(node, path, report)), "")
        return {
            key: value or "" for key, value in MapOf(Text(nullable=True)).check(node, path, report).items()
        }


def _section(noun: str, fields: dict[str, Kind]) -> Record:
    return Record(noun, fields, unknown="drop", nullable=True)


_ENVIRONMENT = _section(
    "environment",
    {
        "name": Text(nullable=True),
        "version": Text(nullable=True),
        "docker": _section(
            "docker",
            {
                "image": Text(nullable=True),
                "build": _section(
                    "build", {"dockerfile": Text(nullable=True), "context": Text(nullable=True)}
                ),
            },
        ),
        "conda": _section(
            "conda",
            {
                "conda_dependencies": MapOf(Anything(), nullable=True),
                "conda_dependencies_file": Text(nullable=True),
                "pip_requirements_file": Text(nullable=True),
            },
        ),
    },
)


class _EnvironmentKind(Kind):
    word = "a mapping, or text"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value if node.value.startswith("azureml:") else f"azureml:{node.value}"
        if isinstance(node, Mapping):
            return self._written_out(_ENVIRONMENT.check(node, path, report), node, path, report)
        self.refuse(node, path, report)
        return None

    def _written_out(self, values: dict[str, Any], node: Mapping, path: str, report: Report) -> Any:
        docker, conda = values.get("docker") or {}, values.get("conda") or {}
        if values.get("name") and not docker and not conda:
            version = values.get("version")
            return f"azureml:{values['name']}" + (f":{version}" if version else "@latest")
        made: dict[str, Any] = {"image": docker.get("image") or DEFAULT_CPU_IMAGE}
        packages = conda.get("conda_dependencies")
        for key in ("conda_dependencies_file", "pip_requirements_file"):
            name = conda.get(key)
            if not name:
                continue
            full = os.path.join(report.base_path, name.removeprefix("file:"))
            if not os.path.isfile(full):
                holder = node.get("conda")
                at = holder.get(key) if isinstance(holder, Mapping) else None
                report.add(f"{path}.conda.{key}: no such file: {full!r}", at or node, f"{path}.conda.{key}")
            elif key == "conda_dependencies_file":
                packages = packages or name.removeprefix("file:")
            else:
                packages = packages or {"dependencies": [{"pip": [f"-r {name.removeprefix('file:')}"]}]}
        if packages:
            made["conda_file"] = packages
        build = docker.get("build") or {}
        if build.get("dockerfile") and not docker.get("image"):
            context = build.get("context") or "."
            made = {"build": {"path": context, "dockerfile_path": build["dockerfile"].removeprefix("file:")}}
        return made


_SHARED: dict[str, Kind] = {
    "name": Text(),
    "version": Text(nullable=True),
    "display_name": Text(nullable=True),
    "description": Text(nullable=True),
    "is_deterministic": Flag(nullable=True),
    "tags": _Tags(nullable=True),
    "inputs": MapOf(_InputKind(), nullable=True),
    "outputs": MapOf(_OutputKind(), nullable=True),
    "code": Text(nullable=True),
    "environment": _EnvironmentKind(nullable=True),
}
_LAUNCHER = Record(
    "launcher",
    {"type": Text(), "additional_arguments": Text()},
    required=("type", "additional_arguments"),
    unknown="drop",
)
TABLES = {
    "distributedcomponent": Record(
        "a DistributedComponent",
        {**_SHARED, "launcher": _LAUNCHER},
        required=("name", "launcher"),
        unknown="drop",
    ),
    "commandcomponent": Record(
        "a CommandComponent", {**_SHARED, "command": Text()}, required=("name", "command"), unknown="drop"
    ),
}


def as_text(node: Node) -> Node:
    """
    Return a node with all values and keys as text, as that SDK reads ``1.10`` and ``yes``; not what conda is given.
    """
    made: Node
    if isinstance(node, Scalar):
        value = node.text if node.value is not None and not isinstance(node.value, str) else node.value
        made = Scalar(value, node.text, node.source, node.line, node.column, node.width)
    elif isinstance(node, Sequence):
        made = Sequence(node.source, node.line, node.column, node.width)
        made.items = [as_text(item) for item in node.items]
    else:
        assert isinstance(node, Mapping)
        made = Mapping(node.source, node.line, node.column, node.width)
        for _, key, item in node:
            word = as_text(key)
            assert isinstance(word, Scalar)
            made.put(word, item if word.value == "conda_dependencies" else as_text(item))
    return made
