"""The table of a file of drills, which ``drumline rehearse`` reads."""

from __future__ import annotations

from drumline.contract.drills import KINDS
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Integer, Kind, ListOf, OneOf, Seconds, Text, VersionText
from drumline.spec.reading.tree import Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node

SURVIVE, FAIL = "survive", "fail"

_UNITS_S = {"s": 1, "m": 60, "h": 3600}


class PositionNumber(Integer):
    """A number that counts from 0."""

    word = "a whole number, 0 or more"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is not None and value < 0:
            self.refuse(node, path, report)
            return None
        return value


class Length(Kind):
    """A length of time: a number of seconds, or text such as ``1m30s``."""

    word = "a length of time, such as 20s or 1m30s"

    def take(self, node: Node, path: str, report: Report) -> Any:
        import re

        text = str(node.value) if isinstance(node, Scalar) and not isinstance(node.value, bool) else ""
        number = r"\d{1,9}(?:\.\d{1,9})?"
        if re.fullmatch(number, text, re.ASCII):
            return float(text)
        if not re.fullmatch(rf"(?:{number}[smh])+", text, re.ASCII):
            self.refuse(node, path, report)
            return None
        return sum(float(count) * _UNITS_S[unit] for count, unit in re.findall(rf"({number})([smh])", text))


DRILL = Record(
    "a drill",
    {
        "kind": OneOf(*KINDS),
        "name": Text(),
        "node": PositionNumber(),
        "rank": PositionNumber(),
        "at_step": PositionNumber(),
        "after": Length(),
        "for": Length(),
        "between": Text(),
        "rate": Text(),
        "latency": Text(),
        "loss": Text(),
        "cpus": VersionText(),
        "limit": Text(),
        "expect": OneOf(SURVIVE, FAIL),
    },
    required=("kind",),
)

DRILLS = Record(
    "a file of drills",
    {
        "steps": PositionNumber(),
        "for": Length(),
        "seed": PositionNumber(),
        "metric": Text(),
        "tolerance": Seconds(),
        "drills": ListOf(DRILL),
    },
    required=("drills",),
)
