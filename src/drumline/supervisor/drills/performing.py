"""Makes the failures of drills, by agents where they are about a node's processes or its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.contract.drills import KINDS
from drumline.supervisor.drills.refusals import explain_refusal, explain_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.drills import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

_BY_AGENTS = ("kill-rank", "wedge", "fill-disk")
"""What agents do, and answer."""

_SHARED_FOLDERS = ("/", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - whose disks are not to be filled


class DrillPerformer:
    """
    Makes the failures of drills. ``send`` has a message sent to the agent of a node; False: it is gone. ``preempt``
    takes who asks for it, and the node; None: all nodes.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        send: Callable[[int, m.ToAgent], bool],
        preempt: Callable[[str, int | None], None],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._send = send
        self._preempt = preempt

    def is_for_agent(self, kind: str) -> bool:
        """Return whether an agent is asked, and answers: the drill begins with its answer."""
        return kind in _BY_AGENTS

    def explain_refusal(self, kind: str, node: int | None, rank: int | None) -> str:
        """Return why there can be no such drill; empty: there can."""
        return explain_refusal(kind, self._plan) or explain_target(kind, self._plan, node, rank)

    def begin(self, request: DrillRequest, node: int | None, rank: int | None) -> str:
        """Make the failure, or ask an agent to; return why that cannot be, else nothing."""
        if request.kind == "preempt":
            self._preempt(f"a drill of {request.by}", node)
            return ""
        spared = [*_SHARED_FOLDERS, self._folder.path]
        message = m.BeginDrill(request.drill, request.kind, self._list_ranks(node, rank), spared)
        where = node or 0
        return "" if self._send(where, message) else f"node {where} has no agent any more"

    def end(self, request: DrillRequest, node: int | None, rank: int | None) -> None:
        """End a drill that lasts. No error where nothing of it is left."""
        if KINDS[request.kind].lasts:
            message = m.EndDrill(request.drill, request.kind, self._list_ranks(node, rank))
            self._send(node or 0, message)

    def _list_ranks(self, node: int | None, rank: int | None) -> list[int]:
        if rank is not None:
            return [rank]
        return [task.rank for task in self._plan.nodes[node or 0].ranks]
