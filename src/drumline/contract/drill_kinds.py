"""
Drills: failures that are made on purpose, to see whether a job survives them.

A request is a file in the run folder's ``drills``, which the job's own supervisor performs and removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.record import NamedTuple, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping

END = "end"
"""The kind of a request to end every drill of the job, those too that have not begun."""

NOTE = "note"
"""Among the settings of a drill that has begun: what its supervisor says of it."""

_MOST_SECONDS = 1e9
_LONGEST_WORD = 64


class DrillKind(NamedTuple):
    """
    A kind of drill. ``text``: what happens. ``lasts``: it has an end. ``settings``: the names of its own.
    ``is_network``: it needs nodes with a network of their own. ``aims_at``: a rank, or a node. ``usual``: the settings
    of one that has none.
    """

    text: str
    lasts: bool = False
    settings: tuple[str, ...] = ()
    is_network: bool = False
    aims_at: str = "node"
    usual: Mapping[str, str] = {}


KINDS: Mapping[str, DrillKind] = {
    "preempt": DrillKind("the node is taken away, with notice"),
    "power-off": DrillKind("the node is gone without a word", is_network=True),
    "kill-agent": DrillKind("the agent of the node is killed, and its ranks with it"),
    "kill-rank": DrillKind("a rank is killed, as by the kernel when memory is short", aims_at="rank"),
    "wedge": DrillKind("the ranks of a node stop, and do not end", lasts=True, aims_at="rank"),
    "wedge-agent": DrillKind("the agent of a node stops, and does not end; its ranks go on", lasts=True),
    "partition": DrillKind(
        "nodes cannot reach each other", lasts=True, settings=("between",), is_network=True
    ),
    "slow-link": DrillKind(
        "the network of a node is slow",
        lasts=True,
        settings=("rate", "latency"),
        is_network=True,
        usual={"rate": "1mbit"},
    ),
    "lossy-link": DrillKind(
        "the network of a node loses packets",
        lasts=True,
        settings=("loss",),
        is_network=True,
        usual={"loss": "20%"},
    ),
    "slow-cpu": DrillKind("a node computes slowly", lasts=True, settings=("cpus",), usual={"cpus": "0.1"}),
    "memory": DrillKind("a node has less memory", lasts=True, settings=("limit",)),
    "fill-disk": DrillKind("the disk of the node's TMPDIR is full", lasts=True),
    "clock": DrillKind("the clock of a node is wrong", lasts=True),
}


class DrillRequest(NamedTuple):
    """
    A drill that was asked for. ``drill`` names it among those of the job. ``node`` and ``rank`` None: the kind has a
    default, or aims at all. ``for_s`` None: until it is ended, or its attempt. ``after_s``: from when all ranks run;
    from the request on if that was later. ``at_step``: of the metrics that the job logs.
    """

    drill: str
    kind: str
    by: str
    node: Optional[int] = None
    rank: Optional[int] = None
    for_s: Optional[float] = None
    after_s: Optional[float] = None
    at_step: Optional[int] = None
    settings: Optional[dict[str, Any]] = None


def read_request(drill: str, data: Mapping[str, Any]) -> DrillRequest | None:
    """Return the request in a file, which the job could have written too; None for what is none."""
    fields = {name: data[name] for name in DrillRequest._fields if data.get(name) is not None}
    try:
        request: DrillRequest = read_record(DrillRequest, {"by": "", **fields, "drill": drill})
    except TypeError:
        return None
    numbers = (request.node, request.rank, request.for_s, request.after_s, request.at_step)
    is_known = request.kind in KINDS or request.kind == END
    if not is_known or not all(0 <= number < _MOST_SECONDS for number in numbers if number is not None):
        return None
    return request._replace(by=request.by[:_LONGEST_WORD])


def read_groups(text: str) -> list[list[int]]:
    """
    Return the groups of nodes between which a network is cut. Raises ValueError.

    >>> read_groups("0,1/2,3")
    [[0, 1], [2, 3]]
    """
    groups = [[int(one) for one in part.split(",")] for part in text.split("/")]
    named = [node for group in groups for node in group]
    if len(groups) < 2 or len(named) != len(set(named)) or min(named) < 0:
        raise ValueError(f"{text!r} names no two groups of nodes")
    return groups


def name_drill(kind: str, node: int | None, rank: int | None) -> str:
    """
    Return a drill in words.

    >>> name_drill("kill-rank", 1, 3), name_drill("wedge", 1, None), name_drill("preempt", None, None)
    ("the drill 'kill-rank' on rank 3 of node 1", "the drill 'wedge' on node 1", "the drill 'preempt' on all nodes")
    """
    if rank is not None:
        where = f"rank {rank}" + (f" of node {node}" if node is not None else "")
    else:
        where = "all nodes" if node is None else f"node {node}"
    return f"the drill {kind!r} on {where}"
