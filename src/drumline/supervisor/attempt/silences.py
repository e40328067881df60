"""Agents that do not answer: one that was stopped keeps its connection, and its ranks may go on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.words import format_seconds
from drumline.supervisor.clocks import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

STOPPED = "it was stopped, or its machine stands still"

SILENT_S = 20.0
"""Without an answer to two questions in turn; a busy machine may take its time, and so may the supervisor."""


class AgentSilences:
    """Records that an agent has not answered for a while, once, and that it does again. Times are monotonic seconds."""

    def __init__(self, record: Callable[[e.Event], None]) -> None:
        self._record = record
        self._since: dict[int, float] = {}
        """By node: when the first of the questions was asked that it has not answered."""

        self._told: set[int] = set()

    def note_missing(self, nodes: Collection[int], asked: float, now: float) -> None:
        """Note that these nodes have not answered a question that was asked then."""
        for node in nodes:
            since = self._since.setdefault(node, asked)
            silent_s = now - since
            if asked > since and silent_s >= SILENT_S and node not in self._told:
                self._told.add(node)
                reason = f"has not answered for {format_seconds(silent_s)}: {STOPPED}"
                self._record(e.AgentSilent(wall_time(), node, reason))

    def is_silent(self, node: int) -> bool:
        return node in self._told

    def note_answer(self, node: int) -> None:
        self._since.pop(node, None)
        if node in self._told:
            self._told.discard(node)
            self._record(e.AgentSilent(wall_time(), node, ""))

    def leave_out(self, passed_s: float) -> None:
        """Leave out time in which nothing of the job could do anything."""
        self._since = {node: since + passed_s for node, since in self._since.items()}
