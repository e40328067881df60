"""The supervisor's end of the channel: peers that knock, agents that have shown the job's secret."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from drumline.contract import channel
from drumline.contract import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_STRANGERS = 64
"""Connections beyond the agents' that may wait to show a secret; any process of the machine can open one."""

SEND_TIMEOUT_S = 5.0


class AgentConnections:
    """Connections by descriptor; an agent is one whose hello was right. ``server``: where they come, closed at last."""

    def __init__(
        self, server: socket.socket, secret: str, node_count: int, silence_s: int = channel.SILENCE_S
    ) -> None:
        self.server = server
        self.server.setblocking(False)
        self.port: int = self.server.getsockname()[1]
        self.secret = secret
        self.node_count = node_count
        self._silence_s = silence_s
        self._version = m.compute_version()
        self._peers: dict[int, socket.socket] = {}
        self._lines: dict[int, channel.Lines] = {}
        self._nodes: dict[int, int] = {}
        self._agents: dict[int, int] = {}
        """By node, the descriptor of its agent: the other way round."""

        self._strangers: dict[int, None] = {}
        """Those that are not in ``_nodes``, in the order in which they came."""

        self._stuck: list[int] = []
        self._refused: list[tuple[int, str]] = []

    def accept(self) -> int | None:
        """Accept a new peer and return its descriptor; None when it is gone."""
        try:
            peer, _ = self.server.accept()
        except OSError:
            return None
        # Agents of other machines try each address of this one first.
        if len(self._strangers) >= 8 * self.node_count + _MOST_STRANGERS:
            # Whoever has said nothing for longest is shown out, and heard of by the end of its file.
            with contextlib.suppress(OSError):
                self._peers[next(iter(self._strangers))].shutdown(socket.SHUT_RDWR)
        # An agent that takes nothing in is as good as gone; without this it would stop us too.
        peer.settimeout(SEND_TIMEOUT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.notice_power_cut(peer, self._silence_s)
        self._peers[peer.fileno()] = peer
        self._lines[peer.fileno()] = channel.Lines(channel.HELLO_LIMIT)
        self._strangers[peer.fileno()] = None
        return peer.fileno()

    def knows(self, descriptor: int) -> bool:
        """Return whether a connection is known; False for one that was closed meanwhile."""
        return descriptor in self._peers

    def node_at(self, descriptor: int) -> int | None:
        return self._nodes.get(descriptor)

    def find_agent(self, node: int) -> int | None:
        """Return the descriptor of the agent of a node; None where there is none."""
        return self._agents.get(node)

    def connected_nodes(self) -> set[int]:
        return set(self._agents)

    def is_connected(self, node: int) -> bool:
        return node in self._agents

    def receive(self, descriptor: int) -> list[m.FromAgent] | None:
        """
        Return what the peer said since; None when it is gone, or was sent away because it is no agent of this job.

        The first message of a stranger that turns out to be an agent is its ``Hello``.
        """
        try:
            data = self._peers[descriptor].recv(1 << 16)
            lines = self._lines[descriptor].feed(data) if data else None
        except (OSError, channel.ChannelError):
            return None
        if lines is None or (
            lines and descriptor not in self._nodes and not self._admit(descriptor, lines[0])
        ):
            return None
        try:
            return [m.decode_from_agent(line) for line in lines]
        except channel.ChannelError as error:
            self._refused.append((self._nodes[descriptor], f"sent {error}"))
            return None

    def _admit(self, descriptor: int, hello: dict[str, Any]) -> bool:
        node = hello.get("node")
        right = hello["type"] == m.Hello.__name__ and channel.same_secret(self.secret, hello.get("secret"))
        if not right or not isinstance(node, int) or not 0 <= node < self.node_count:
            return False
        if node in self._agents:
            return False
        if hello.get("version") != self._version:
            other = m.describe_difference(hello)
            self._refused.append((node, f"is {other}"))
            return False
        self._nodes[descriptor] = node
        self._agents[node] = descriptor
        del self._strangers[descriptor]
        self._lines[descriptor].limit = channel.MESSAGE_LIMIT
        return True

    def drop(self, descriptor: int) -> int | None:
        """Close a connection; the node it was of, if any."""
        self._peers.pop(descriptor).close()
        del self._lines[descriptor]
        self._strangers.pop(descriptor, None)
        node = self._nodes.pop(descriptor, None)
        if node is not None:
            del self._agents[node]
        return node

    def send(self, node: int, message: m.ToAgent) -> bool:
        """
        Return False when that node has no connection, or it is broken; its loss is heard of by end of file.

        A message that does not arrive whole is the last one: what comes after half a line could not be understood.
        """
        return self._send_line(node, m.encode(message))

    def send_all(self, nodes: Iterable[int], message: m.ToAgent) -> None:
        """Send a message to each of the nodes, as ``send`` does."""
        line = m.encode_for_many(message)
        for node in nodes:
            self._send_line(node, line)

    def _send_line(self, node: int, line: bytes) -> bool:
        descriptor = self._agents.get(node)
        if descriptor is None:
            return False
        peer = self._peers[descriptor]
        try:
            peer.sendall(line)
        except OSError as error:
            if isinstance(error, TimeoutError):
                self._stuck.append(node)
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            return False
        return True

    def take_stuck(self) -> list[int]:
        """Return the nodes that took in too little for ``SEND_TIMEOUT_S``, each once. They are told nothing more."""
        stuck, self._stuck = self._stuck, []
        return stuck

    def take_refused(self) -> list[tuple[int, str]]:
        """Return the nodes whose agents were sent away, and what each is or did."""
        refused, self._refused = self._refused, []
        return refused

    def close(self) -> None:
        for peer in [self.server, *self._peers.values()]:
            with contextlib.suppress(OSError):
                peer.close()
