"""Values that become part of a script, a manifest or a setting of the kernel: checked by a pattern, kept as text."""

from __future__ import annotations

import re

from drumline.spec.kinds.values import Integer, Kind, Number, Text, quote_node
from drumline.spec.reading.tree import Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_CONTROL = r"[\x00-\x1f\x7f\x85\u2028\u2029]"


class Line(Text):
    """One line of text, for it becomes part of a batch script; ``pattern`` is of all of it."""

    def __init__(self, pattern: str = ".*", word: str = "text", hint: str = "") -> None:
        super().__init__()
        self.pattern = pattern
        self.said = word
        self.hint = hint

    def take(self, node: Node, path: str, report: Report) -> Any:
        is_text = isinstance(node, Scalar) and isinstance(node.value, str)
        if self.hint and not is_text:
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        value = super().take(node, path, report)
        if not isinstance(value, str):
            return None
        if re.search(_CONTROL, value):
            report.add(f"{path} must be one line without control characters", node, path)
            return None
        if not re.fullmatch(self.pattern, value):
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


class ScriptText(Text):
    """Lines of a shell."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if isinstance(value, str) and re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value):
            report.add(f"{path} may hold no control characters but tabs and line ends", node, path)
            return None
        return value


class Count(Integer):
    def __init__(self, least: int, most: int = 1 << 31) -> None:
        super().__init__()
        self.least = least
        self.most = most
        self.word = f"a whole number, {least} or more"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is not None and not self.least <= value <= self.most:
            self.refuse(node, path, report)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {**super().json_schema(schemas), "minimum": self.least, "maximum": self.most}


class TimeLimit(Kind):
    """A time as ``sbatch --time`` reads it, kept as text: YAML makes a number of base 60 of ``1:30:00``."""

    word = "a time of Slurm: minutes, 'HH:MM:SS' or 'D-HH:MM:SS'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        text = node.text if isinstance(node, Scalar) else ""
        is_plain = isinstance(value, (str, int)) and not isinstance(value, bool)
        text = value if isinstance(value, str) else text
        if is_plain and re.fullmatch(r"\d+-\d+(:\d+){0,2}|\d+(:\d+){0,2}", text) and re.search("[1-9]", text):
            assert isinstance(node, Scalar)
            node.surprise = ""
            return text
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "integer"]}


class Amount(Number):
    """A number above 0."""

    word = "a number above 0"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is not None and value <= 0:
            self.refuse(node, path, report)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["number", "string"]}


class Quantity(Kind):
    """An amount of a resource, kept as text."""

    word = "a whole number above 0, or a size such as 64Gi"

    def take(self, node: Node, path: str, report: Report) -> Any:
        text = str(node.value) if isinstance(node, Scalar) else ""
        if re.fullmatch(r"[1-9][0-9]*([kMGT]|[KMGT]i)?", text):
            return text
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "integer"]}
