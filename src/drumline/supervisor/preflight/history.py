"""The judge of links that carry less than they did in earlier jobs, and what a job adds to that history."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from drumline.store.link_history import NodeLink
from drumline.supervisor.preflight.findings import ok, warning
from drumline.supervisor.preflight.links import (
    FAST_ENOUGH,
    SLOW_SHARE,
    describe_rate,
    list_idle,
    list_unjudged,
    read_rates,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

_FEWEST_RUNS = 5
_FAST_SHARE = 0.1
"""Of what a link usually carries that is so fast that figures tell of the CPU as well, below which it is slow."""


def summarize_links(reports: Sequence[NodeReport]) -> dict[str, NodeLink]:
    """Return the best link of each node by its host name; those of nodes that were busy were not measured."""
    idle = {one.node for one in list_idle(reports)}
    rates = {link: rate for link, rate in read_rates(reports).items() if idle.issuperset(link)}
    found = {}
    for one in reports:
        to = max((rate for link, rate in rates.items() if link[1] == one.node), default=0)
        source = max((rate for link, rate in rates.items() if link[0] == one.node), default=0)
        seconds = [
            link["seconds"] for link in one.get("connections").get("received", ()) if link.get("seconds")
        ]
        if one.host and to and source:
            found[one.host] = NodeLink(to, source, min(seconds, default=0.0))
    return found


def add_history(report: NodeReport, before: Mapping[str, Sequence[NodeLink]]) -> NodeReport:
    """Return the report with the links of its node in earlier jobs, which are facts too."""
    links = before.get(report.host, ())
    facts = {"to": [one.to_bytes_per_s for one in links], "from": [one.from_bytes_per_s for one in links]}
    return report._replace(facts={**report.facts, "history": facts})


def judge_history(reports: Sequence[NodeReport], _: Sequence[NodeDemand]) -> Iterator[Finding]:
    now = summarize_links(reports)
    for one in reports:
        own, before = now.get(one.host), one.get("history")
        if own is None or len(before.get("to", ())) < _FEWEST_RUNS:
            continue
        slow = [
            (way, usual, rate)
            for way, rate in (("to", own.to_bytes_per_s), ("from", own.from_bytes_per_s))
            if rate < _choose_least(usual := statistics.median(before[way]))
        ]
        count = len(before["to"])
        if slow:
            way, usual, rate = min(slow, key=lambda found: found[2] / found[1])
            yield warning(
                one.node,
                f"its link carried {describe_rate(usual)} {way} it in {count} earlier jobs, "
                f"and {describe_rate(rate)} now",
                "look at its cable, switch port and interface (ethtool), or leave the node out",
            )
        else:
            yield ok(f"as in {count} earlier jobs", one.node)
    yield from list_unjudged(
        [one for one in reports if len(one.get("history").get("to", ())) >= _FEWEST_RUNS]
    )


def _choose_least(usual: float) -> float:
    """Return the bytes a second below which a link is slow that usually carries so much."""
    return usual * (SLOW_SHARE if usual <= FAST_ENOUGH else _FAST_SHARE)
