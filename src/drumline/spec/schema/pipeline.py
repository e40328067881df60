"""The tables of a pipeline job and of its nodes."""

from __future__ import annotations

import re
from functools import cache

from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    PRIMITIVES,
    Anything,
    Flag,
    Kind,
    MapOf,
    OneOf,
    Text,
    join,
    quote_node,
)
from drumline.spec.parts.distribution import DISTRIBUTION
from drumline.spec.parts.io import INPUTS, OUTPUTS, JobOutputRecord
from drumline.spec.parts.resources import IDENTITY, LIMITS
from drumline.spec.parts.services import SERVICES
from drumline.spec.reading.tree import Mapping, Scalar
from drumline.spec.schema.command import BASE, COMMAND_JOB, DRUMLINE, PROGRAM, READ_ONLY
from drumline.spec.schema.component import COMPONENT as COMMAND_COMPONENT
from drumline.spec.schema.component import list_declarations
from drumline.spec.schema.parallel import COMPONENT as PARALLEL_COMPONENT
from drumline.spec.schema.parallel import PARALLEL
from drumline.spec.schema.sweep import SEARCH, TRIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node as TreeNode

NODE_NAME = re.compile(r"[a-z_][a-z\d_]*\Z")
BINDING = re.compile(r"\$\{\{\s*(\S*?)\s*\}\}")
_TEXT = Text()
NODE_TYPES = ("command", "parallel", "sweep", "pipeline")
_OTHER_NODES = ("import", "automl", "spark", "data_transfer")
"""Of Azure's, and not run here."""


class _Unbound(Kind):
    """A field where Azure's client takes a binding, and nothing says what it would stand for."""

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

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return schemas.make(self.kind)


@cache
def _node_output() -> JobOutputRecord:
    """Return the table of an output that is a mapping: a job's, and of types that only components have."""
    return JobOutputRecord(*PRIMITIVES)


class _NodeOutputKind(Kind):
    """A mapping, or text that binds the output to one of the pipeline's."""

    def __init__(self) -> None:
        super().__init__(nullable=True)

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        return _node_output().check(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, schemas.make(_node_output())]}


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
            check_file(value, self._in_file(), node, path, report)
        return value

    def _in_file(self) -> Kind:
        return _InFile()

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, schemas.make(_InFile())]}


class _InFile(Kind):
    """A component of either type in a file of its own, by what it holds."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and _is_pipeline(node):
            return COMPONENT.check(node, path, report)
        is_parallel = isinstance(node, Mapping) and type_of(node) == "parallel"
        return (PARALLEL_COMPONENT if is_parallel else COMMAND_COMPONENT).check(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return schemas.share(_InFile, "component of any type", lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> dict[str, Any]:
        from drumline.spec.kinds.schemas import lacks

        is_pipeline = {"anyOf": [_has_type("pipeline"), {**lacks("type"), "required": ["jobs"]}]}
        is_parallel = {"anyOf": [_has_type("parallel"), {**lacks("type"), "required": ["task"]}]}
        parallel = {
            "if": is_parallel,
            "then": schemas.make(PARALLEL_COMPONENT),
            "else": schemas.make(COMMAND_COMPONENT),
        }
        return {"type": "object", "if": is_pipeline, "then": schemas.make(COMPONENT), "else": parallel}


def _has_type(name: str) -> dict[str, Any]:
    """Return the condition of a mapping with that ``type``, in any case."""
    from drumline.spec.kinds.schemas import when_type

    condition: dict[str, Any] = when_type([name], {})["if"]
    return condition


def type_of(component: Mapping) -> str:
    """Return the type that a component states, else the one that its keys imply."""
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
            return COMPONENT.check(node, path, report)
        return super().take(node, path, report)

    def _in_file(self) -> Kind:
        return COMPONENT

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, schemas.make(COMPONENT)]}


class _TrialReference(ComponentReference):
    """A mapping may also be what a sweep job has there, whose inputs are those of the node."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and not any(key in node for key in ("name", "inputs", "outputs")):
            return TRIAL.check(node, path, report)
        return super().take(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        named = {"anyOf": [{"required": [key]} for key in ("name", "inputs", "outputs")]}
        made = {"type": "object", "if": named, "then": schemas.make(_InFile()), "else": schemas.make(TRIAL)}
        return {"anyOf": [{"type": "string"}, made]}


_NODE: dict[str, Kind] = {
    "compute": _TEXT,
    "inputs": INPUTS,
    "outputs": MapOf(_NodeOutputKind()),
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
        "type": OneOf("command"),
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
    {**COMMAND_JOB.fields, "type": OneOf("command"), "outputs": MapOf(_NodeOutputKind())},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)
_PARALLEL_NODE = Record(
    "a parallel node",
    {
        **_NODE,
        **PARALLEL,
        "type": OneOf("parallel"),
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
        "type": OneOf("parallel"),
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
    {**_NODE, **SEARCH, "type": OneOf("sweep"), "trial": _TrialReference()},
    required=("trial", "objective", "limits"),
    unknown="keep",
)


class NodeKind(Kind):
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
                else f"{quote_node(given or node)} is not a type of pipeline node"
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

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return schemas.share(NodeKind, "node of a pipeline", lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> dict[str, Any]:
        from drumline.spec.kinds.schemas import lacks

        command = {
            "if": {"required": ["component"]},
            "then": schemas.make(_COMPONENT_NODE),
            "else": schemas.make(_COMMAND_NODE),
        }
        bare = {"allOf": [lacks("type"), lacks("component")]}
        made: dict[str, Any] = command
        for name, record, key in (("parallel", _PARALLEL_NODE, "task"), ("pipeline", _PIPELINE_NODE, "jobs")):
            implied = {**bare, "required": [key]}
            made = {
                "if": {"anyOf": [_has_type(name), implied]},
                "then": schemas.make(record),
                "else": made,
            }
        made = {"if": _has_type("sweep"), "then": schemas.make(_SWEEP_NODE), "else": made}
        types = OneOf(*NODE_TYPES).json_schema(schemas)
        return {"type": "object", "properties": {"type": types}, **made}


class Jobs(MapOf):
    """The nodes of a pipeline, under names that Python could use too."""

    def __init__(self) -> None:
        super().__init__(NodeKind())

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        for key, key_node, _ in node if isinstance(node, Mapping) else ():
            if isinstance(key, str) and not NODE_NAME.match(key):
                what = f"the node name {key!r} may hold lower case letters, digits and '_' only"
                fixed = re.sub(r"\W", "_", key, flags=re.ASCII).lower()
                hint = f"did you mean {fixed!r}?" if NODE_NAME.match(fixed) else ""
                report.add(what, key_node, join(path, key), hint)
        return super().take(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {**super().json_schema(schemas), "propertyNames": {"pattern": r"^[a-z_][a-z\d_]*$"}}


class _DefaultCompute(Kind):
    word = "'serverless' or 'azureml:<name>'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and (value.lower() == "serverless" or _is_name(value)):
            return value
        self.refuse(node, path, report, _suggest_setting(value, "write `compute: {}` on the steps"))
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": "^(azureml:|[Ss][Ee][Rr][Vv][Ee][Rr][Ll][Ee][Ss][Ss]$)"}


class _DefaultDatastore(Kind):
    word = "'azureml:<name>'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and _is_name(value):
            return value
        self.refuse(node, path, report, _suggest_setting(value, "write the name itself"))
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": "^azureml:"}


def _is_name(value: str) -> bool:
    return value.startswith("azureml:") and "${{" not in value


def _suggest_setting(value: object, bound: str) -> str:
    """Return the hint for a name without ``azureml:``; ``bound``: what to do in the place of a binding."""
    if not isinstance(value, str):
        return ""
    if "${{" in value:
        return f"a setting cannot be bound; {bound.format(value.removeprefix('azureml:'))}"
    return f"write 'azureml:{value}'"


SETTINGS = Record(
    "settings",
    {
        "default_compute": _DefaultCompute(),
        "default_datastore": _DefaultDatastore(),
        "continue_on_step_failure": Flag(),
        "force_rerun": Flag(),
    },
    unknown="keep",
)
_PIPELINE_NODE = Record(
    "a pipeline node",
    {
        **_NODE,
        "type": OneOf("pipeline"),
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


def _component(*, named: bool) -> Record:
    fields = {**list_declarations("pipeline", named=named), "jobs": Jobs()}
    required = ("name", "jobs") if named else ("jobs",)
    return Record("a pipeline component", fields, required=required, unknown="drop")


COMPONENT = _component(named=False)
NAMED_COMPONENT = _component(named=True)
PIPELINE_JOB = Record(
    "a pipeline job",
    {
        "type": OneOf("pipeline", fold=str),
        **BASE,
        "settings": SETTINGS,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "jobs": Jobs(),
        "component": _PipelineReference(),
    },
    ignored=READ_ONLY,
)
