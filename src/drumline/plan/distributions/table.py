"""Which distribution has which layout; a new one is a file and a line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError

if TYPE_CHECKING:
    from drumline.plan.layout import Layout, Request

LAYOUTS = {
    "plain": "drumline.plan.distributions.plain",
    "pytorch": "drumline.plan.distributions.pytorch",
    "tensorflow": "drumline.plan.distributions.tensorflow",
}

NOT_YET = {
    "mpi": "scripts that read RANK and WORLD_SIZE run with type: pytorch",
    "ray": "a script that starts Ray by itself runs without a distribution",
}


def lay_out(distribution: str, request: Request) -> Layout:
    """Raises PlanError for a distribution that this version does not run."""
    if distribution in NOT_YET:
        raise PlanError(f"distribution.type: {distribution!r} is not supported yet", NOT_YET[distribution])
    layout: Layout = import_module(LAYOUTS[distribution]).lay_out(request)
    return layout
