"""
A parallel job: on each node one manager (``node/parallel/manager.py``), which starts the workers of the node;
and the settings for the managers, which ``spec.jobs.parallel`` gave the job.

They are no ranks, because a mini-batch that takes too long ends its worker and not the job.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from drumline.plan.layout import Layout, Process, Request, log_name
from drumline.plan.request import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import NodeShape
    from drumline.spec.jobs.command import Command


def lay_out(request: Request) -> Layout:
    """Lay out workers. ``process_count_per_node`` is the number of workers on each node."""
    count = request.node_count
    return Layout(
        processes=tuple(
            Process(
                rank=node,
                node=node,
                local_rank=0,
                label=str(node),
                name=f"rank_{node}",
                log=log_name(node, count),
                env={"NODE_RANK": str(node)},
            )
            for node in range(count)
        ),
        # AZ_BATCH_MASTER_NODE has one in any job of several nodes.
        ports={"master_port": 0},
        coordinates=frozenset({"NODE_RANK", "DRUMLINE_PARALLEL"}),
        slots=request.process_count_per_node or 1,
        whole_nodes=True,
    )


SETTINGS = "DRUMLINE_PARALLEL"
_MANAGER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "node",
    "parallel",
    "manager.py",
)


def settings(job: Command) -> Mapping[str, Any]:
    """Return the settings of a parallel job; empty for another job."""
    return settings_of(job).get("parallel") or {}


def workers(job: Command, shapes: Sequence[NodeShape], *, share_machine: bool) -> int:
    """Return the workers of each node: those that the job asks for, else one a node with GPUs, else one a core."""
    said = settings(job).get("workers")
    if said is not None:
        return int(said)
    if any(shape.gpu_count for shape in shapes):
        return 1
    cores = min((shape.core_count for shape in shapes), default=1)
    return max(1, cores // (len(shapes) if share_machine else 1))


def variables(job: Command, folder: RunFolder, request: Request) -> dict[str, str]:
    """Return the variables that the manager reads. ``request``: with its number of workers."""
    if not settings(job):
        return {}
    from drumline.spec.jobs.parallel import PROGRAM

    told = {
        **settings(job),
        "folder": os.path.join(folder.path, "parallel"),
        "nodes": request.node_count,
        "workers": request.process_count_per_node,
    }
    return {SETTINGS: json.dumps(told), PROGRAM: _MANAGER}


def places(job: Command) -> list[str]:
    """Return what a container must have besides the job's data."""
    return [os.path.dirname(_MANAGER)] if settings(job) else []
