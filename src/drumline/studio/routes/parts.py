"""The steps of a pipeline, the trials of a sweep, and the reports that jobs were run for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.facts import charts
from drumline.control.rehearsal.rehearse import list_tables, read_table
from drumline.control.scaling.values import list_scalings, read_report
from drumline.studio.queries import of_job

if TYPE_CHECKING:
    from starlette.requests import Request


def show_reports(_request: Request) -> dict[str, Any]:
    return {"scaling": list_scalings(), "rehearsals": list_tables()}


ROUTES = [
    Route("/jobs/{name}/graph", of_job(charts.describe_graph)),
    Route("/jobs/{name}/trials", of_job(charts.describe_trials)),
    Route("/jobs/{name}/scale", of_job(read_report)),
    Route("/jobs/{name}/rehearsal", of_job(read_table)),
    Route("/reports", show_reports),
]
