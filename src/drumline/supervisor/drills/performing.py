"""Makes the failures of drills, by agents where they are about a node's processes or its disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.contract.drills import KINDS, NOTE, read_groups
from drumline.contract.errors import EngineError
from drumline.supervisor.drills.refusals import explain_refusal, explain_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from drumline.contract.drills import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.base import Nodes, PlayedNetwork

_BY_AGENTS = ("kill-rank", "wedge", "fill-disk")
"""What agents do, and answer."""

_ON_NETWORKS = ("power-off", "partition", "slow-link", "lossy-link", "slow-cpu", "memory")
"""What is done to the network and the limits of isolated nodes, by the supervisor."""

_AGENT = "wedge-agent"

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
        nodes: Nodes,
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._send = send
        self._preempt = preempt
        self._agents = nodes.agents
        self._network = nodes.network

    def is_for_agent(self, kind: str) -> bool:
        """Return whether an agent is asked, and answers: the drill begins with its answer."""
        return kind in _BY_AGENTS

    def explain_refusal(self, request: DrillRequest, node: int | None, rank: int | None) -> str:
        """Return why there can be no such drill; empty: there can."""
        why_not = explain_refusal(request.kind, self._plan)
        return why_not or explain_target(request.kind, self._plan, node, rank, request.settings)

    def complete(self, request: DrillRequest) -> DrillRequest:
        """Return the request with a note on how it is performed, where a reader of its results must know it."""
        given = request.settings or {}
        note = self._network.explain_delays() if self._network and {"latency", "loss"} & set(given) else ""
        return request._replace(settings={**given, NOTE: note}) if note else request

    def begin(self, request: DrillRequest, node: int | None, rank: int | None) -> str:
        """Make the failure, or ask an agent to; return why that cannot be, else nothing."""
        if request.kind == "preempt":
            self._preempt(f"a drill of {request.by}", node)
            return ""
        if request.kind in _ON_NETWORKS:
            return self._disturb(request, node or 0)
        if request.kind == _AGENT:
            self._agents.hold(node or 0, wanted=True)
            return ""
        spared = [*_SHARED_FOLDERS, self._folder.path]
        message = m.BeginDrill(request.drill, request.kind, self._list_ranks(node, rank), spared)
        where = node or 0
        return "" if self._send(where, message) else f"node {where} has no agent any more"

    def end(self, request: DrillRequest, node: int | None, rank: int | None) -> None:
        """End a drill that lasts. No error where nothing of it is left."""
        if request.kind in _ON_NETWORKS:
            if request.kind != "power-off" and self._network is not None:
                # What cannot be undone, such as on a node that is off by now, goes with the attempt.
                with contextlib.suppress(EngineError, OSError):
                    _restore(self._network, request.kind, node or 0)
        elif request.kind == _AGENT:
            self._agents.hold(node or 0, wanted=False)
        elif KINDS[request.kind].lasts:
            message = m.EndDrill(request.drill, request.kind, self._list_ranks(node, rank))
            self._send(node or 0, message)

    def _disturb(self, request: DrillRequest, node: int) -> str:
        """Change the network or the limits of isolated nodes; return why that cannot be, else nothing."""
        if self._network is None:
            return "its nodes are not isolated"
        try:
            _change(self._network, request.kind, node, request.settings or {})
        except (EngineError, OSError, ValueError) as error:
            return getattr(error, "message", "") or str(error)
        return ""

    def _list_ranks(self, node: int | None, rank: int | None) -> list[int]:
        if rank is not None:
            return [rank]
        return [task.rank for task in self._plan.nodes[node or 0].ranks]


def _change(network: PlayedNetwork, kind: str, node: int, settings: Mapping[str, Any]) -> None:
    """Raises EngineError, OSError, ValueError."""
    if kind == "power-off":
        network.cut_power(node)
    elif kind == "partition":
        network.partition(_find_cut_off(node, settings))
    elif kind in ("slow-link", "lossy-link"):
        link = {key: str(value) for key, value in settings.items() if key in ("rate", "latency", "loss")}
        network.set_link(node, **link)
    elif kind == "slow-cpu":
        network.set_cpus(node, float(settings["cpus"]))
    elif kind == "memory":
        network.set_memory(node, int(settings["limit"]))


def _find_cut_off(node: int, settings: Mapping[str, Any]) -> Sequence[Collection[int]]:
    """Return the groups of nodes that are cut off; the first of those given keeps the supervisor."""
    groups = read_groups(str(settings["between"])) if settings.get("between") else None
    return [[node]] if groups is None else groups[1:]


def _restore(network: PlayedNetwork, kind: str, node: int) -> None:
    """Raises EngineError, OSError."""
    if kind == "partition":
        network.heal()
    elif kind in ("slow-link", "lossy-link"):
        network.set_link(node)
    elif kind == "slow-cpu":
        network.set_cpus(node)
    elif kind == "memory":
        network.set_memory(node)
