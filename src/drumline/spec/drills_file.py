"""The table of a file of drills, which ``drumline rehearse`` reads."""

from __future__ import annotations

from drumline.contract.drill_kinds import KINDS
from drumline.spec.kinds.lines import Count
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Kind, ListOf, OneOf, Seconds, Text, VersionText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.reading.source import Node

SURVIVE, FAIL = "survive", "fail"

_UNITS_S = {"s": 1, "m": 60, "h": 3600}


class Length(Kind):
    """A length of time: a number of seconds, or text such as ``1m30s``."""

    word = "a length of time, such as 20s or 1m30s"

    def convert(self, node: Node) -> Any:
        import re

        text = "" if isinstance(node.value, bool) else str(node.value)
        number = r"\d{1,9}(?:\.\d{1,9})?"
        if re.fullmatch(number, text, re.ASCII):
            return float(text)
        if not re.fullmatch(rf"(?:{number}[smh])+", text, re.ASCII):
            return None
        return sum(float(count) * _UNITS_S[unit] for count, unit in re.findall(rf"({number})([smh])", text))


DRILL = Record(
    "a drill",
    {
        "kind": OneOf(*KINDS),
        "name": Text(),
        "node": Count(0),
        "rank": Count(0),
        "at_step": Count(0),
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
        "steps": Count(0),
        "for": Length(),
        "seed": Count(0),
        "metric": Text(),
        "tolerance": Seconds(),
        "drills": ListOf(DRILL),
    },
    required=("drills",),
)
