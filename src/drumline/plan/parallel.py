"""The settings for the managers of a parallel job, which ``spec.parallel_command`` gave the job."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from drumline.plan.request import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import NodeShape
    from drumline.plan.layout import Request
    from drumline.spec.jobs.command import Command

SETTINGS = "DRUMLINE_PARALLEL"
_MANAGER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "node", "parallel", "manager.py"
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
