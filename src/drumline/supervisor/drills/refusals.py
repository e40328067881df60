"""The drills that a job cannot have, each with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.drills import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from drumline.contract.plan import Plan

_STOPPING_RANKS = ("kill-rank", "wedge")
_LIMITING_NODES = ("slow-cpu", "memory")
_CHANGING_MACHINES = ("slow-cpu", "memory", "fill-disk")


def explain_refusal(kind: str, plan: Plan) -> str:
    """Return why that job cannot have a drill of a kind; empty: it can, as far as its plan tells."""
    if plan.engine == "kubernetes":
        return "drills do not reach pods yet"
    if plan.engine != "local":
        return _explain_elsewhere(kind, plan.engine.capitalize())
    is_isolated = bool(plan.compute.get("isolation"))
    if kind == "clock":
        return "its nodes share the clock of this machine, and Linux has no other for a part of its processes"
    if KINDS[kind].is_network and not is_isolated:
        return "its nodes share the network of this machine; isolated nodes have their own"
    if kind in _LIMITING_NODES and not is_isolated:
        return "its nodes share the processors and the memory of this machine; isolated nodes have limits"
    if kind in _STOPPING_RANKS and plan.container:
        return "its ranks run in containers, whose processes only the container engine may stop"
    return ""


def _explain_elsewhere(kind: str, owner: str) -> str:
    if kind == "clock":
        return "the clocks of its nodes are not Drumline's to set"
    if kind == "wedge-agent":
        return f"the agents of its nodes are {owner}'s to stop, and to let go on"
    if KINDS[kind].is_network:
        return f"the network of its nodes is {owner}'s, and other jobs use it"
    if kind in _CHANGING_MACHINES:
        return f"its nodes are {owner}'s, and other jobs use them"
    return ""


def explain_target(
    kind: str, plan: Plan, node: int | None, rank: int | None, settings: Mapping[str, Any] | None = None
) -> str:
    """Return why a drill cannot be about that node or that rank; empty: it can."""
    ranks = {task.rank for task in plan.ranks}
    if rank is not None and KINDS[kind].aims_at != "rank":
        return f"it is about a node, not about rank {rank}"
    if rank is not None and rank not in ranks:
        return f"the job has no rank {rank}"
    if node is not None and not 0 <= node < len(plan.nodes):
        return f"the job has no node {node}"
    if node is not None and rank is not None and rank not in {task.rank for task in plan.nodes[node].ranks}:
        return f"rank {rank} is not on node {node}"
    is_whole = kind == "preempt" or bool((settings or {}).get("between"))
    if node is None and rank is None and not is_whole and len(plan.nodes) > 1:
        return "it needs a node"
    return ""
