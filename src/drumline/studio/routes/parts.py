"""The steps of a pipeline, the trials of a sweep, and the report for which a job was measured at several sizes."""

from __future__ import annotations

from starlette.routing import Route

from drumline.control.observing.charts import graph
from drumline.control.scaling import keeping
from drumline.studio.queries import of_job

ROUTES = [
    Route("/jobs/{name}/graph", of_job(graph.describe_graph)),
    Route("/jobs/{name}/trials", of_job(graph.describe_trials)),
    Route("/jobs/{name}/scale", of_job(keeping.read_report)),
]
