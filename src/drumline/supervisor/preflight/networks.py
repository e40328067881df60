"""Judges of names, addresses, ports and clocks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from drumline.supervisor.preflight.findings import error, list_nodes, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]

_SLOW_LOOK_UP_S = 0.5
_SLOW_KINDS = {"names": "looking up host names", "reverse": "looking up the names of the nodes' addresses"}
"""By group of facts."""

_FEWEST_PORTS = 1000
_FIRST_PORT = 20000
"""Of those that Drumline leases (``linux/ports.py``)."""

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
        late = [
            f"{what} takes longer than {one.facts[group]['late']:g} s"
            for group, what in _SLOW_KINDS.items()
            if "late" in (one.facts.get(group) or {})
        ]
        facts = one.get("names").get("looked_up", ())
        tried = [*facts, *one.get("reverse").get("looked_up", ())]
        slowest = max(tried, key=lambda found: found["seconds"], default={"seconds": 0.0})
        failed = [found for found in facts[1:] if found["error"]]
        if not late and slowest["seconds"] > _SLOW_LOOK_UP_S:
            what = slowest["name"] if "ipv4" in slowest else slowest["address"]
            late = [f"looking up {what} takes {slowest['seconds']:.1f} s"]
        if late:
            yield warning(
                one.node,
                "; ".join(late),
                "mend its name servers (/etc/resolv.conf), or add the nodes to /etc/hosts",
            )
        elif failed:
            yield warning(
                one.node,
                f"it cannot look up the name of another node, {failed[0]['name']}: {failed[0]['error']}",
                "add the nodes to /etc/hosts, or to the name service",
            )
        elif tried:
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
        # The answer of a busy node may be old: it was told between the question and its arrival.
        ahead, behind = told - one.arrived, (one.asked or one.arrived) - told
        if max(ahead, behind) > _SKEW_S:
            how = "ahead of" if ahead > behind else "behind"
            yield warning(
                one.node,
                f"its clock is {max(ahead, behind):.1f} s {how} that of the supervisor",
                "start chrony or ntpd there",
            )
