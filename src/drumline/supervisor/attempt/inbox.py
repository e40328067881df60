"""The descriptors that an attempt waits for: agents that connect and send, their processes, and wake-ups."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.messages import FromAgent
    from drumline.engines.base import AgentStarter
    from drumline.supervisor.attempt.connections import AgentConnections
    from drumline.supervisor.attempt.losses import AgentLosses

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
