"""The supervisor's end of the channel: peers that knock, agents, the processes of these, and agents that are gone."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import channel
from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.words import format_seconds
from drumline.linux import kernel
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.messages import FromAgent
    from drumline.contract.plan import Plan
    from drumline.engines.base import AgentStarter


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
        self._version = channel.compute_version()
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
            return [channel.decode_from_agent(line) for line in lines]
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
            other = channel.describe_difference(hello)
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
        return self._send_line(node, channel.encode(message))

    def send_all(self, nodes: Iterable[int], message: m.ToAgent) -> None:
        """Send a message to each of the nodes, as ``send`` does."""
        line = channel.encode_for_many(message)
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


# The descriptors that an attempt waits for: agents that connect and send, their processes, and wake-ups.


_FEW = 256
"""Nodes whose connections fit into the open files that any process may have."""

_MOST_AT_ONCE = 64
"""Connections that are accepted before others are heard."""

_LEAVE_TIMEOUT_S = 2.0
"""For the agents to end after their last message."""


class Inbox:
    """
    Starts the agents and hears them. ``take_in`` gets each message with its node, ``losses`` the nodes whose agents are
    gone.
    """

    def __init__(
        self,
        connections: AgentConnections,
        agents: AgentStarter,
        wake: int,
        take_in: Callable[[int, FromAgent], None],
        losses: AgentLosses,
    ) -> None:
        self._connections = connections
        self._agents = agents
        self._wake = wake
        self._take_in = take_in
        self._losses = losses
        # Unlike poll, it takes no longer where there are more agents.
        self._poller = select.epoll()
        self._own: dict[int, int] = {}
        """Node by the descriptor of its agent's process, where that is a child of this one."""

        self._own_nodes: set[int] = set()
        """The nodes of ``_own``."""

        self._starter: int | None = None
        """As of ``AgentProcesses``, until it has ended."""

        self._quiet: dict[int, int] = {}
        """As ``_own``: agents whose loss the connection tells."""

    def start_agents(self) -> None:
        """Start the agents. Raises EngineError."""
        processes = self._agents.start(self._connections.port, self._connections.secret)
        if self._connections.node_count > _FEW:
            # After the agents were started, whose ranks are to have the limit that the user has.
            kernel.allow_open_files(2 * self._connections.node_count)
        self._own = {descriptor: node for node, descriptor in processes.own.items()}
        self._own_nodes = set(processes.own)
        self._starter = processes.starter
        self._quiet = {descriptor: node for node, descriptor in processes.quiet.items()}
        for descriptor in self._list_processes():
            self._poller.register(descriptor, select.EPOLLIN)
        self._poller.register(self._connections.server, select.EPOLLIN)
        self._poller.register(self._wake, select.EPOLLIN)

    def _list_processes(self) -> list[int]:
        return [*self._own, *([] if self._starter is None else [self._starter])]

    def wait(self, patience_s: float) -> list[int]:
        """Return the descriptors that can be heard, after ``patience_s`` at the latest."""
        return [descriptor for descriptor, _ in self._poller.poll(patience_s)]

    def hear(self, descriptor: int) -> None:
        if descriptor == self._connections.server.fileno():
            self._accept()
        elif descriptor == self._wake:
            os.read(self._wake, 512)
        elif descriptor == self._starter:
            # The agents that are connected go on without it.
            self._poller.unregister(descriptor)
            self._starter = self._agents.start_again()
            if self._starter is None:
                self._losses.lose_missing()
            else:
                self._poller.register(self._starter, select.EPOLLIN)
        elif descriptor in self._own:
            self._lose_own(descriptor)
        elif self._connections.knows(descriptor):
            self._hear_peer(descriptor)

    def _accept(self) -> None:
        for _ in range(min(_MOST_AT_ONCE, self._connections.node_count)):
            peer = self._connections.accept()
            if peer is None:
                return
            self._poller.register(peer, select.EPOLLIN)

    def _hear_peer(self, descriptor: int) -> None:
        messages = self._connections.receive(descriptor)
        if messages is None:
            self._poller.unregister(descriptor)
            node = self._connections.drop(descriptor)
            # A message that cannot be understood tells more than the connection, which was closed for it.
            for refused, reason in self._connections.take_refused():
                self._losses.lose(refused, reason)
            # The end of an agent's own process, which is seen as well, tells more.
            if node is not None and node not in self._own_nodes:
                self._losses.lose_closed(node)
            return
        node = self._connections.node_at(descriptor)
        for message in messages:
            assert node is not None, "messages come from agents that were let in"
            self._take_in(node, message)

    def _lose_own(self, descriptor: int) -> None:
        """
        Handle the end of an agent of this machine. Its last messages are heard first: an exit may explain its end.
        """
        self._poller.unregister(descriptor)
        node = self._own[descriptor]
        while (peer := self._connections.find_agent(node)) is not None:
            self._hear_peer(peer)
        del self._own[descriptor]
        self._own_nodes.discard(node)
        self._losses.lose(node, self._agents.reap(node))

    def wait_for_ends(self) -> None:
        """Wait until the agents, told to leave, have ended; whoever cleans up after the attempt ends the others."""
        deadline = time.monotonic() + _LEAVE_TIMEOUT_S
        self._own |= self._quiet
        poller = select.poll()
        for descriptor in self._list_processes():
            poller.register(descriptor, select.POLLIN)
        while self._list_processes() and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                poller.unregister(descriptor)
                if descriptor == self._starter:
                    self._starter = None
                else:
                    self._agents.reap(self._own.pop(descriptor))
        self._connections.close()

    def close(self) -> None:
        """
        Close what the inbox waits with.

        An agent of the next attempt is forked from this process: its descriptors have the same numbers, and whatever
        the garbage collector closes there by number may be one of its own.
        """
        self._poller.close()


# Agents that are gone, or cannot be talked to.


_LATE_S = 30.0
"""For an agent to start, before the job has that as its reason."""

_FAILED_STARTS_EVERY_S = 1.0
"""For agents that could not start: an engine may look through files of all of them."""


class AgentLosses:
    """Records the loss of each agent once, and gives it to the policy."""

    def __init__(
        self,
        plan: Plan,
        agents: AgentStarter,
        connections: AgentConnections,
        record: Callable[[e.Event], None],
        handle: Callable[[h.Happening], None],
    ) -> None:
        self._plan = plan
        self._agents = agents
        self._connections = connections
        self._record = record
        self._handle = handle
        self._lost: set[int] = set()
        self._missing = {task.node for task in plan.nodes}
        """Nodes that have neither joined nor been lost."""

        self._next_look = time.monotonic() + _FAILED_STARTS_EVERY_S
        """For ``lose_failed``, in monotonic seconds."""

        self._late_from = time.monotonic() + _LATE_S
        """When agents that have not joined are late, in monotonic seconds."""

        self._late: int | None = None
        """The node whose agent was recorded as late."""

        self.is_over = False
        """Whether the attempt has ended; agents leave then."""

    def note_joined(self, node: int) -> None:
        self._missing.discard(node)
        if node == self._late:
            self._late = None
            self._record(e.AgentSilent(wall_time(), node, ""))

    def list_times(self) -> Iterable[float]:
        """List when ``lose_failed`` has something to do, in monotonic seconds."""
        return [self._next_look] if self._missing else []

    def lose(self, node: int, reason: str) -> None:
        """
        Record and handle the loss of a node. ``reason`` completes "the agent of node 1 ...": "was killed by SIGKILL".
        """
        if not self.is_over and node not in self._lost:
            self._lost.add(node)
            self._missing.discard(node)
            self._record(e.NodeLost(wall_time(), node, reason))
            self._handle(h.Lost(node, reason))

    def lose_closed(self, node: int) -> None:
        """Lose a node whose agent has closed its connection. Unless it was lost before, its engine is asked why."""
        if not self.is_over and node not in self._lost:
            self.lose(node, self._agents.explain_loss(node))

    def lose_failed(self) -> None:
        """Give up agents that could not start, as far as they could say so; does nothing between its times."""
        if self._missing and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _FAILED_STARTS_EVERY_S
            self._lose_failed()
            if self._missing and self._late is None and time.monotonic() >= self._late_from:
                # One of them, so that the job has a reason while it starts.
                self._late = min(self._missing)
                reason = f"has not started within {format_seconds(_LATE_S)}"
                self._record(e.AgentSilent(wall_time(), self._late, reason))

    def _lose_failed(self) -> None:
        for node, reason in self._agents.find_failed().items():
            if not self._connections.is_connected(node):
                self.lose(node, reason)

    def lose_late(self) -> None:
        """Lose the nodes that did not join in time. The agents, or their starter, may have said more than that."""
        self._lose_failed()
        self._lose_unconnected(self._agents.explain_missing)

    def lose_missing(self) -> None:
        """Lose the nodes that have not joined: no more agents will come."""
        # What they have said themselves tells more than their end.
        self._lose_failed()
        self._lose_unconnected(self._agents.explain_loss)

    def _lose_unconnected(self, explain: Callable[[int], str | None]) -> None:
        for task in self._plan.nodes:
            if self._connections.is_connected(task.node) or task.node in self._lost or self.is_over:
                continue
            reason = explain(task.node)
            if reason is not None:
                self.lose(task.node, reason)

    def lose_silent(self) -> None:
        """Give up agents that cannot be talked to. A stopped one would neither end nor close its connection."""
        for node, reason in self._connections.take_refused():
            self.lose(node, reason)
        for node in self._connections.take_stuck():
            self.lose(node, f"took in nothing for {format_seconds(SEND_TIMEOUT_S)}")
        for node, reason in self._agents.find_cut_off().items():
            self.lose(node, reason)
