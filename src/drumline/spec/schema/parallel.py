"""The tables of what is special to a parallel job, as a node and as a component."""

from __future__ import annotations

from drumline.spec.entity import whole
from drumline.spec.nodes import Scalar
from drumline.spec.schema.command import RESOURCES
from drumline.spec.schema.component import DECLARED_INPUT, DECLARED_OUTPUT, ComponentName
from drumline.spec.schema.environment import Environment
from drumline.spec.schema.kinds import Choice, Flag, Integer, Kind, ListOf, MapOf, Text, VersionText
from drumline.spec.schema.locations import Code
from drumline.spec.schema.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Node
    from drumline.spec.schema.report import Report


class SizeText(VersionText):
    """A whole number or text; a number with a fraction is cut, as an ``Integer`` is."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, float):
            return str(whole(node.value))
        return super().take(node, path, report)


_TEXT = Text()
TASK = Record(
    "task",
    {
        "type": Choice("run_function"),
        "code": Code(),
        "entry_script": _TEXT,
        "program_arguments": _TEXT,
        "append_row_to": _TEXT,
        "environment": Environment(),
    },
    required=("entry_script",),
)
RETRY_SETTINGS = Record("retry_settings", {"max_retries": Integer(), "timeout": Integer()})
PARALLEL: dict[str, Kind] = {
    "task": TASK,
    "mini_batch_size": SizeText(),
    "input_data": _TEXT,
    "retry_settings": RETRY_SETTINGS,
    "logging_level": Choice("DEBUG", "INFO", "WARNING", "WARN", fold=str.upper),
    "max_concurrency_per_instance": Integer(),
    "error_threshold": Integer(),
    "mini_batch_error_threshold": Integer(),
    "partition_keys": ListOf(_TEXT),
    "resources": RESOURCES,
}
"""Of a job and of a component."""

_DECLARED: dict[str, Kind] = {
    **PARALLEL,
    "resources": Record("resources", RESOURCES.fields, unknown="drop"),
    "type": Choice("parallel"),
    "name": _TEXT,
    "version": VersionText(),
    "display_name": _TEXT,
    "description": _TEXT,
    "tags": MapOf(Text(nullable=True)),
    "is_deterministic": Flag(),
    "inputs": MapOf(DECLARED_INPUT),
    "outputs": MapOf(DECLARED_OUTPUT),
}
UNNAMED_COMPONENT = Record("a parallel component", _DECLARED, required=("task", "input_data"), unknown="drop")
NAMED_COMPONENT = Record(
    "a parallel component",
    {**_DECLARED, "name": ComponentName()},
    required=("name", "task", "input_data"),
    unknown="drop",
)
