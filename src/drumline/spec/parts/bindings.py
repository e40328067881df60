"""Values that a pipeline's node gets when the pipeline runs: an input of the pipeline, or what another node wrote."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATTERN = re.compile(r"\$\{\{\s*(\S*?)\s*\}\}")

RESERVED_OUTPUTS = ("default", "artifacts")
"""Of every job: its ``outputs`` folder, and all that it logged and kept."""

_MACROS = ("name", "output_name", "default_datastore")
"""Of an output's path, which are known when the job is submitted. Source: azure-ai-ml's own default path."""


class Binding:
    """The root; ``str()`` is what YAML has in its place."""

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class PipelineInput(Binding):
    """A parameter of a function under ``@pipeline``, while the function runs."""

    def __init__(self, name: str, type: str = "") -> None:
        self.name = name
        self.type = type

    def __deepcopy__(self, memo: dict[int, Any]) -> PipelineInput:
        return self

    def __str__(self) -> str:
        return f"${{{{parent.inputs.{self.name}}}}}"


class NodeOutput(Binding):
    """The output of a node, as the input of another; the node gets its name when the pipeline's function has ended."""

    def __init__(self, node: Any, name: str, type: str = "") -> None:
        self.node = node
        self.name = name
        self.type = type

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeOutput:
        return self

    def __str__(self) -> str:
        return f"${{{{parent.jobs.{self.node._node_name or '?'}.outputs.{self.name}}}}}"


def texts_of(value: Any) -> list[str]:
    """Return the expressions within an input or an output of a node, such as ``parent.inputs.x``."""
    if isinstance(value, Binding):
        value = str(value)
    elif hasattr(value, "path"):
        value = value.path
    if not isinstance(value, str):
        return []
    return [text for text in PATTERN.findall(value) if text not in _MACROS]
