"""The steps of a pipeline and the trials of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.observing.charts import graph

if TYPE_CHECKING:
    from starlette.requests import Request


def show_graph(request: Request) -> dict[str, Any]:
    return graph.describe_graph(request.path_params["name"])


def show_trials(request: Request) -> dict[str, Any]:
    return graph.describe_trials(request.path_params["name"])


ROUTES = [
    Route("/jobs/{name}/graph", show_graph),
    Route("/jobs/{name}/trials", show_trials),
]
