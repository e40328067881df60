"""Facts and demands that checks are given, their findings, and how these read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Literal

    Status = Literal["ok", "warning", "error"]


class NodeReport(NamedTuple):
    """
    The facts of a node by group (``checker.gather``). ``arrived`` and ``asked``: when they came and were asked for,
    in seconds since 1970 by this machine's clock; None: they are of this machine.
    """

    node: int
    host: str
    facts: Mapping[str, Mapping[str, Any]]
    arrived: float | None = None
    asked: float | None = None

    def get(self, group: str) -> Mapping[str, Any]:
        """Return the facts of a group; empty where they could not be had."""
        facts = self.facts.get(group) or {}
        return {} if "late" in facts or "failed" in facts else facts


class NodeDemand(NamedTuple):
    """The demands of a job on one node; 0: it makes none."""

    ranks: int = 1
    cores: int = 0
    gpus: int = 0
    memory_bytes: int = 0


class Finding(NamedTuple):
    """
    The result of a check, of one node or, without ``node``, of none alone. ``finding`` completes ``node 1: ...``;
    ``remedy`` is a sentence in the imperative.
    """

    check: str
    status: Status
    node: int | None
    finding: str
    remedy: str = ""


def ok(finding: str, node: int | None = None) -> Finding:
    return Finding("", "ok", node, finding)


def warning(node: int | None, finding: str, remedy: str) -> Finding:
    return Finding("", "warning", node, finding, remedy)


def error(node: int | None, finding: str, remedy: str) -> Finding:
    return Finding("", "error", node, finding, remedy)


def name_node(node: int, reports: Sequence[NodeReport]) -> str:
    """Return ``node 1 (host)``."""
    host = next((one.host for one in reports if one.node == node), "")
    return f"node {node} ({host})" if host else f"node {node}"


def list_nodes(nodes: Sequence[int]) -> str:
    """
    List nodes in words.

    >>> list_nodes([1]), list_nodes([0, 2]), list_nodes([0, 1, 2, 3, 4, 5, 6])
    ('node 1', 'nodes 0 and 2', 'nodes 0, 1, 2, 3 and 3 more')
    """
    words = [str(node) for node in nodes]
    if len(words) == 1:
        return f"node {words[0]}"
    if len(words) > 5:
        return f"nodes {', '.join(words[:4])} and {len(words) - 4} more"
    return f"nodes {', '.join(words[:-1])} and {words[-1]}"


def find_odd(
    reports: Sequence[NodeReport], read: Callable[[NodeReport], object]
) -> Iterator[tuple[NodeReport, Any, Any, list[int]]]:
    """
    Yield each node that differs from most: its report, its value, that of the others, and who these are. A value that
    is empty is unknown. Of as many, those of the first node are right.
    """
    known = [(one, value) for one in reports if (value := read(one)) not in ("", None)]
    if not known:
        return
    usual = Counter(value for _, value in known).most_common(1)[0][0]
    others = [one.node for one, value in known if value == usual]
    for one, value in known:
        if value != usual:
            yield one, value, usual, others


def join_equal(found: Sequence[Finding], count: int) -> list[Finding]:
    """
    Join what a check says alike of each of ``count`` nodes, where all is well, into one finding of no node.

    >>> [(one.node, one.finding) for one in join_equal([ok("8 cores", 0), ok("8 cores", 1)], 2)]
    [(None, '8 cores')]
    """
    times = Counter((one.check, one.finding) for one in found if one.status == "ok")
    joined = [
        one._replace(node=None)
        if one.status == "ok" and (not one.finding or times[one.check, one.finding] == count)
        else one
        for one in found
    ]
    return list(dict.fromkeys(joined))


def keep_worst(found: Sequence[Finding], most: int) -> list[Finding]:
    """Return so many of the findings in their order; what is well goes first."""
    kept = sorted(range(len(found)), key=lambda at: found[at].status == "ok")[:most]
    return [found[at] for at in sorted(kept)]


def size(count: float) -> str:
    """
    Return a size in words.

    >>> size(64 << 20), size(3 << 30), size(1500)
    ('64 MiB', '3 GiB', '1.5 kB')
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1000:.3g} kB"


def count_noun(number: int, noun: str) -> str:
    """
    Return a number with its noun.

    >>> count_noun(1, "core"), count_noun(2, "process")
    ('1 core', '2 processes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
