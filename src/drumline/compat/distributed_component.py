"""A component file of ``azure.ml.component`` (v1.5) as a command component of today."""

from __future__ import annotations

import os
import re

from drumline.compat.run_configuration.environment import DEFAULT_CPU_IMAGE
from drumline.contract.errors import SpecError
from drumline.spec.hints import did_you_mean
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    Anything,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    Report,
    Text,
    join,
    quote_node,
)
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping, Scalar, Sequence, problem_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.reading.source import Node


# The tables of component files of ``azure.ml.component`` (v1.5). Keys that they do not know are left out, as in that
# SDK.
#
# Source: the schemas that such files name, https://componentsdk.azureedge.net/jsonschema/DistributedComponent.json and
# CommandComponent.json.


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
        if not isinstance(node.value, str):
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
        default = node.get("default")
        if isinstance(default, Scalar) and default.value is None:
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
        if isinstance(node.value, str):
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


_LAUNCHERS = {
    "mpi": "mpi",
    "openmpi": "mpi",
    "intelmpi": "mpi",
    "torch.distributed": "pytorch",
    "pytorch": "pytorch",
}
_PLACEHOLDER = re.compile(r"(?<![{$])\{(inputs|outputs)\.([\w-]+?)(?:\.path)?\}(?!\})")
_OPTIONAL = re.compile(r"(?<!\[)\[([^\[\]]+?)\](?!\])")


def is_todays_component(root: Mapping) -> bool:
    """Return whether it is a file for ``load_component``."""
    implies = "type" not in root and "$schema" in root
    return not _kind_of(root) and (implies or root.value_of("type") in ("command", "pipeline"))


def _kind_of(root: Mapping) -> str:
    """Return ``distributedcomponent`` or ``commandcomponent``; empty for a file of another kind."""
    for key in ("type", "$schema"):
        value = root.value_of(key)
        if isinstance(value, str):
            word = value.rpartition("/")[2].removesuffix(".json").lower()
            if word in TABLES:
                return word
            if key == "type" and word != "command":
                return ""
    return "distributedcomponent" if "launcher" in root else ""


def load(path: str | os.PathLike[str]) -> CommandComponent:
    """Load the component in a file. Raises SpecError with every problem of it."""
    place = os.fspath(path)
    root = as_text(read_yaml(place, place))
    assert isinstance(root, Mapping)
    kind = _kind_of(root)
    if not kind:
        at = root.get("type") or root
        what = (
            f"{quote_node(at)} is not a type of component"
            if at is not root
            else "the file is not a component of v1.5"
        )
        raise SpecError([problem_at(at, what, path="type", hint="DistributedComponent or CommandComponent")])
    folder = os.path.dirname(os.path.abspath(place))
    report = Report(folder)
    values = TABLES[kind].check(root, "", report)
    command, distribution = _program(kind, root, values, report)
    if report.problems:
        raise SpecError(report.problems)
    given = {key: value for key, value in values.items() if value is not None}
    for key in ("launcher", "command"):
        given.pop(key, None)
    # Without code the folder of the file is it.
    given.setdefault("code", ".")
    component = CommandComponent(
        **given,
        command=command,
        distribution=distribution,
        additional_includes=_includes(place),
        base_path=folder,
    )
    component._source = place
    return component


def _includes(place: str) -> list[str]:
    """
    List what ``train.additional_includes`` beside ``train.yml`` wants to be laid beside the code. Raises SpecError.
    """
    beside = os.path.splitext(place)[0] + ".additional_includes"
    try:
        with open(beside, encoding="utf-8-sig") as file:
            return [line.strip() for line in file if line.strip()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {beside!r}: {reason}") from None


def _program(
    kind: str, root: Mapping, values: dict[str, Any], report: Report
) -> tuple[str, dict[str, Any] | None]:
    """Return the command and the distribution."""
    if kind == "commandcomponent":
        return _command(values.get("command"), root.get("command"), "command", values, report), None
    launcher, node = values.get("launcher") or {}, root.get("launcher")
    if not isinstance(node, Mapping):
        return "", None
    text = node.get("additional_arguments")
    path = "launcher.additional_arguments"
    command = _command(launcher.get("additional_arguments"), text, path, values, report)
    word = launcher.get("type")
    if word is None:
        return command, None
    found = _LAUNCHERS.get(word.lower())
    if found is None:
        known = "'mpi', 'torch.distributed' and 'Pytorch' are"
        report.add(f"launcher.type: {word!r} is not known", node.get("type") or node, "launcher.type", known)
        return command, None
    return command, {"type": found}


def _command(text: str | None, node: Node | None, path: str, values: dict[str, Any], report: Report) -> str:
    """Return a command with today's placeholders. ``[--a {inputs.a}]`` is left out where the input has no value."""
    if text is None or node is None:
        return ""
    for group, name in dict.fromkeys(_PLACEHOLDER.findall(text)):
        known = values.get(group) or {}
        if name not in known:
            hint = did_you_mean(name, known) or f"{group}: " + (", ".join(known) or "none")
            report.add(f"{path} refers to {{{group}.{name}}}, which is not declared", node, path, hint)
    whole = _OPTIONAL.sub(
        lambda found: f"$[[{found[1]}]]" if _PLACEHOLDER.search(found[1]) else found[0], text
    )
    return _PLACEHOLDER.sub(r"${{\1.\2}}", whole).strip()
