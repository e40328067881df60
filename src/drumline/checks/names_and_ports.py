"""Names, addresses, ports and proxies."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import error, list_nodes, ok, warning
from drumline.contract import identity
from drumline.linux import interfaces, kernel_files, ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]


MOST_NAMES = 8
"""Of names that are looked up, each in its turn."""

_SLOW_LOOK_UP_S = 0.5
"""Above which a look-up is slow (``judge_look_ups``), and those after it are left out."""

_DEFAULT_PORT = 29500
"""Of PyTorch, for programs that choose none."""


def gather_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Look up the own host name and those of the other nodes, until one takes long; each with its seconds."""
    own = socket.gethostname()
    names = [own, *(name for name in settings.get("host_names", ()) if name != own)]
    return {"host": own, "looked_up": _look_up_until_slow(names, _look_up)}


def gather_reverse(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Look up the names of the other nodes' addresses, until one takes long; each with its seconds.

    A group of its own: where no server answers, each takes many seconds, which are not to cost the facts of names.
    """
    return {"looked_up": _look_up_until_slow(settings.get("addresses", ()), _look_up_address)}


def _look_up_until_slow(
    asked: Iterable[str], look_up: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what was found. One that is slow is enough to tell of: the next ones would be, too."""
    found: list[dict[str, Any]] = []
    for one in list(asked)[:MOST_NAMES]:
        found.append(look_up(one))
        if found[-1]["seconds"] > _SLOW_LOOK_UP_S:
            break
    return found


def _look_up(name: str) -> dict[str, Any]:
    began = time.monotonic()
    found: dict[str, Any] = {"name": name, "ipv4": [], "ipv6": [], "error": ""}
    try:
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            found["ipv4" if family == socket.AF_INET else "ipv6"].append(address[0])
    except OSError as error:
        found["error"] = error.strerror or str(error)
    found["seconds"] = round(time.monotonic() - began, 3)
    return found


def _look_up_address(address: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        # Nothing needs a name for an address; only a search that takes long delays a start.
        name = ""
    return {"address": address, "name": name, "seconds": round(time.monotonic() - began, 3)}


def gather_network(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the interfaces with their MTU, the kernel's range of ports, and whether a port can be had."""
    found = interfaces.list_interfaces()
    for one in found:
        one["mtu"] = kernel_files.read_number(f"/sys/class/net/{one['name']}/mtu")
    return {
        "address": settings.get("address", ""),
        "machine": identity.name_network(),
        "interfaces": found,
        "local_ports": [
            int(word) for word in kernel_files.read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
        ],
        "ipv6_only": kernel_files.read_text("/proc/sys/net/ipv6/bindv6only") == "1",
        "port_error": _try_port(settings.get("address") or "127.0.0.1"),
        "default_port": _find_holder(_DEFAULT_PORT),
    }


def _try_port(address: str) -> str:
    try:
        ports.lease_port(address)[1].close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _find_holder(port: int) -> str:
    return ports.find_port_holder(f"port {port}: EADDRINUSE")


def gather_proxies(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the proxy that catches connections to this machine, by the name of its variable."""
    spared = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").replace(" ", "").split(",")
    caught = [
        name
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        if os.environ.get(name)
    ]
    missing = [
        name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
        if os.environ.get(name) and not os.path.exists(os.environ[name])
    ]  # fmt: skip
    # Not their values: an address of a proxy may hold a password.
    return {
        "proxies": caught,
        "spares_loopback": "*" in spared or {"localhost", "127.0.0.1"} <= set(spared),
        "missing_certificates": missing,
    }


_SLOW_LOOK_UP_S = 0.5
_SLOW_KINDS = {"names": "looking up host names", "reverse": "looking up the names of the nodes' addresses"}
"""By group of facts."""

_FEWEST_PORTS = 1000
_FIRST_PORT = 20000
"""Of those that Drumline leases (``linux/ports.py``)."""


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
