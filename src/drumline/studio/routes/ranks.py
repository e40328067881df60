"""The ranks of a job: what became of each, where they are, their steps, and with which variables they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.facts import ranks, stacks
from drumline.studio.queries import of_job, query

if TYPE_CHECKING:
    from starlette.requests import Request


def list_ranks(request: Request) -> dict[str, Any]:
    return ranks.describe_ranks(request.path_params["name"], query(request).number("attempt", None, 0))


def show_steps(request: Request) -> dict[str, Any]:
    from drumline.control.facts.history import describe_attempt_steps

    return describe_attempt_steps(request.path_params["name"], query(request).number("attempt", None, 0))


ROUTES = [
    Route("/jobs/{name}/ranks", list_ranks),
    Route("/jobs/{name}/steps", show_steps),
    Route("/jobs/{name}/environment", of_job(ranks.describe_variables)),
    Route("/jobs/{name}/stacks", of_job(stacks.group_stacks), methods=["POST"]),
]
