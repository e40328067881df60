"""One job: the head of its page, its events, its file and its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import NotFoundError
from drumline.contract.hiding import hide_in
from drumline.control.facts import changes, job
from drumline.control.jobs.lookup import folder_of
from drumline.studio.queries import MOST_OFFSET, of_job, query

if TYPE_CHECKING:
    from starlette.requests import Request


def list_events(request: Request) -> dict[str, Any]:
    found, end = changes.read_events(
        folder_of(request.path_params["name"]), query(request).number("after", 0, 0, MOST_OFFSET)
    )
    return {"events": found, "next": end}


def show_plan(request: Request) -> dict[str, Any]:
    folder = folder_of(request.path_params["name"])
    plan = folder.read_json(folder.plan)
    if plan is None:
        raise NotFoundError(f"job {folder.name} has no plan of its own", f"drumline job show {folder.name}")
    return {"plan": hide_in(plan)}


ROUTES = [
    Route("/jobs/{name}", of_job(job.describe_job)),
    Route("/jobs/{name}/events", list_events),
    Route("/jobs/{name}/spec", of_job(job.show_spec)),
    Route("/jobs/{name}/plan", show_plan),
]
