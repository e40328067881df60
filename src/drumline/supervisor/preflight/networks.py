"""Judges of names, addresses, ports and links."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

from drumline.supervisor.preflight.findings import error, list_nodes, name_node, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]

_SLOW_LOOK_UP_S = 0.5
_FEWEST_PORTS = 1000
_FIRST_PORT = 20000
"""Of those that Drumline leases (``linux/ports.py``)."""

_SLOW_SHARE = 0.6
"""Of the median link, below which a node's best link is slow."""

_FAST_ENOUGH = 2.5e9
"""Bytes a second, above which a figure tells of the CPU and not of a link."""

_NO_ANSWER = "no answer"
"""How a connection failed that ran out of time (``node/checks/links.py``)."""

_BUSY_SHARE = 0.1
"""Of the time, in which a node waited for a core, above which its links were not measured."""

_SKEW_S = 1.0


def judge_host_name(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        looked_up = one.get("names").get("looked_up")
        if not looked_up:
            continue
        own = looked_up[0]
        if own["error"]:
            yield warning(
                one.node,
                f"its own host name {own['name']} cannot be looked up: {own['error']}",
                "add it to /etc/hosts, or to the name service",
            )
            continue
        address = one.get("network").get("address")
        loopback = [found for found in own["ipv4"] if found.startswith("127.")]
        if loopback and _has_other_address(one):
            yield warning(
                one.node,
                f"its own host name {own['name']} is {loopback[0]}, which no other node reaches",
                f"in /etc/hosts, give {own['name']} the address {address or 'of its network interface'}",
            )
        elif address and own["ipv4"] and address not in own["ipv4"] and len(reports) > 1:
            yield warning(
                one.node,
                f"its own host name {own['name']} is {own['ipv4'][0]}, and the ranks use {address}",
                "give the name that address, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME if ranks cannot connect",
            )
        else:
            yield ok(f"{own['name']} is {', '.join(own['ipv4'] or own['ipv6'])}", one.node)


def _has_other_address(one: NodeReport) -> bool:
    return bool(one.get("network").get("interfaces"))


def judge_look_ups(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        if "late" in one.facts.get("names", {}):
            yield warning(
                one.node,
                f"looking up host names takes longer than {one.facts['names']['late']:g} s",
                "mend its name servers (/etc/resolv.conf), or add the nodes to /etc/hosts",
            )
            continue
        facts = one.get("names")
        tried = [*facts.get("looked_up", ()), *facts.get("reverse", ())]
        if not tried:
            continue
        slowest = max(tried, key=lambda found: found["seconds"])
        failed = [found for found in facts["looked_up"][1:] if found["error"]]
        if slowest["seconds"] > _SLOW_LOOK_UP_S:
            what = slowest["name"] if "ipv4" in slowest else slowest["address"]
            yield warning(
                one.node,
                f"looking up {what} takes {slowest['seconds']:.1f} s",
                "mend its name servers (/etc/resolv.conf), or add the nodes to /etc/hosts",
            )
        elif failed:
            yield warning(
                one.node,
                f"it cannot look up the name of another node, {failed[0]['name']}: {failed[0]['error']}",
                "add the nodes to /etc/hosts, or to the name service",
            )
        else:
            yield ok(f"the slowest look-up took {1000 * slowest['seconds']:.0f} ms", one.node)


def judge_interfaces(reports: Nodes, _: Demands) -> Iterator[Finding]:
    holders: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for one in reports:
        facts = one.get("network")
        address = facts.get("address")
        if address and not address.startswith("127."):
            holders[address].append((one.node, facts.get("machine", "")))
        elif len(reports) == 1:
            names = [f"{found['name']} {found['address']}" for found in facts.get("interfaces", ())]
            yield ok(", ".join(names) or "none but the loopback", one.node)
    for address, nodes in holders.items():
        # Several nodes of a cluster for tests may be one machine.
        if len(nodes) > 1 and len({machine for _, machine in nodes}) > 1:
            yield error(
                None,
                f"{list_nodes([node for node, _ in nodes])} have the same address {address}",
                "set interface of the compute to one whose addresses differ",
            )


def judge_ports(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("network")
        if not facts:
            continue
        if facts["port_error"]:
            yield error(
                one.node, f"no port can be had: {facts['port_error']}", "end what holds them: ss -tlnp"
            )
            continue
        if facts["default_port"]:
            yield warning(
                one.node,
                f"{facts['default_port']}, which PyTorch takes where a program sets no MASTER_PORT",
                "leave MASTER_PORT as Drumline sets it, or end that process",
            )
        first = (facts["local_ports"] or [32768])[0]
        if first - _FIRST_PORT < _FEWEST_PORTS:
            yield warning(
                one.node,
                f"the kernel takes ports for outgoing connections from {first} on, which are those of MASTER_PORT too",
                "sysctl net.ipv4.ip_local_port_range='32768 60999'",
            )
        elif not facts["default_port"]:
            yield ok(f"{_FIRST_PORT} to {first - 1} are free of outgoing connections", one.node)


def judge_ipv6(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        if one.get("network").get("ipv6_only"):
            yield warning(
                one.node,
                "sockets for IPv6 take no IPv4 (bindv6only is 1), and PyTorch's store listens on such a socket",
                "sysctl net.ipv6.bindv6only=0",
            )
        looked_up = one.get("names").get("looked_up") or ()
        for found in looked_up:
            if found["ipv6"] and not found["ipv4"]:
                yield warning(
                    one.node,
                    f"{found['name']} has an address of IPv6 alone, {found['ipv6'][0]}",
                    "give it an IPv4 address in /etc/hosts",
                )


def judge_proxies(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("proxies")
        if facts.get("proxies") and not facts["spares_loopback"]:
            yield warning(
                one.node,
                f"{', '.join(facts['proxies'])} is set, and no_proxy spares neither localhost nor 127.0.0.1",
                "set no_proxy=localhost,127.0.0.1 and the addresses of the nodes",
            )
        for name in facts.get("missing_certificates", ()):
            yield warning(one.node, f"{name} names what is not there", f"unset {name}, or correct it")


def judge_clocks(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        told = one.get("clock").get("time")
        if told is None or one.arrived is None:
            continue
        skew = told - one.arrived
        if abs(skew) > _SKEW_S:
            how = "ahead of" if skew > 0 else "behind"
            yield warning(
                one.node,
                f"its clock is {abs(skew):.1f} s {how} that of the supervisor",
                "start chrony or ntpd there",
            )


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
            if link.get("stalled"):
                mtu = f" (MTU {link['mtu']})" if link.get("mtu") else ""
                yield warning(
                    one.node,
                    f"small packets of {name_node(link['node'], reports)} arrive, and large ones do not{mtu}",
                    "give all interfaces and switches between them the same MTU, or let ICMP pass",
                )


def judge_links(reports: Nodes, _: Demands) -> Iterator[Finding]:
    idle = [one for one in reports if one.get("connections").get("busy", 0.0) < _BUSY_SHARE]
    nodes = {one.node for one in idle}
    rates = {link: rate for link, rate in read_rates(reports).items() if nodes.issuperset(link)}
    if len(rates) < 2:
        return
    found = list(_find_slow(idle, rates))
    yield from found or [ok(f"{describe_rate(min(rates.values()))} to {describe_rate(max(rates.values()))}")]


def _find_slow(idle: Nodes, rates: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    for one in idle:
        for way, at in (("to it", 1), ("from it", 0)):
            own = {link: rate for link, rate in rates.items() if link[at] == one.node}
            others = [rate for link, rate in rates.items() if one.node not in link]
            # Of two nodes the two ways are compared, once.
            if not own or max(own.values()) > _FAST_ENOUGH:
                continue
            if not others and at == 1:
                continue
            compared = statistics.median(others) if others else max(rates.values())
            best = max(own.values())
            if best < _SLOW_SHARE * compared:
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


def describe_rate(rate: float) -> str:
    """
    Return a rate in words.

    >>> describe_rate(11_900_000), describe_rate(1_175_000_000)
    ('95.2 Mbit/s', '9.4 Gbit/s')
    """
    bits = 8 * rate
    return f"{bits / 1e9:.2g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
