"""The ranks of a job: what became of each, where they are, and with which variables they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.observing.ranks import rank_states, stack_groups, variables
from drumline.studio.answers import query

if TYPE_CHECKING:
    from starlette.requests import Request


def list_ranks(request: Request) -> dict[str, Any]:
    return rank_states.describe_ranks(request.path_params["name"], query(request).number("attempt", None, 0))


def show_environment(request: Request) -> dict[str, Any]:
    return variables.describe_variables(request.path_params["name"])


def take_stacks(request: Request) -> dict[str, Any]:
    return stack_groups.group_stacks(request.path_params["name"])


ROUTES = [
    Route("/jobs/{name}/ranks", list_ranks),
    Route("/jobs/{name}/environment", show_environment),
    Route("/jobs/{name}/stacks", take_stacks, methods=["POST"]),
]
