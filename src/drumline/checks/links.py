"""
The connections of this node with the others: whether each can be made, and how fast bytes come through.

Every connection goes to a port that the kernel chose, as those of gloo and NCCL do. A pair of nodes measures one
direction after the other: the receiver counts what comes in a short time, but for its first third, in which a shaper's
bucket and TCP's slow start tell nothing of the link. Before it, datagrams go the same way that are as large as the
sender takes the path to be, and must not be cut, with small ones behind them.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Optional

from drumline.checks.findings import Finding, name_node
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_link, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import NodeReport, Status

    Place = tuple[str, int]
    """Address and port of a node's listener."""


MOST_ROUNDS = 6
"""Of links that are measured: each takes a pair 150 ms."""

MOST_PEERS = 31
"""That one node connects to."""


def plan_rounds(count: int, most: int = MOST_ROUNDS) -> list[list[int]]:
    """
    Return for each node its partner in each round, -1 for none. In a round each node has one partner at most, and no
    pair meets twice.

    >>> plan_rounds(3)
    [[1, -1, 2], [0, 2, -1], [-1, 1, 0]]
    """
    slots = count + count % 2
    # The circle method: one slot stays, the others go round. Of many rounds those are taken that lie far apart.
    step = max(1, (slots - 1) // most)
    chosen = [_pair(slots, number) for number in range(0, slots - 1, step)[:most]]
    return [
        [partner if (partner := pairs[node]) < count else -1 for pairs in chosen] for node in range(count)
    ]


def _pair(slots: int, number: int) -> list[int]:
    circle = [slots - 1, *((number + place) % (slots - 1) for place in range(slots - 1))]
    partners = [0] * slots
    for place in range(slots // 2):
        one, other = circle[place], circle[slots - 1 - place]
        partners[one], partners[other] = other, one
    return partners


def plan_peers(count: int, most: int = MOST_PEERS) -> list[list[int]]:
    """
    Return the nodes that each node connects to: all others, or those at distances of powers of two, so that each is
    tried from several and tries several.
    """
    if count - 1 <= most:
        return [[other for other in range(count) if other != node] for node in range(count)]
    distances = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return [list(dict.fromkeys((node + distance) % count for distance in distances)) for node in range(count)]


WINDOW_S = 0.06
"""In which one direction is measured; a pair has two."""

_SETTLE_S = 0.02
_PINGS = 3
_CHUNK = bytes(1 << 16)
_PARTNER_S = 0.4
"""For the other node of a pair to come from the pair before."""

_STALL_S = 0.3
"""For the first large packet, when small ones have passed."""

_IP_MTU = 14
_IP_MTU_DISCOVER, _PROBE = 10, 3
"""Source: ip(7), and IP_PMTUDISC_PROBE in linux/in.h: packets that are not cut, whatever is known of the path."""

_HEADER_BYTES = 28
"""Of IP and UDP, without options."""

_PROBES = 3


class TriedPeer(NamedTuple):
    """A connection to a node that was tried: the seconds it took, or why it did not work."""

    node: int
    error: str = ""
    seconds: float = 0.0


class ReceivedLink(NamedTuple):
    """
    What arrives from a node. ``seconds``: of a byte there and back. ``stalled``: small packets came, and no large one
    does. ``lost_packet``: the size of packets that were lost when small ones arrived.
    """

    node: int
    error: str = ""
    seconds: float = 0.0
    mtu: int = 0
    bytes_per_s: int = 0
    stalled: bool = False
    lost_packet: int = 0


class LinkFacts(NamedTuple):
    """The links of a node. ``busy``: the part of the time in which it waited for a core."""

    connected: Sequence[TriedPeer] = ()
    received: Sequence[ReceivedLink] = ()
    busy: float = 0.0


def _read_links(node: NodeReport) -> LinkFacts:
    return node.find("connections", LinkFacts) or LinkFacts()


class Links:
    """Listens for the other nodes, and connects to them."""

    def __init__(self, node: int, address: str) -> None:
        self._node = node
        self._server = socket.create_server((address, 0), backlog=1024)
        self._datagrams = _open_datagrams(address, self.port)
        self._early: dict[int, socket.socket] = {}
        """Connections of nodes whose turn comes later."""

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def connect_to_all(self, places: Mapping[int, Place], timeout_s: float) -> list[TriedPeer]:
        """Connect to each of these nodes at once."""
        poller = select.poll()
        waiting: dict[int, tuple[int, socket.socket]] = {}
        found: dict[int, TriedPeer] = {}
        began = time.monotonic()
        for node, place in places.items():
            peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            problem = peer.connect_ex(place)
            if problem not in (0, errno.EINPROGRESS):
                found[node] = TriedPeer(node, os.strerror(problem))
                peer.close()
                continue
            waiting[peer.fileno()] = (node, peer)
            poller.register(peer, select.POLLOUT)
        while waiting and (left := began + timeout_s - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                node, peer = waiting.pop(descriptor)
                poller.unregister(descriptor)
                problem = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                why, seconds = os.strerror(problem) if problem else "", round(time.monotonic() - began, 6)
                found[node] = TriedPeer(node, why, seconds)
                peer.close()
        for node, peer in waiting.values():
            found[node] = TriedPeer(node, f"no answer within {format_seconds(timeout_s)}")
            peer.close()
        return [found[node] for node in sorted(found)]

    def measure(
        self, rounds: Sequence[int], places: Mapping[int, Place], deadline: float
    ) -> list[ReceivedLink]:
        """
        Measure what arrives from the partner of each round; -1: there is none. ``deadline``: in monotonic seconds,
        after which no round begins.
        """
        received = []
        for partner in rounds:
            if partner < 0 or partner not in places or time.monotonic() > deadline:
                continue
            try:
                if self._node < partner:
                    self._send(places[partner])
                    received.append(self._receive(partner))
                else:
                    received.append(self._receive(partner))
                    self._send(places[partner])
            except OSError as error:
                received.append(ReceivedLink(partner, error.strerror or str(error)))
        return received

    def close(self) -> None:
        for peer in (self._server, self._datagrams, *self._early.values()):
            if peer is not None:
                peer.close()

    def _send(self, place: Place) -> None:
        """Send until the other end has seen enough. Raises OSError when nothing can be sent."""
        with socket.create_connection(place, _PARTNER_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(self._node.to_bytes(4, "big"))
            peer.settimeout(_PARTNER_S)
            for _ in range(_PINGS):
                byte = peer.recv(1)
                if not byte:
                    return
                peer.sendall(byte)
            self._send_datagrams(place, _read_path_mtu(peer))
            peer.settimeout(WINDOW_S)
            until = time.monotonic() + _STALL_S + WINDOW_S
            try:
                while time.monotonic() < until:
                    peer.send(_CHUNK)
            except (socket.timeout, ConnectionError):
                # What a slow link cannot take at once, or the end that has seen enough.
                if time.monotonic() < until:
                    select.select([peer], [], [], until - time.monotonic())

    def _receive(self, partner: int) -> ReceivedLink:
        with self._accept(partner) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(_PARTNER_S)
            seconds, mtu = _ping(peer), _read_path_mtu(peer)
            peer.settimeout(_STALL_S)
            rate = _count(peer)
            lost = self._find_lost(partner)
            return ReceivedLink(partner, "", seconds, mtu, rate or 0, rate is None, lost)

    def _send_datagrams(self, place: Place, size: int) -> None:
        """Send packets of that size, and small ones behind them, which say so. Both may be refused or lost."""
        head = self._node.to_bytes(4, "big") + size.to_bytes(4, "big")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            try:
                sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)
                for text in (head.ljust(size - _HEADER_BYTES, b"-"), head):
                    for _ in range(_PROBES):
                        sender.sendto(text, place)
            except OSError:
                return

    def _find_lost(self, partner: int) -> int:
        """Return the size of the packets of that node that were lost when small ones arrived; 0: none are known."""
        sent, largest = 0, 0
        while self._datagrams is not None:
            try:
                text = self._datagrams.recv(1 << 16)
            except OSError:
                break
            if len(text) >= 8 and int.from_bytes(text[:4], "big") == partner:
                sent = max(sent, int.from_bytes(text[4:8], "big") if len(text) == 8 else 0)
                largest = max(largest, len(text))
        return sent if sent and largest == 8 else 0

    def _accept(self, partner: int) -> socket.socket:
        """Accept the connection of that node; those of others are kept for their turns. Raises OSError."""
        deadline = time.monotonic() + _PARTNER_S
        while partner not in self._early:
            self._server.settimeout(max(0.001, deadline - time.monotonic()))
            peer = self._server.accept()[0]
            peer.settimeout(_PARTNER_S)
            head = _read_head(peer)
            if head is None:
                peer.close()  # One that only tried to connect.
            else:
                self._early[head] = peer
        return self._early.pop(partner)


def _open_datagrams(address: str, port: int) -> Optional[socket.socket]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        receiver.bind((address, port))
    except OSError:
        receiver.close()
        return None
    return receiver


def _read_head(peer: socket.socket) -> Optional[int]:
    try:
        head = peer.recv(4, socket.MSG_WAITALL)
    except OSError:
        return None
    return int.from_bytes(head, "big") if len(head) == 4 else None


def _ping(peer: socket.socket) -> float:
    """Return the seconds that a byte takes there and back, at its quickest. Raises OSError."""
    times = []
    for _ in range(_PINGS):
        began = time.monotonic()
        peer.sendall(b"p")
        if not peer.recv(1):
            raise ConnectionError(errno.ECONNRESET, "the connection was closed")
        times.append(time.monotonic() - began)
    return round(min(times), 6)


def _count(peer: socket.socket) -> Optional[int]:
    """Return the bytes a second that arrive; None: small packets came, and no large one does."""
    buffer = bytearray(1 << 18)
    try:
        size = peer.recv_into(buffer)
    except socket.timeout:
        return None
    began = last = time.monotonic()
    first, before, total = 0.0, size, 0
    peer.settimeout(WINDOW_S)
    try:
        while size and last < began + WINDOW_S:
            size = peer.recv_into(buffer)
            last = time.monotonic()
            if first:
                total += size
            else:
                # What comes with this piece had been on its way before.
                before += size
                first = last if last >= began + _SETTLE_S else 0.0
    except socket.timeout:
        last = time.monotonic()
    if not total:
        return int(before / max(last - began, WINDOW_S))
    return int(total / (last - first))


def _read_path_mtu(peer: socket.socket) -> int:
    try:
        return peer.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    except OSError:
        return 0


SLOW_SHARE = 0.6
"""Of the median link, below which a node's best link is slow."""

FAST_ENOUGH = 2.5e9
"""Bytes a second, above which a figure tells of the CPU and not of a link."""

_NO_ANSWER = "no answer"
"""How a connection failed that ran out of time (``Links.connect_to_all``)."""

_FIREWALL = "firewall pass all TCP ports between the nodes (iptables -L, nft list ruleset)"
_BUSY_SHARE = 0.1
"""Of the time, in which a node waited for a core, above which its links were not measured."""


def compare_connections(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    failed: dict[int, dict[int, str]] = defaultdict(dict)
    tried: dict[int, set[int]] = defaultdict(set)
    for node in nodes:
        for peer in _read_links(node).connected:
            tried[peer.node].add(node.node)
            if peer.error:
                failed[peer.node][node.node] = peer.error
    for target, sources in sorted(failed.items()):
        # A link that is slow or loses packets does not answer in time either; that ends no job.
        status: Status = "warning" if all(why.startswith(_NO_ANSWER) for why in sources.values()) else "error"
        if set(sources) == tried[target] and len(sources) > 1:
            why = next(iter(sources.values()))
            what = f"no other node can connect to a port of it that the kernel chose: {why}"
            yield Finding("", status, target, what, f"let its {_FIREWALL}")
            continue
        for source, why in sorted(sources.items()):
            where = name_node(target, nodes)
            what = f"it cannot connect to {where} at a port that the kernel chose: {why}"
            yield Finding("", status, source, what, f"let the {_FIREWALL}")


def compare_packets(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for node in nodes:
        for link in _read_links(node).received:
            source = name_node(link.node, nodes)
            what = ""
            if link.lost_packet:
                what = f"packets of {link.lost_packet} bytes from {source} do not arrive, and small ones do"
            elif link.stalled:
                mtu = f" (MTU {link.mtu})" if link.mtu else ""
                what = f"small packets of {source} arrive, and large ones do not{mtu}"
            if what:
                remedy = "give all interfaces and switches between them the same MTU, or let ICMP pass"
                yield node.warning(what, remedy)


def compare_links(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    # The others had no core while they measured.
    idle = [node for node in nodes if _read_links(node).busy < _BUSY_SHARE]
    numbers = {node.node for node in idle}
    rates = {link: rate for link, rate in read_rates(nodes).items() if numbers.issuperset(link)}
    if len(rates) < 2:
        if len(idle) < len(nodes):
            yield Finding("", "ok", None, "not compared: the cores of the nodes were busy meanwhile")
        return
    slow = list(_find_slow(idle, rates))
    span = f"{format_link(min(rates.values()))} to {format_link(max(rates.values()))}"
    yield from slow or [Finding("", "ok", None, span)]
    yield from (
        node.ok("not judged: the node was waiting for a core") for node in nodes if node.node not in numbers
    )


def _find_slow(idle: Sequence[NodeReport], rates: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    for node in idle:
        for way, at in (("to it", 1), ("from it", 0)):
            best = max((rate for link, rate in rates.items() if link[at] == node.node), default=0)
            others = [rate for link, rate in rates.items() if node.node not in link]
            # Of two nodes the two ways are compared, once.
            if not 0 < best <= FAST_ENOUGH or (not others and at == 1):
                continue
            compared = _find_median(others) if others else max(rates.values())
            if best < SLOW_SHARE * compared:
                yield node.warning(
                    f"its link carries {format_link(best)} {way}, and those of the other nodes "
                    f"{format_link(compared)}",
                    "look at its cable, switch port and interface (ethtool), or leave the node out",
                )


def _find_median(rates: Sequence[int]) -> float:
    # `statistics` takes longer to import than all of this package.
    ordered = sorted(rates)
    return (ordered[(len(rates) - 1) // 2] + ordered[len(rates) // 2]) / 2


def read_rates(nodes: Sequence[NodeReport]) -> dict[tuple[int, int], int]:
    """Return the bytes a second by link, from node to node; a link that was not measured is left out."""
    return {
        (link.node, node.node): link.bytes_per_s
        for node in nodes
        for link in _read_links(node).received
        if link.bytes_per_s
    }


def list_links(nodes: Sequence[NodeReport], most: int) -> list[dict[str, Any]]:
    """List the links that were measured, by their nodes, with the seconds of a byte there and back."""
    links = [
        {
            "from": link.node,
            "to": node.node,
            "bytes_per_s": link.bytes_per_s,
            "seconds": link.seconds or None,
        }
        for node in nodes
        for link in _read_links(node).received
        if link.bytes_per_s
    ]
    return sorted(links, key=lambda link: (link["from"], link["to"]))[:most]
