"""The steps of a pipeline and the trials of a sweep."""

from __future__ import annotations

from starlette.routing import Route

from drumline.control.observing.charts import graph
from drumline.studio.queries import of_job

ROUTES = [
    Route("/jobs/{name}/graph", of_job(graph.describe_graph)),
    Route("/jobs/{name}/trials", of_job(graph.describe_trials)),
]
