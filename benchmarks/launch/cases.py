"""What is measured, by the key that selects it on the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contenders import STARTERS, STOPPERS, Contender
from torch_contenders import JOINERS, RESTARTERS


@dataclass(frozen=True)
class Case:
    """A size and a script, how it is measured, and those who are compared."""

    key: str
    title: str
    script: str
    node_count: int
    proc_count: int
    kind: Literal["start", "stop", "join", "restart"] = "start"
    contenders: Sequence[Contender] = STARTERS


CASES = [
    Case("2x2", "2 nodes x 2 ranks that do nothing", "noop.py", 2, 2),
    Case("2x4", "2 nodes x 4 ranks that do nothing", "noop.py", 2, 4),
    Case("2x16", "2 nodes x 16 ranks that do nothing", "noop.py", 2, 16),
    Case("allreduce", "2 nodes x 2 ranks to their first gloo all-reduce", "allreduce.py", 2, 2),
    Case("stop", "Stop: from the first failure to the end", "failing.py", 2, 4, "stop", STOPPERS),
    Case("torch", "2x4 torch ranks to the first all-reduce", "first.py", 2, 4, "join", JOINERS),
    Case(
        "restart",
        "Restart of the same after one rank is killed",
        "first.py",
        2,
        4,
        "restart",
        RESTARTERS,
    ),
]
