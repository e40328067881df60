"""The tables of a pipeline job and of its nodes."""

from __future__ import annotations

import re

from drumline.spec.nodes import Mapping, Scalar
from drumline.spec.schema.command import (
    BASE,
    COMMAND_JOB,
    DISTRIBUTION,
    DRUMLINE,
    IDENTITY,
    LIMITS,
    PROGRAM,
    READ_ONLY,
)
from drumline.spec.schema.component import COMPONENT, DECLARED_INPUT, DECLARED_OUTPUT, ComponentName
from drumline.spec.schema.io import INPUTS, OUTPUTS, PRIMITIVES, SERVICES, JobOutput
from drumline.spec.schema.kinds import Anything, Choice, Flag, Kind, MapOf, Text, VersionText, join, shown
from drumline.spec.schema.parallel import PARALLEL, UNNAMED_COMPONENT
from drumline.spec.schema.records import Record
from drumline.spec.schema.sweep import SEARCH, TRIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Node as TreeNode
    from drumline.spec.schema.report import Report

NODE_NAME = re.compile(r"[a-z_][a-z\d_]*\Z")
BINDING = re.compile(r"\$\{\{\s*(\S*?)\s*\}\}")
_TEXT = Text()
NODE_TYPES = ("command", "parallel", "sweep", "pipeline")
_OTHER_NODES = ("import", "automl", "spark", "data_transfer")
"""Of Azure's, and not run here."""


class _Unbound(Kind):
    """Where Azure's client takes a binding, and nobody says what it would stand for."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str) and BINDING.search(node.value):
            report.add(
                f"{path}: a binding cannot stand here", node, path, "bindings are for inputs and outputs"
            )
            return None
        return self.kind.check(node, path, report)


class _NodeOutput(Kind):
    """A mapping, or text that binds the output to one of the pipeline's."""

    def __init__(self) -> None:
        super().__init__(nullable=True)

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        return JobOutput(*PRIMITIVES).check(node, path, report)


class ComponentReference(Kind):
    """A component: ``./file.yml``, ``azureml:name[:version]``, a registry's, or written out."""

    word = "a mapping, a file, 'azureml:<name>' or 'azureml://registries/...'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return _InFile().check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if not value.startswith("azureml:"):
            from drumline.spec.files import check_file

            check_file(value, self._in_file(), node, path, report)
        return value

    def _in_file(self) -> Kind:
        return _InFile()


class _InFile(Kind):
    """A component of either type in a file of its own, by what it holds."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and _is_pipeline(node):
            return UNNAMED_PIPELINE.check(node, path, report)
        is_parallel = isinstance(node, Mapping) and type_of(node) == "parallel"
        return (UNNAMED_COMPONENT if is_parallel else COMPONENT).check(node, path, report)


def type_of(component: Mapping) -> str:
    """As it says, else by what it holds."""
    given = component.get("type")
    if isinstance(given, Scalar) and isinstance(given.value, str):
        return given.value.lower()
    return "pipeline" if "jobs" in component else "parallel" if "task" in component else "command"


def _is_pipeline(node: Mapping) -> bool:
    given = node.get("type")
    return "jobs" in node if given is None else isinstance(given, Scalar) and given.value == "pipeline"


class _PipelineReference(ComponentReference):
    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return UNNAMED_PIPELINE.check(node, path, report)
        return super().take(node, path, report)

    def _in_file(self) -> Kind:
        return UNNAMED_PIPELINE


class _Trial(ComponentReference):
    """A mapping may also be what a sweep job has there, whose inputs are those of the node."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and not any(key in node for key in ("name", "inputs", "outputs")):
            return TRIAL.check(node, path, report)
        return super().take(node, path, report)


_NODE: dict[str, Kind] = {
    "compute": _TEXT,
    "inputs": INPUTS,
    "outputs": MapOf(_NodeOutput()),
    "properties": MapOf(Text(nullable=True)),
    "comment": _TEXT,
    "services": _Unbound(SERVICES),
    "identity": _Unbound(IDENTITY),
}
_COMPONENT_NODE = Record(
    "a node",
    {
        **PROGRAM,
        **_NODE,
        "type": Choice("command"),
        "component": ComponentReference(),
        "environment": _Unbound(PROGRAM["environment"]),
        "environment_variables": _Unbound(PROGRAM["environment_variables"]),
        "distribution": _Unbound(DISTRIBUTION),
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
_PARALLEL_NODE = Record(
    "a parallel node",
    {
        **_NODE,
        **PARALLEL,
        "type": Choice("parallel"),
        "component": ComponentReference(),
        "environment_variables": MapOf(Anything()),
        "drumline": DRUMLINE,
        "name": _TEXT,
        "display_name": _TEXT,
        "experiment_name": _TEXT,
        "description": _TEXT,
        "tags": MapOf(Text(nullable=True)),
    },
    ignored=READ_ONLY,
)
PARALLEL_JOB = Record(
    "a parallel job",
    {
        **BASE,
        **PARALLEL,
        "type": Choice("parallel"),
        "component": ComponentReference(),
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "environment_variables": MapOf(Anything()),
        "parent_job_name": _TEXT,
        "drumline": DRUMLINE,
    },
    ignored=READ_ONLY,
)
_SWEEP_NODE = Record(
    "a sweep node",
    {**_NODE, **SEARCH, "type": Choice("sweep"), "trial": _Trial()},
    required=("trial", "objective", "limits"),
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
        if given is None and "component" not in node:
            kind = type_of(node)
        if kind not in NODE_TYPES:
            known = ", ".join(map(repr, NODE_TYPES))
            is_azures = kind in _OTHER_NODES
            what = (
                f"nodes of type {kind!r} are not supported"
                if is_azures
                else f"{shown(given or node)} is not a type of pipeline node"
            )
            report.add(what, given or node, join(path, "type"), f"one of {known}")
            return None
        return self._record(kind, node).check(node, path, report)

    def _record(self, kind: str, node: Mapping) -> Record:
        if kind == "command":
            return _COMPONENT_NODE if "component" in node else _COMMAND_NODE
        if kind == "parallel":
            return _PARALLEL_NODE
        return _SWEEP_NODE if kind == "sweep" else _PIPELINE_NODE


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
        if isinstance(value, str) and (value.lower() == "serverless" or _is_name(value)):
            return value
        self.refuse(node, path, report, _named(value, "write `compute: {}` on the steps"))
        return None


class _Datastore(Kind):
    word = "'azureml:<name>'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and _is_name(value):
            return value
        self.refuse(node, path, report, _named(value, "write the name itself"))
        return None


def _is_name(value: str) -> bool:
    return value.startswith("azureml:") and "${{" not in value


def _named(value: object, bound: str) -> str:
    """The hint for a name without ``azureml:``; ``bound``: what to do in the place of a binding."""
    if not isinstance(value, str):
        return ""
    if "${{" in value:
        return f"a setting cannot be bound; {bound.format(value.removeprefix('azureml:'))}"
    return f"write 'azureml:{value}'"


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
_PIPELINE_NODE = Record(
    "a pipeline node",
    {
        **_NODE,
        "type": Choice("pipeline"),
        "component": _PipelineReference(),
        "jobs": Jobs(),
        "settings": SETTINGS,
        "display_name": _TEXT,
        "description": _TEXT,
        "experiment_name": _TEXT,
        "tags": MapOf(Text(nullable=True)),
    },
    unknown="keep",
)
_DECLARED: dict[str, Kind] = {
    "type": Choice("pipeline"),
    "name": _TEXT,
    "version": VersionText(),
    "display_name": _TEXT,
    "description": _TEXT,
    "tags": MapOf(Text(nullable=True)),
    "is_deterministic": Flag(),
    "inputs": MapOf(DECLARED_INPUT),
    "outputs": MapOf(DECLARED_OUTPUT),
    "jobs": Jobs(),
}
UNNAMED_PIPELINE = Record("a pipeline component", _DECLARED, required=("jobs",), unknown="drop")
PIPELINE_COMPONENT = Record(
    "a pipeline component",
    {**_DECLARED, "name": ComponentName()},
    required=("name", "jobs"),
    unknown="drop",
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
        "component": _PipelineReference(),
    },
    ignored=READ_ONLY,
)
