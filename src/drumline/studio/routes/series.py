"""Metrics, of one job or several, as curves of as many points as are drawn; and how two jobs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import UsageError
from drumline.control.comparing import compare_jobs
from drumline.control.facts import charts
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request


def list_metrics(request: Request) -> dict[str, Any]:
    return charts.list_metrics(request.path_params["name"], names_only=query(request).flag("brief"))


def read_series(request: Request) -> dict[str, Any]:
    asked = query(request)
    return charts.read_series(
        asked.jobs("jobs", charts.MOST_JOBS),
        asked.words("metrics"),
        points=asked.number("points", 800, 1, charts.MOST_POINTS),
        axis=asked.choice("x", "step", charts.AXES),
        band=asked.flag("band"),
        with_marks=asked.flag("marks"),
    )


def compare(request: Request) -> dict[str, Any]:
    asked = query(request)
    names = [*asked.jobs("a", 1), *asked.jobs("b", 1)]
    if len(names) != 2:
        raise UsageError("a and b must be two jobs", "/diff?a=NAME&b=NAME")
    return compare_jobs(*names)


ROUTES = [
    Route("/jobs/{name}/metrics", list_metrics),
    Route("/series", read_series),
    Route("/diff", compare),
]
