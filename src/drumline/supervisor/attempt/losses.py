"""Agents that are gone, or cannot be talked to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.words import format_seconds
from drumline.supervisor.attempt.connections import SEND_TIMEOUT_S
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.plan import Plan
    from drumline.engines.base import AgentStarter
    from drumline.supervisor.attempt.connections import AgentConnections


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
            self._record_late()

    def _record_late(self) -> None:
        """Record one agent that is late, so that the job has a reason while it starts."""
        if self._missing and self._late is None and time.monotonic() >= self._late_from:
            self._late = min(self._missing)
            self._record(
                e.AgentSilent(wall_time(), self._late, f"has not started within {format_seconds(_LATE_S)}")
            )

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
