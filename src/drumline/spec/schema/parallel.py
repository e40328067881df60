"""The tables of what is special to a parallel job, as a node and as a component."""

from __future__ import annotations

from drumline.spec.entity import whole
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.parts import PartRecord
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Integer, Kind, ListOf, OneOf, Text, VersionText
from drumline.spec.parts.environment import EnvironmentKind
from drumline.spec.parts.resources import LOOSE_RESOURCES, RESOURCES, RetrySettings
from drumline.spec.reading.tree import Scalar
from drumline.spec.schema.component import list_declarations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node


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
        "type": OneOf("run_function"),
        "code": Code(),
        "entry_script": _TEXT,
        "program_arguments": _TEXT,
        "append_row_to": _TEXT,
        "environment": EnvironmentKind(),
    },
    required=("entry_script",),
)
PARALLEL: dict[str, Kind] = {
    "task": TASK,
    "mini_batch_size": SizeText(),
    "input_data": _TEXT,
    "retry_settings": PartRecord(RetrySettings),
    "logging_level": OneOf("DEBUG", "INFO", "WARNING", "WARN", fold=str.upper),
    "max_concurrency_per_instance": Integer(),
    "error_threshold": Integer(),
    "mini_batch_error_threshold": Integer(),
    "partition_keys": ListOf(_TEXT),
    "resources": RESOURCES,
}
"""Of a job and of a component."""


def _component(*, named: bool) -> Record:
    fields = {**PARALLEL, "resources": LOOSE_RESOURCES, **list_declarations("parallel", named=named)}
    required = ("task", "input_data")
    return Record(
        "a parallel component", fields, required=("name", *required) if named else required, unknown="drop"
    )


COMPONENT = _component(named=False)
NAMED_COMPONENT = _component(named=True)
