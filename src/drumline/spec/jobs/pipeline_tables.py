"""The tables of a pipeline job and of its nodes."""

from __future__ import annotations

import re
from functools import cache

from drumline.spec.jobs.command import COMMAND_JOB, Command
from drumline.spec.jobs.command import COMPONENT as COMMAND_COMPONENT
from drumline.spec.jobs.component import make_tables, type_of
from drumline.spec.jobs.job import READ_ONLY, Job, RankProgram
from drumline.spec.jobs.parallel import COMPONENT as PARALLEL_COMPONENT
from drumline.spec.jobs.parallel import Parallel
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob
from drumline.spec.jobs.sweep import TRIAL, SweepSearch
from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.schemas import lacks, when_type
from drumline.spec.kinds.values import PRIMITIVES, Anything, Kind, MapOf, OneOf, Text, join, quote_node
from drumline.spec.other_dialects import explain_type
from drumline.spec.parts.environment import EnvironmentKind
from drumline.spec.parts.io import INPUTS, PATTERN, JobOutputRecord
from drumline.spec.parts.resources import DISTRIBUTION, IDENTITY, RESOURCES
from drumline.spec.parts.services import SERVICES
from drumline.spec.reading.source import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node as TreeNode

NODE_NAME = re.compile(r"[a-z_][a-z\d_]*\Z")
_TEXT = Text()
NODE_TYPES = ("command", "parallel", "sweep", "pipeline")


class _Unbound(Kind):
    """A field where Azure's client takes a binding, and nothing says what it would stand for."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node.value, str) and PATTERN.search(node.value):
            report.add(
                f"{path}: a binding cannot stand here", node, path, "bindings are for inputs and outputs"
            )
            return None
        return self.kind.check(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
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
        if isinstance(node.value, str):
            return node.value
        return _node_output().check(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"anyOf": [{"type": "string"}, schemas.make(_node_output())]}


class ComponentReference(Kind):
    """A component: ``./file.yml``, ``azureml:name[:version]``, a registry's, or written out."""

    word = "a mapping, a file, 'azureml:<name>' or 'azureml://registries/...'"

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return _InFile().check(node, path, report)
        value = node.value
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if not value.startswith("azureml:"):
            check_file(value, self._in_file(), node, path, report)
        return value

    def _in_file(self) -> Kind:
        return _InFile()

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"anyOf": [{"type": "string"}, schemas.make(_InFile())]}


class _InFile(Kind):
    """A component of either type in a file of its own, by what it holds."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        implies_pipeline = isinstance(node, Mapping) and "type" not in node and "jobs" in node
        if implies_pipeline or (isinstance(node, Mapping) and node.value_of("type") == "pipeline"):
            return COMPONENT.check(node, path, report)
        is_parallel = isinstance(node, Mapping) and type_of(node) == "parallel"
        return (PARALLEL_COMPONENT if is_parallel else COMMAND_COMPONENT).check(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return schemas.share(_InFile, "component of any type", lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> JsonSchema:
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
    condition: dict[str, Any] = when_type([name], {})["if"]
    return condition


class _PipelineReference(ComponentReference):
    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return COMPONENT.check(node, path, report)
        return super().take(node, path, report)

    def _in_file(self) -> Kind:
        return COMPONENT

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"anyOf": [{"type": "string"}, schemas.make(COMPONENT)]}


class _TrialReference(ComponentReference):
    """A mapping may also be what a sweep job has there, whose inputs are those of the node."""

    def take(self, node: TreeNode, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and not any(key in node for key in ("name", "inputs", "outputs")):
            return TRIAL.check(node, path, report)
        return super().take(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        named = {"anyOf": [{"required": [key]} for key in ("name", "inputs", "outputs")]}
        made = {"type": "object", "if": named, "then": schemas.make(_InFile()), "else": schemas.make(TRIAL)}
        return {"anyOf": [{"type": "string"}, made]}


_JOB = list_fields(Job, services=_Unbound(SERVICES), identity=_Unbound(IDENTITY))
_NODE = {
    "compute": _JOB["compute"],
    "inputs": INPUTS,
    "outputs": MapOf(_NodeOutputKind()),
    "properties": MapOf(Text(nullable=True)),
    "comment": _TEXT,
    "services": _JOB["services"],
    "identity": _JOB["identity"],
}
_CALL = list_fields(
    Command,
    type=OneOf("command"),
    component=ComponentReference(),
    environment=_Unbound(EnvironmentKind()),
    environment_variables=_Unbound(MapOf(Anything())),
    distribution=_Unbound(DISTRIBUTION),
    resources=RESOURCES,
    code=Text(nullable=True),
)
_CALLED = (*RankProgram._fields, "type", "component", "environment_variables", "limits")
_COMPONENT_NODE = Record("a node", {**{name: _CALL[name] for name in _CALLED}, **_NODE}, unknown="keep")
_COMMAND_NODE = Record(
    "a node",
    {**COMMAND_JOB.declared, "type": _CALL["type"], "outputs": MapOf(_NodeOutputKind())},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)
_PARALLEL_NODE = Record(
    "a parallel node",
    {
        **{name: kind for name, kind in list_fields(Parallel).items() if name != "parent_job_name"},
        **_NODE,
        "component": ComponentReference(),
    },
    ignored=READ_ONLY,
)
PARALLEL_JOB = Record(
    "a parallel job", list_fields(Parallel, component=ComponentReference()), ignored=READ_ONLY
)
_SWEEP_NODE = Record(
    "a sweep node",
    {**_NODE, **list_fields(SweepSearch, trial=_TrialReference(), type=OneOf("sweep"))},
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
            hint = "one of " + ", ".join(map(repr, NODE_TYPES))
            what, hint = explain_type(kind, "nodes") or (
                f"{quote_node(given or node)} is not a type of pipeline node",
                hint,
            )
            report.add(what, given or node, join(path, "type"), hint)
            return None
        return self._record(kind, node).check(node, path, report)

    def _record(self, kind: str, node: Mapping) -> Record:
        if kind == "command":
            return _COMPONENT_NODE if "component" in node else _COMMAND_NODE
        if kind == "parallel":
            return _PARALLEL_NODE
        return _SWEEP_NODE if kind == "sweep" else _PIPELINE_NODE

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return schemas.share(NodeKind, "node of a pipeline", lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> JsonSchema:
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

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {**super().json_schema(schemas), "propertyNames": {"pattern": r"^[a-z_][a-z\d_]*$"}}


_PIPELINE = list_fields(
    PipelineJob, type=OneOf("pipeline", fold=str), jobs=Jobs(), component=_PipelineReference()
)
del _PIPELINE["parent_job_name"]
_NAMES = ("display_name", "description", "experiment_name", "tags", "component", "jobs", "settings")
_PIPELINE_NODE = Record(
    "a pipeline node",
    {**{name: _PIPELINE[name] for name in _NAMES}, **_NODE, "type": OneOf("pipeline")},
    unknown="keep",
)


COMPONENT, NAMED_COMPONENT = make_tables("a pipeline component", PipelineComponent, "jobs", jobs=Jobs())
PIPELINE_JOB = Record("a pipeline job", _PIPELINE, ignored=READ_ONLY)
