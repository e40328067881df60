"""Names, addresses, ports and proxies."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import Finding, list_nodes
from drumline.contract import process_identity
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_ms, format_seconds
from drumline.linux import cgroups, interfaces, ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from drumline.checks.findings import NodeReport


MOST_NAMES = 8
"""Of names that are looked up, each in its turn."""

_SLOW_LOOK_UP_S = 0.5
"""Above which a look-up is slow (``judge_look_ups``), and those after it are left out."""

_DEFAULT_PORT = 29500
"""Of PyTorch, for programs that choose none."""


class LookUp(NamedTuple):
    """A look-up of a name, or of an ``address``."""

    name: str
    ipv4: Sequence[str] = ()
    ipv6: Sequence[str] = ()
    error: str = ""
    seconds: float = 0.0
    address: str = ""


class LookUps(NamedTuple):
    looked_up: list[LookUp]


def gather_names(settings: Mapping[str, Any]) -> LookUps:
    """Look up the own host name and those of the other nodes, until one takes long; each with its seconds."""
    own = socket.gethostname()
    names = [own, *(name for name in settings.get("host_names", ()) if name != own)]
    return _look_up_until_slow(names, _look_up)


def gather_reverse(settings: Mapping[str, Any]) -> LookUps:
    """
    Look up the names of the other nodes' addresses, until one takes long; each with its seconds.

    A group of its own: where no server answers, each takes many seconds, which are not to cost the facts of names.
    """
    return _look_up_until_slow(settings.get("addresses", ()), _look_up_address)


def _look_up_until_slow(asked: Iterable[str], look_up: Callable[[str], LookUp]) -> LookUps:
    """Return what was found. One that is slow is enough to tell of: the next ones would be, too."""
    found: list[LookUp] = []
    for one in list(asked)[:MOST_NAMES]:
        found.append(look_up(one))
        if found[-1].seconds > _SLOW_LOOK_UP_S:
            break
    return LookUps(found)


def _look_up(name: str) -> LookUp:
    began, why = time.monotonic(), ""
    found: dict[bool, list[str]] = {True: [], False: []}
    try:
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            found[family == socket.AF_INET].append(str(address[0]))
    except OSError as error:
        why = error.strerror or str(error)
    return LookUp(name, found[True], found[False], why, round(time.monotonic() - began, 3))


def _look_up_address(address: str) -> LookUp:
    began = time.monotonic()
    try:
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        # Nothing needs a name for an address; only a search that takes long delays a start.
        name = ""
    return LookUp(name, [], [], "", round(time.monotonic() - began, 3), address)


class NetworkFacts(NamedTuple):
    """
    The interfaces of a node (``interfaces.list_interfaces``), the kernel's range of ports, and why none can be had.
    ``default_port``: what holds that of PyTorch.
    """

    address: str
    machine: str
    interfaces: list[dict[str, Any]]
    local_ports: list[int]
    ipv6_only: bool
    port_error: str
    default_port: str


def gather_network(settings: Mapping[str, Any]) -> NetworkFacts:
    return NetworkFacts(
        settings.get("address", ""),
        process_identity.name_network(),
        interfaces.list_interfaces(),
        [int(word) for word in cgroups.read_text("/proc/sys/net/ipv4/ip_local_port_range").split()],
        cgroups.read_text("/proc/sys/net/ipv6/bindv6only") == "1",
        _try_port(settings.get("address") or "127.0.0.1"),
        ports.find_port_holder(f"port {_DEFAULT_PORT}: EADDRINUSE"),
    )


def _try_port(address: str) -> str:
    try:
        ports.lease_port(address)[1].close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


class ProxyFacts(NamedTuple):
    """The variables of proxies that are set, and of files that are not there."""

    proxies: list[str]
    spares_loopback: bool
    missing_certificates: list[str]


def gather_proxies(_: Mapping[str, Any]) -> ProxyFacts:
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
    spares_loopback = "*" in spared or {"localhost", "127.0.0.1"} <= set(spared)
    return ProxyFacts(caught, spares_loopback, missing)


_SLOW_KINDS = {"names": "looking up host names", "reverse": "looking up the names of the nodes' addresses"}
"""By group of facts."""

_FEWEST_PORTS = 1000
_FIRST_PORT = 20000
"""Of those that Drumline leases (``linux/ports.py``)."""


def judge_host_name(node: NodeReport) -> Iterator[Finding]:
    own, network = _find_own_name(node), node.find("network", NetworkFacts)
    if not own:
        return
    loopback = [address for address in own.ipv4 if address.startswith("127.")]
    if own.error:
        what = f"its own host name {own.name} cannot be looked up: {own.error}"
        yield node.warning(what, "add it to /etc/hosts, or to the name service")
    elif loopback and network and network.interfaces:
        address = network.address or "of its network interface"
        what = f"its own host name {own.name} is {loopback[0]}, which no other node reaches"
        yield node.warning(what, f"in /etc/hosts, give {own.name} the address {address}")
    else:
        yield node.ok(f"{own.name} is {', '.join(own.ipv4 or own.ipv6)}")


def compare_host_names(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for node in nodes:
        own, network = _find_own_name(node), node.find("network", NetworkFacts)
        address = network.address if network else ""
        addresses = own.ipv4 if own else []
        # Of the loopback alone, that was said of the node.
        if own and address and addresses and address not in addresses and not addresses[0].startswith("127."):
            yield node.warning(
                f"its own host name {own.name} is {addresses[0]}, and the ranks use {address}",
                "give the name that address, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME if ranks cannot connect",
            )


def _find_own_name(node: NodeReport) -> LookUp | None:
    return next(iter(_list_look_ups(node, "names")), None)


def _list_look_ups(node: NodeReport, group: str) -> list[LookUp]:
    facts = node.find(group, LookUps)
    return facts.looked_up if facts else []


def judge_look_ups(node: NodeReport) -> Iterator[Finding]:
    slow = [
        f"{what} takes longer than {format_seconds(node.find_deadline(group))}"
        for group, what in _SLOW_KINDS.items()
        if node.find_deadline(group) is not None
    ]
    names = _list_look_ups(node, "names")
    tried = [*names, *_list_look_ups(node, "reverse")]
    slowest = max(tried, key=lambda one: one.seconds, default=None)
    failed = [one for one in names[1:] if one.error]
    if not slow and slowest and slowest.seconds > _SLOW_LOOK_UP_S:
        slow = [f"looking up {slowest.address or slowest.name} takes {format_seconds(slowest.seconds)}"]
    if slow:
        remedy = "mend its name servers (/etc/resolv.conf), or add the nodes to /etc/hosts"
        yield node.warning("; ".join(slow), remedy)
    elif failed:
        what = f"it cannot look up the name of another node, {failed[0].name}: {failed[0].error}"
        yield node.warning(what, "add the nodes to /etc/hosts, or to the name service")
    elif slowest:
        yield node.ok(f"the slowest look-up took {format_ms(slowest.seconds)}")


def judge_interfaces(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("network", NetworkFacts)
    if facts:
        names = [f"{one['name']} {one['address']}" for one in facts.interfaces]
        yield node.ok(", ".join(names) or "none but the loopback")


def compare_interfaces(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    holders: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for node in nodes:
        facts = node.find("network", NetworkFacts)
        if facts and facts.address and not facts.address.startswith("127."):
            holders[facts.address].append((node.node, facts.machine))
    for address, places in holders.items():
        # Several nodes of a cluster for tests may be one machine.
        if len({machine for _, machine in places}) > 1:
            what = f"{list_nodes([number for number, _ in places])} have the same address {address}"
            remedy = "set interface of the compute to one whose addresses differ"
            yield Finding("", "error", None, what, remedy)


def judge_ports(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("network", NetworkFacts)
    if not facts:
        return
    first = (facts.local_ports or [32768])[0]
    if facts.port_error:
        yield node.error(f"no port can be had: {facts.port_error}", "end what holds them: ss -tlnp")
        return
    if facts.default_port:
        yield node.warning(
            f"{facts.default_port}, which PyTorch takes where a program sets no MASTER_PORT",
            "leave MASTER_PORT as Drumline sets it, or end that process",
        )
    if first - _FIRST_PORT < _FEWEST_PORTS:
        yield node.warning(
            f"the kernel takes ports for outgoing connections from {first} on, which are those of MASTER_PORT too",
            "sysctl net.ipv4.ip_local_port_range='32768 60999'",
        )
    elif not facts.default_port:
        yield node.ok(f"{_FIRST_PORT} to {first - 1} are free of outgoing connections")


def judge_ipv6(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("network", NetworkFacts)
    if facts and facts.ipv6_only:
        yield node.warning(
            "sockets for IPv6 take no IPv4 (bindv6only is 1), and PyTorch's store listens on such a socket",
            "sysctl net.ipv6.bindv6only=0",
        )
    for one in _list_look_ups(node, "names"):
        if one.ipv6 and not one.ipv4:
            what = f"{one.name} has an address of IPv6 alone, {one.ipv6[0]}"
            yield node.warning(what, "give it an IPv4 address in /etc/hosts")


def judge_proxies(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("proxies", ProxyFacts)
    if not facts:
        return
    if facts.proxies and not facts.spares_loopback:
        yield node.warning(
            f"{', '.join(facts.proxies)} is set, and no_proxy spares neither localhost nor 127.0.0.1",
            "set no_proxy=localhost,127.0.0.1 and the addresses of the nodes",
        )
    for name in facts.missing_certificates:
        yield node.warning(f"{name} names what is not there", f"unset {name}, or correct it")
