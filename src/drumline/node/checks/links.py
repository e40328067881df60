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
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Place = tuple[str, int]
    """Address and port of a node's listener."""

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

    def connect_to_all(self, places: Mapping[int, Place], timeout_s: float) -> list[dict[str, Any]]:
        """Connect to each of these nodes at once; return the seconds it took, or why it did not work."""
        poller = select.poll()
        waiting: dict[int, tuple[int, socket.socket]] = {}
        found: dict[int, dict[str, Any]] = {}
        began = time.monotonic()
        for node, place in places.items():
            peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            problem = peer.connect_ex(place)
            if problem not in (0, errno.EINPROGRESS):
                found[node] = {"node": node, "error": os.strerror(problem)}
                peer.close()
                continue
            waiting[peer.fileno()] = (node, peer)
            poller.register(peer, select.POLLOUT)
        while waiting and (left := began + timeout_s - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                node, peer = waiting.pop(descriptor)
                poller.unregister(descriptor)
                problem = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[node] = {"node": node, "error": os.strerror(problem) if problem else ""}
                found[node]["seconds"] = round(time.monotonic() - began, 6)
                peer.close()
        for node, peer in waiting.values():
            found[node] = {"node": node, "error": f"no answer within {timeout_s:g} s"}
            peer.close()
        return [found[node] for node in sorted(found)]

    def measure(
        self, rounds: Sequence[int], places: Mapping[int, Place], deadline: float
    ) -> list[dict[str, Any]]:
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
                received.append({"node": partner, "error": error.strerror or str(error)})
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

    def _receive(self, partner: int) -> dict[str, Any]:
        with self._accept(partner) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(_PARTNER_S)
            found: dict[str, Any] = {"node": partner, "error": "", "seconds": _ping(peer)}
            found["mtu"] = _read_path_mtu(peer)
            peer.settimeout(_STALL_S)
            found.update(_count(peer))
            found["lost_packet"] = self._find_lost(partner)
            return found

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


def _count(peer: socket.socket) -> dict[str, Any]:
    """Return the bytes a second that arrive; ``stalled``: small packets came, and no large one does."""
    buffer = bytearray(1 << 18)
    try:
        size = peer.recv_into(buffer)
    except socket.timeout:
        return {"bytes_per_s": 0, "stalled": True}
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
        return {"bytes_per_s": int(before / max(last - began, WINDOW_S)), "stalled": False}
    return {"bytes_per_s": int(total / (last - first)), "stalled": False}


def _read_path_mtu(peer: socket.socket) -> int:
    try:
        return peer.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    except OSError:
        return 0
