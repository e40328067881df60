"""One job: its head, events, file, plan, ranks, parts, reports, and how it went over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import NotFoundError
from drumline.contract.hiding import hide_in
from drumline.control.facts import changes, charts, history, job, ranks, stacks, start
from drumline.control.jobs.lookup import folder_of
from drumline.control.measure.rehearsal import list_tables, read_table
from drumline.control.measure.scale_values import list_scalings, read_report
from drumline.studio.answers import attachment, encode
from drumline.studio.queries import MOST_OFFSET, of_job, query

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response


def _of_attempt(describe: Callable[[str, int | None], dict[str, Any]]) -> Callable[[Request], dict[str, Any]]:
    """Make a handler of a function that answers about one attempt of a job, by default the latest."""
    return lambda request: describe(request.path_params["name"], query(request).number("attempt", None, 0))


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


def download_trace(request: Request) -> Response:
    name = request.path_params["name"]
    trace = start.make_trace(name, query(request).number("attempt", None, 0))
    return attachment(encode(trace), f"{name}-start.json", "application/json")


def read_system(request: Request) -> dict[str, Any]:
    asked = query(request)
    return history.read_system(
        request.path_params["name"],
        asked.choice("measure", "cpu", list(history.MEASURES)),
        asked.number("points", 300, 1, history.MOST_BINS),
        asked.number("attempt", None, 0),
    )


def show_reports(_request: Request) -> dict[str, Any]:
    return {"scaling": list_scalings(), "rehearsals": list_tables()}


ROUTES = [
    Route("/jobs/{name}", of_job(job.describe_job)),
    Route("/jobs/{name}/events", list_events),
    Route("/jobs/{name}/spec", of_job(job.show_spec)),
    Route("/jobs/{name}/plan", show_plan),
    Route("/jobs/{name}/ranks", _of_attempt(ranks.describe_ranks)),
    Route("/jobs/{name}/steps", _of_attempt(history.describe_attempt_steps)),
    Route("/jobs/{name}/environment", of_job(ranks.describe_variables)),
    Route("/jobs/{name}/stacks", of_job(stacks.group_stacks), methods=["POST"]),
    Route("/jobs/{name}/graph", of_job(charts.describe_graph)),
    Route("/jobs/{name}/trials", of_job(charts.describe_trials)),
    Route("/jobs/{name}/scale", of_job(read_report)),
    Route("/jobs/{name}/rehearsal", of_job(read_table)),
    Route("/jobs/{name}/timeline", _of_attempt(start.describe_timeline)),
    Route("/jobs/{name}/timeline/trace", download_trace),
    Route("/jobs/{name}/marks", of_job(history.describe_marks)),
    Route("/jobs/{name}/system", read_system),
    Route("/reports", show_reports),
]
