"""A job over time: how it started, as lanes and as a trace, and what its ranks used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.facts import history, start
from drumline.studio.answers import attachment, encode
from drumline.studio.queries import of_job, query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def show_timeline(request: Request) -> dict[str, Any]:
    return start.describe_timeline(request.path_params["name"], query(request).number("attempt", None, 0))


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


ROUTES = [
    Route("/jobs/{name}/timeline", show_timeline),
    Route("/jobs/{name}/timeline/trace", download_trace),
    Route("/jobs/{name}/marks", of_job(history.describe_marks)),
    Route("/jobs/{name}/system", read_system),
]
