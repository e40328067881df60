"""The tables of a sweep job."""

from __future__ import annotations

from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Kind, ListOf, MapOf, OneOf, Text, quote_node
from drumline.spec.parts.io import INPUTS, OUTPUTS
from drumline.spec.parts.resources import QUEUE_SETTINGS, RESOURCES
from drumline.spec.parts.search import EARLY_TERMINATION, OBJECTIVE, SAMPLING_ALGORITHM, SPACE, SWEEP_LIMITS
from drumline.spec.reading.tree import Mapping, Scalar
from drumline.spec.schema.command import BASE, DRUMLINE, PROGRAM, READ_ONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node


class TrialKind(Kind):
    """The program of every trial: written out, or a component by reference."""

    word = "a mapping with 'command'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return TRIAL.check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and value.startswith("azureml:"):
            return value
        if isinstance(value, str) and value.startswith("file:"):
            from drumline.spec.schema.component import COMPONENT

            check_file(value, COMPONENT, node, path, report)
            return value
        report.add(f"{path} must be {self.word}, got {quote_node(node)}", node, path)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        named = {"type": "string", "pattern": "^(azureml:|file:)"}
        return {"anyOf": [named, schemas.make(TRIAL)]}


TRIAL = Record(
    "trial",
    {**PROGRAM, "additional_includes": ListOf(Text()), "drumline": DRUMLINE},
    required=("command",),
    ignored=("$schema",),
)
SEARCH: dict[str, Kind] = {
    "sampling_algorithm": SAMPLING_ALGORITHM,
    "search_space": MapOf(SPACE),
    "objective": OBJECTIVE,
    "early_termination": EARLY_TERMINATION,
    "limits": SWEEP_LIMITS,
    "queue_settings": QUEUE_SETTINGS,
    "resources": RESOURCES,
}
"""What a sweep job and a sweep node of a pipeline share."""

SWEEP_JOB = Record(
    "a sweep job",
    {
        "type": OneOf("sweep", fold=str),
        **BASE,
        **SEARCH,
        "trial": TrialKind(),
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "parent_job_name": Text(),
    },
    required=("trial", "objective", "limits"),
    ignored=READ_ONLY,
)
