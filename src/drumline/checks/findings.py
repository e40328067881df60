"""Facts and demands that checks are given, their findings, and how these read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from drumline.contract.record import NamedTuple, list_types, read_record
from drumline.contract.words import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Literal

    Status = Literal["ok", "warning", "error"]

_Facts = TypeVar("_Facts")

LATE = "late"
"""The fact of a group whose gatherer was not done in time; its value is the deadline in seconds."""

FAILED = "failed"
"""The fact of a group whose gatherer failed; its value says why."""


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

    def to_json(self, hosts: Mapping[int, str]) -> dict[str, Any]:
        """Return the finding as the events of a job have it. ``hosts``: the names of nodes."""
        host = "" if self.node is None else hosts.get(self.node, "")
        about = {"id": self.check, "status": self.status, "node": self.node, "host": host}
        return {**about, "finding": self.finding, "remedy": self.remedy}


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
    demand: NodeDemand = NodeDemand()

    def get(self, group: str) -> Mapping[str, Any]:
        """Return the facts of a group; empty where they could not be had."""
        facts = self.facts.get(group) or {}
        return {} if LATE in facts or FAILED in facts else facts

    def find(self, group: str, kind: type[_Facts]) -> _Facts | None:
        """Return the facts of a group as a record; None where they could not be had. Others of it are left out."""
        facts = self.get(group)
        known = {name: facts[name] for name in list_types(kind) if name in facts}
        found: _Facts | None = read_record(kind, known) if facts else None
        return found

    def find_deadline(self, group: str) -> float | None:
        """Return the seconds after which the facts of a group were given up; None: they were not."""
        return (self.facts.get(group) or {}).get(LATE)

    def explain_lack(self, groups: Iterable[str]) -> str:
        """Return why facts of these groups could not be had; empty: they could."""
        for group in groups:
            if self.find_deadline(group) is not None:
                return f"that takes longer than {format_seconds(self.find_deadline(group))}"
            if FAILED in (self.facts.get(group) or {}):
                return str(self.facts[group][FAILED])
        return ""

    def ok(self, finding: str) -> Finding:
        return Finding("", "ok", self.node, finding)

    def warning(self, finding: str, remedy: str) -> Finding:
        return Finding("", "warning", self.node, finding, remedy)

    def error(self, finding: str, remedy: str) -> Finding:
        return Finding("", "error", self.node, finding, remedy)


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
) -> Iterator[tuple[NodeReport, Any, Any, str]]:
    """
    Yield each node that differs from most: its report, its value, that of the others, and who these are. A value that
    is empty is unknown. Of as many, those of the first node are right.
    """
    known = [(node, value) for node in reports if (value := read(node)) not in ("", None)]
    if not known:
        return
    usual = Counter(value for _, value in known).most_common(1)[0][0]
    others = list_nodes([node.node for node, value in known if value == usual])
    for node, value in known:
        if value != usual:
            yield node, value, usual, others


def compare(
    reports: Sequence[NodeReport],
    read: Callable[[NodeReport], object],
    what: str,
    remedy: str,
    status: Status = "warning",
) -> Iterator[Finding]:
    """Yield that ``what`` is another value than that of most nodes, for each such node; see ``find_odd``."""
    for node, own, usual, others in find_odd(reports, read):
        yield Finding("", status, node.node, f"{what} {own}, and {usual} on {others}", remedy)


def join_equal(findings: Sequence[Finding], count: int) -> list[Finding]:
    """
    Join what a check says alike of each of ``count`` nodes, where all is well, into one finding of no node.

    >>> [(one.node, one.finding) for one in join_equal([Finding("", "ok", node, "8 cores") for node in (0, 1)], 2)]
    [(None, '8 cores')]
    """
    times = Counter((one.check, one.finding) for one in findings if one.status == "ok")
    joined = [
        one._replace(node=None)
        if one.status == "ok" and (not one.finding or times[one.check, one.finding] == count)
        else one
        for one in findings
    ]
    return list(dict.fromkeys(joined))


def keep_worst(findings: Sequence[Finding], most: int) -> list[Finding]:
    """Return so many of the findings in their order; what is well goes first."""
    kept = sorted(range(len(findings)), key=lambda at: findings[at].status == "ok")[:most]
    return [findings[at] for at in sorted(kept)]
