"""The tables of a pipeline job and of its nodes."""

from __future__ import annotations

import re

from drumline.spec.nodes import Mapping, Scalar, plain
from drumline.spec.schema.command import (
    BASE,
    COMMAND_JOB,
    DISTRIBUTION,
    IDENTITY,
    LIMITS,
    PROGRAM,
    READ_ONLY,
)
from drumline.spec.schema.component import COMPONENT
from drumline.spec.schema.io import INPUTS, OUTPUTS, SERVICES, JobOutput
from drumline.spec.schema.kinds import Anything, Choice, Flag, Kind, MapOf, Text, join, shown
from drumline.spec.schema.records import Record
from drumline.spec.schema.sweep import SEARCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Node as TreeNode
    from drumline.spec.schema.report import Report

NODE_NAME = re.compile(r"[a-z_][a-z\d_]*\Z")
BINDING = re.compile(r"\$\{\{\s*(\S*?)\s*\}\}")
_TEXT = Text()
_OTHER_NODES = ("import", "parallel", "pipeline", "automl", "spark", "data_transfer")
NODE_TYPES = ("command", "sweep", *_OTHER_NODES)


class _Bindable(Kind):
    """A binding such as ``${{parent.inputs.x}}`` in the place of a value."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str) and BINDING.search(node.value):
            return node.value
        return self.kind.check(node, path, report)


class _NodeOutput(Kind):
    """A mapping, or text that binds the output to one of the pipeline's."""

    def __init__(self) -> None:
        super().__init__(nullable=True)

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        return JobOutput().check(node, path, report)


class ComponentReference(Kind):
    """A component: ``./file.yml``, ``azureml:name[:version]``, a registry's, or written out."""

    word = "a mapping, a file, 'azureml:<name>' or 'azureml://registries/...'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return COMPONENT.check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if not value.startswith("azureml:"):
            from drumline.spec.files import check_file

            check_file(value, self._in_file(), node, path, report)
        return value

    def _in_file(self) -> Kind:
        return COMPONENT


class _AnyComponent(ComponentReference):
    """A component of a type whose fields are not checked here."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        return plain(node) if isinstance(node, Mapping) else super().take(node, path, report)

    def _in_file(self) -> Kind:
        return Anything()


_NODE: dict[str, Kind] = {
    "compute": _TEXT,
    "inputs": INPUTS,
    "outputs": MapOf(_NodeOutput()),
    "properties": MapOf(Text(nullable=True)),
    "comment": _TEXT,
    "services": _Bindable(SERVICES),
    "identity": _Bindable(IDENTITY),
}
_COMPONENT_NODE = Record(
    "a node",
    {
        **PROGRAM,
        **_NODE,
        "type": Choice("command"),
        "component": ComponentReference(),
        "environment": _Bindable(PROGRAM["environment"]),
        "environment_variables": _Bindable(PROGRAM["environment_variables"]),
        "distribution": _Bindable(DISTRIBUTION),
        "code": Text(nullable=True),
        "limits": LIMITS,
    },
    unknown="keep",
)
_COMMAND_NODE = Record(
    "a node",
    {**COMMAND_JOB.fields, "type": Choice("command"), "outputs": MapOf(_NodeOutput())},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)
_SWEEP_NODE = Record(
    "a sweep node",
    {**_NODE, **SEARCH, "type": Choice("sweep"), "trial": ComponentReference()},
    required=("trial", "objective", "limits"),
    unknown="keep",
)
_LOOSE_NODE = Record(
    "a node",
    {**_NODE, "type": Choice(*_OTHER_NODES), "component": _AnyComponent()},
    unknown="keep",
)


class Node(Kind):
    """One job of a pipeline; without a ``type``, a command."""

    word = "a mapping"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path, report)
            return None
        given = node.get("type")
        kind = str(given.value).lower() if isinstance(given, Scalar) else "command"
        if given is not None and kind not in NODE_TYPES:
            known = ", ".join(map(repr, NODE_TYPES))
            what = f"{shown(given)} is not a type of pipeline node"
            report.add(what, given, join(path, "type"), f"one of {known}")
            return None
        return self._record(kind, node).check(node, path, report)

    def _record(self, kind: str, node: Mapping) -> Record:
        if kind == "command":
            return _COMPONENT_NODE if "component" in node else _COMMAND_NODE
        return _SWEEP_NODE if kind == "sweep" else _LOOSE_NODE


class Jobs(MapOf):
    """The nodes of a pipeline, under names that Python could use too."""

    def __init__(self) -> None:
        super().__init__(Node())

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        for key, key_node, _ in node if isinstance(node, Mapping) else ():
            if isinstance(key, str) and not NODE_NAME.match(key):
                what = f"the node name {key!r} may hold lower case letters, digits and '_' only"
                fixed = re.sub(r"\W", "_", key, flags=re.ASCII).lower()
                hint = f"did you mean {fixed!r}?" if NODE_NAME.match(fixed) else ""
                report.add(what, key_node, join(path, key), hint)
        return super().take(node, path, report)


class _DefaultCompute(Kind):
    word = "'serverless' or 'azureml:<name>'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and (value.lower() == "serverless" or value.startswith("azureml:")):
            return value
        hint = f"write 'azureml:{value}'" if isinstance(value, str) else ""
        self.refuse(node, path, report, hint)
        return None


class _Datastore(Kind):
    word = "'azureml:<name>'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and value.startswith("azureml:"):
            return value
        hint = f"write 'azureml:{value}'" if isinstance(value, str) else ""
        self.refuse(node, path, report, hint)
        return None


SETTINGS = Record(
    "settings",
    {
        "default_compute": _DefaultCompute(),
        "default_datastore": _Datastore(),
        "continue_on_step_failure": Flag(),
        "force_rerun": Flag(),
    },
    unknown="keep",
)
PIPELINE_JOB = Record(
    "a pipeline job",
    {
        "type": Choice("pipeline", fold=str),
        **BASE,
        "settings": SETTINGS,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "jobs": Jobs(),
        "component": _AnyComponent(),
    },
    ignored=READ_ONLY,
)
