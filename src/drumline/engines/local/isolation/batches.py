"""
What ``ip`` and ``tc`` are told, line by line. Pure.

The nodes' cables end at a bridge in a network namespace that holds nothing else. A group of nodes that is cut off from
the others has a bridge of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.engines.local.isolation.isolation_settings import SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from drumline.engines.local.isolation.isolation_settings import Link

CARD = "eth0"
"""The network interface of every node."""

SWITCH = "switch"
_LEAST_BURST_BYTES = 64 * 1024
_BURST_S = 0.002
_LONGEST_QUEUE_MS = 50
_MOST_DELAYED = 20000


def make_switch(networks: Sequence[str]) -> list[str]:
    """Make the bridge with the supervisor's address, and a cable to each node. ``networks``: by node, as paths."""
    lines = [
        "link set lo up",
        f"link add {SWITCH} type bridge mcast_snooping 0 stp_state 0",
        f"addr add {SUPERVISOR}/24 dev {SWITCH}",
        f"link set {SWITCH} up",
    ]
    for node, network in enumerate(networks):
        # Always the same hardware address: after a loss others would look for it at the old one for a while.
        card = f"peer name {CARD} address 02:4d:00:00:00:{node + 1:02x} netns {network}"
        lines += [
            f"link add {port_of(node)} type veth {card}",
            f"link set {port_of(node)} master {SWITCH} up",
        ]
    return lines


def port_of(node: int) -> str:
    """Return the name of the switch's end of a node's cable."""
    return f"port{node}"


def cut_cable(node: int) -> list[str]:
    return [f"link del {port_of(node)}"]


def find_bridges(groups: Sequence[Collection[int]]) -> dict[int, str]:
    """Return the bridge of each node in a group; all others are at ``SWITCH``."""
    return {node: f"group{index}" for index, group in enumerate(groups) for node in group}


def part(before: int, groups: Sequence[Collection[int]], ends: Mapping[int, str]) -> list[str]:
    """
    Give each group a bridge, and the others, with the supervisor, the first one. ``before``: how many bridges of groups
    there are already. ``ends``: by node, the switch's end of each cable that is there.
    """
    bridges = find_bridges(groups)
    lines = []
    for index in range(before, len(groups)):
        lines += [
            f"link add group{index} type bridge mcast_snooping 0 stp_state 0",
            f"link set group{index} up",
        ]
    return lines + [f"link set {ends[node]} master {bridges.get(node, SWITCH)}" for node in sorted(ends)]


def name_gap(node: int) -> tuple[str, str]:
    """Return the devices of a gap in a node's cable: on its side the second, at the bridge the first."""
    return f"far{node}", f"gap{node}"


def begin_gap(node: int, bridge: str) -> list[str]:
    """Part a node's cable from the bridge. Whoever carries its packets does so from the port to the gap's device."""
    far, gap = name_gap(node)
    # Neither end is to answer for the supervisor's address, which this network has too.
    quiet = "arp off addrgenmode none"
    return [
        f"link add {gap} type veth peer name {far}",
        f"link set {gap} {quiet} up",
        f"link set {port_of(node)} nomaster {quiet}",
        f"link set {far} master {bridge} up",
    ]


def end_gap(node: int, bridge: str) -> list[str]:
    return [f"link del {name_gap(node)[1]}", f"link set {port_of(node)} master {bridge} arp on"]


def shape_card(link: Link) -> list[str]:
    """Limit what a node sends, and how late it arrives: on its own end of the cable."""
    return _shape(CARD, link)


def shape_port(node: int, link: Link) -> list[str]:
    """Limit what a node is sent: on the switch's end."""
    return _shape(port_of(node), link._replace(latency_ms=None, loss_percent=None))


def delay(device: str) -> list[str]:
    """Delay what a device sends, as every kernel with netem can."""
    return [f"qdisc replace dev {device} root netem delay 1ms"]


def _shape(device: str, link: Link) -> list[str]:
    parent, lines = "root", []
    if link.needs_delays:
        delay = f" delay {round(1000 * link.latency_ms)}us" if link.latency_ms else ""
        loss = f" loss {link.loss_percent:g}%" if link.loss_percent else ""
        lines.append(f"qdisc replace dev {device} root handle 1: netem limit {_MOST_DELAYED}{delay}{loss}")
        parent = "parent 1:1 handle 10:"
    if link.rate_bits:
        burst = max(_LEAST_BURST_BYTES, round(link.rate_bits / 8 * _BURST_S))
        rate = f"rate {link.rate_bits}bit burst {burst}b latency {_LONGEST_QUEUE_MS}ms"
        lines.append(f"qdisc replace dev {device} {parent} tbf {rate}")
    return lines or [f"qdisc replace dev {device} root pfifo limit 1000"]
