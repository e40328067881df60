"""Judges of connections and links, and what was measured of links."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

from drumline.supervisor.preflight.findings import error, name_node, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]

SLOW_SHARE = 0.6
"""Of the median link, below which a node's best link is slow."""

FAST_ENOUGH = 2.5e9
"""Bytes a second, above which a figure tells of the CPU and not of a link."""

_NO_ANSWER = "no answer"
"""How a connection failed that ran out of time (``node/checks/links.py``)."""

_BUSY_SHARE = 0.1
"""Of the time, in which a node waited for a core, above which its links were not measured."""


def judge_connections(reports: Nodes, _: Demands) -> Iterator[Finding]:
    failed: dict[int, dict[int, str]] = defaultdict(dict)
    tried: dict[int, set[int]] = defaultdict(set)
    for one in reports:
        for peer in one.get("connections").get("connected", ()):
            tried[peer["node"]].add(one.node)
            if peer["error"]:
                failed[peer["node"]][one.node] = peer["error"]
    for target, sources in sorted(failed.items()):
        why = next(iter(sources.values()))
        # A link that is slow or loses packets does not answer in time either; that ends no job.
        grade = warning if all(said.startswith(_NO_ANSWER) for said in sources.values()) else error
        if set(sources) == tried[target] and len(sources) > 1:
            yield grade(
                target,
                f"no other node can connect to a port of it that the kernel chose: {why}",
                "let its firewall pass all TCP ports between the nodes (iptables -L, nft list ruleset)",
            )
            continue
        for source in sorted(sources):
            yield grade(
                source,
                f"it cannot connect to {name_node(target, reports)} at a port that the kernel chose: {sources[source]}",
                "let the firewall pass all TCP ports between the nodes (iptables -L, nft list ruleset)",
            )


def judge_packets(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        for link in one.get("connections").get("received", ()):
            if link.get("lost_packet"):
                yield warning(
                    one.node,
                    f"packets of {link['lost_packet']} bytes from {name_node(link['node'], reports)} do not arrive, "
                    "and small ones do",
                    "give all interfaces and switches between them the same MTU, or let ICMP pass",
                )
            elif link.get("stalled"):
                mtu = f" (MTU {link['mtu']})" if link.get("mtu") else ""
                yield warning(
                    one.node,
                    f"small packets of {name_node(link['node'], reports)} arrive, and large ones do not{mtu}",
                    "give all interfaces and switches between them the same MTU, or let ICMP pass",
                )


def judge_links(reports: Nodes, _: Demands) -> Iterator[Finding]:
    # The others had no core while they measured.
    idle = [one for one in reports if one.get("connections").get("busy", 0.0) < _BUSY_SHARE]
    nodes = {one.node for one in idle}
    rates = {link: rate for link, rate in read_rates(reports).items() if nodes.issuperset(link)}
    if len(rates) < 2:
        if len(idle) < len(reports):
            yield ok("not compared: the cores of the nodes were busy meanwhile")
        return
    found = list(_find_slow(idle, rates))
    yield from found or [ok(f"{describe_rate(min(rates.values()))} to {describe_rate(max(rates.values()))}")]
    yield from (
        ok("not judged: the node was waiting for a core", one.node)
        for one in reports
        if one.node not in nodes
    )


def _find_slow(idle: Nodes, rates: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    for one in idle:
        for way, at in (("to it", 1), ("from it", 0)):
            own = {link: rate for link, rate in rates.items() if link[at] == one.node}
            others = [rate for link, rate in rates.items() if one.node not in link]
            # Of two nodes the two ways are compared, once.
            if not own or max(own.values()) > FAST_ENOUGH:
                continue
            if not others and at == 1:
                continue
            compared = statistics.median(others) if others else max(rates.values())
            best = max(own.values())
            if best < SLOW_SHARE * compared:
                yield warning(
                    one.node,
                    f"its link carries {describe_rate(best)} {way}, and those of the other nodes "
                    f"{describe_rate(compared)}",
                    "look at its cable, switch port and interface (ethtool), or leave the node out",
                )


def read_rates(reports: Nodes) -> dict[tuple[int, int], int]:
    """Return the bytes a second by link, from node to node; a link that was not measured is left out."""
    return {
        (link["node"], one.node): link["bytes_per_s"]
        for one in reports
        for link in one.get("connections").get("received", ())
        if link.get("bytes_per_s")
    }


def read_seconds(reports: Nodes) -> dict[tuple[int, int], float]:
    """Return the seconds of a byte there and back by link, from node to node."""
    return {
        (link["node"], one.node): link["seconds"]
        for one in reports
        for link in one.get("connections").get("received", ())
        if link.get("seconds")
    }


def describe_rate(rate: float) -> str:
    """
    Return a rate in words.

    >>> describe_rate(11_900_000), describe_rate(1_175_000_000)
    ('95.2 Mbit/s', '9.4 Gbit/s')
    """
    bits = 8 * rate
    return f"{bits / 1e9:.2g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
