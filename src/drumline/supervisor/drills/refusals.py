"""The drills that a job cannot have, each with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.drills import KINDS

if TYPE_CHECKING:
    from drumline.contract.plan import Plan

_STOPPING_RANKS = ("kill-rank", "wedge")
_CHANGING_MACHINES = ("slow-cpu", "memory", "fill-disk")


def explain_refusal(kind: str, plan: Plan) -> str:
    """Return why that job cannot have a drill of a kind; empty: it can, as far as its plan tells."""
    is_here = plan.engine == "local"
    if kind == "clock":
        if not is_here:
            return "the clocks of its nodes are not Drumline's to set"
        return "its nodes share the clock of this machine, and Linux has no other for a part of its processes"
    if KINDS[kind].is_network:
        if not is_here:
            return f"the network of its nodes is {plan.engine.capitalize()}'s, and other jobs use it"
        return "its nodes share the network of this machine"
    if kind in _CHANGING_MACHINES and not is_here:
        return f"its nodes are {plan.engine.capitalize()}'s, and other jobs use them"
    if kind in ("slow-cpu", "memory"):
        return "its nodes share the processors and the memory of this machine"
    if kind in _STOPPING_RANKS and plan.container:
        return "its ranks run in containers, whose processes only the container engine may stop"
    return ""


def explain_target(kind: str, plan: Plan, node: int | None, rank: int | None) -> str:
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
    if node is None and rank is None and kind != "preempt" and len(plan.nodes) > 1:
        return "it needs a node"
    return ""
