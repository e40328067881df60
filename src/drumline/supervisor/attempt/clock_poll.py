"""Questions to agents for their nodes' clocks, and what readers of the run folder are told of the answers."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from drumline.contract import messages as m

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.supervisor.attempt.connections import AgentConnections
    from drumline.supervisor.clocks import Clocks


class ClockPoll:
    """Polls the clocks of the nodes, several times each at first; ``clocks`` compares them with this machine's."""

    def __init__(self, folder: RunFolder, attempt: int, agents: AgentConnections, clocks: Clocks) -> None:
        self._folder = folder
        self._attempt = attempt
        self._agents = agents
        self._clocks = clocks

    def ask(self, node: int) -> None:
        """Ask the agent of a node for its clock."""
        self._clocks.ask(node)
        self._agents.send(node, m.ReadClock())

    def take_answer(self, node: int, message: m.ClockRead) -> None:
        """Take in an answer, and ask again where one more makes the comparison better."""
        if self._clocks.take_answer(node, message.at):
            self.ask(node)

    def poll(self) -> None:
        """Ask all nodes once more if it is time for that, and write down for readers what has become known."""
        if self._clocks.is_due():
            for node in self._agents.connected_nodes():
                self.ask(node)
        begins = self._clocks.take_new()
        if begins is not None:
            # A full disk costs lateness of ranks, and nothing else.
            with contextlib.suppress(OSError):
                written = {"attempt": self._attempt, "nodes": begins}
                self._folder.write(self._folder.clocks, json.dumps(written))
