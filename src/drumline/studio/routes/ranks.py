"""The ranks of a job: what became of each, where they are, their steps, and with which variables they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.observing.ranks import rank_states, stack_groups, variables
from drumline.studio.queries import of_job, query

if TYPE_CHECKING:
    from starlette.requests import Request


def list_ranks(request: Request) -> dict[str, Any]:
    return rank_states.describe_ranks(request.path_params["name"], query(request).number("attempt", None, 0))


def show_steps(request: Request) -> dict[str, Any]:
    from drumline.control.observing.steps.attempt_steps import describe_attempt

    return describe_attempt(request.path_params["name"], query(request).number("attempt", None, 0))


ROUTES = [
    Route("/jobs/{name}/ranks", list_ranks),
    Route("/jobs/{name}/steps", show_steps),
    Route("/jobs/{name}/environment", of_job(variables.describe_variables)),
    Route("/jobs/{name}/stacks", of_job(stack_groups.group_stacks), methods=["POST"]),
]
