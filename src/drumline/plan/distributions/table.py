"""The layout of each distribution; a new one is a file and a line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError

if TYPE_CHECKING:
    from drumline.plan.layout import Layout, Request

LAUNCHED_BY_COMMAND = ("mpi", "plain", "pytorch")
"""The distributions in which the command may be a launcher itself."""

LAYOUTS = {
    "mpi": "drumline.plan.distributions.mpi",
    "parallel": "drumline.plan.distributions.parallel",
    "once": "drumline.plan.distributions.once",
    "plain": "drumline.plan.distributions.plain",
    "pytorch": "drumline.plan.distributions.pytorch",
    "ray": "drumline.plan.distributions.ray",
    "tensorflow": "drumline.plan.distributions.tensorflow",
}


def lay_out(distribution: str, request: Request) -> Layout:
    """Lay out the processes of a job. Raises PlanError for what the distribution refuses."""
    if request.once:
        if distribution not in LAUNCHED_BY_COMMAND:
            raise PlanError(
                f"drumline.once: with distribution {distribution!r} every process is started here",
                "leave it out, or use type: pytorch or mpi",
                path="drumline.once",
            )
        distribution = "once"
    layout: Layout = import_module(LAYOUTS[distribution]).lay_out(request)
    return layout
