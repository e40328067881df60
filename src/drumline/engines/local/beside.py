"""A command beside a rank on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.events import AgentJoined
from drumline.node import entering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import RankOutcome


def run_beside(folder: RunFolder, label: str, rank: RankOutcome, words: Sequence[str]) -> int:
    """Do as ``Engine.run_beside``."""
    agent = _open_agent(folder, rank.node)
    return entering.run_beside(entering.make_command(folder.path, label, rank.pid or 0, words), label, agent)


def _open_agent(folder: RunFolder, node: int) -> int:
    who = None
    for event in folder.read_events():
        if isinstance(event, AgentJoined) and event.node == node:
            who = event.who
    if who and not identity.is_ours_to_judge(who):
        raise UsageError(f"job {folder.name} runs on another machine", "run the command there")
    agent = identity.open_pidfd(who)
    if agent is None:
        raise NotFoundError(f"the agent of node {node} has ended")
    return agent
