"""One job: its head, events and plan, its ranks, start and metrics, its parts, and its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.hiding import hide_in
from drumline.control.access import job_files, stack_groups
from drumline.control.comparing import compare_jobs
from drumline.control.facts import changes, charts, history, job, ranks, start
from drumline.control.jobs.lookup import folder_of
from drumline.control.measure.rehearsal import list_tables, read_table
from drumline.control.measure.scale_values import list_scalings, read_report
from drumline.studio.answers import attachment, encode
from drumline.studio.queries import MOST_OFFSET, of_job, query

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response


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


def _of_attempt(describe: Callable[[str, int | None], object]) -> Callable[[Request], object]:
    """Make a handler of a function that answers about one attempt of a job, by default the latest."""
    return lambda request: describe(request.path_params["name"], query(request).number("attempt", None, 0))


def download_trace(request: Request) -> Response:
    name = request.path_params["name"]
    trace = start.make_trace(name, query(request).number("attempt", None, 0))
    return attachment(encode(trace), f"{name}-start.json", "application/json")


def read_system(request: Request) -> history.SystemHistory:
    asked = query(request)
    return history.read_system(
        request.path_params["name"],
        asked.choice("measure", "cpu", list(history.MEASURES)),
        asked.number("points", 300, 1, history.MOST_BINS),
        asked.number("attempt", None, 0),
    )


# metrics, of one job or several


def list_metrics(request: Request) -> charts.LoggedMetrics:
    return charts.list_metrics(request.path_params["name"], names_only=query(request).flag("brief"))


def read_series(request: Request) -> charts.Curves:
    asked = query(request)
    return charts.read_series(
        asked.jobs("jobs", charts.MOST_JOBS),
        asked.words("metrics"),
        points=asked.number("points", 800, 1, charts.MOST_POINTS),
        axis=asked.choice("x", "step", charts.AXES),
        band=asked.flag("band"),
        with_marks=asked.flag("marks"),
    )


def compare_two(request: Request) -> dict[str, Any]:
    asked = query(request)
    names = [*asked.jobs("a", 1), *asked.jobs("b", 1)]
    if len(names) != 2:
        raise UsageError("a and b must be two jobs", "/diff?a=NAME&b=NAME")
    return compare_jobs(*names)


def show_reports(_request: Request) -> dict[str, Any]:
    return {"scaling": list_scalings(), "rehearsals": list_tables()}


# files


_CHUNK = 1 << 18
_LONGEST_PATH = 4096


def look_at_code(request: Request) -> job_files.FilesAt:
    path = query(request).text("path", "", _LONGEST_PATH)
    return job_files.look_at(request.path_params["name"], job_files.CODE, path)


def look_at_files(request: Request) -> job_files.FilesAt:
    asked = query(request)
    area = asked.choice("area", "outputs", job_files.AREAS)
    return job_files.look_at(request.path_params["name"], area, asked.text("path", "", _LONGEST_PATH))


def download_file(request: Request) -> Response:
    asked = query(request)
    area, path = asked.choice("area", "outputs", job_files.AREAS), asked.text("path", "", _LONGEST_PATH)
    with job_files.open_file(request.path_params["name"], area, path) as descriptor:
        file = open(os.dup(descriptor), "rb")  # noqa: SIM115 - closed with the answer
    return attachment(iter(lambda: file.read(_CHUNK), b""), os.path.basename(path))


ROUTES = [
    Route("/jobs/{name}", of_job(job.describe_job)),
    Route("/jobs/{name}/events", list_events),
    Route("/jobs/{name}/spec", of_job(job.show_spec)),
    Route("/jobs/{name}/plan", show_plan),
    Route("/jobs/{name}/ranks", _of_attempt(ranks.describe_ranks)),
    Route("/jobs/{name}/steps", _of_attempt(history.describe_attempt_steps)),
    Route("/jobs/{name}/environment", of_job(ranks.describe_variables)),
    Route("/jobs/{name}/stacks", of_job(stack_groups.group_stacks), methods=["POST"]),
    Route("/jobs/{name}/timeline", _of_attempt(start.describe_timeline)),
    Route("/jobs/{name}/timeline/trace", download_trace),
    Route("/jobs/{name}/marks", of_job(history.describe_marks)),
    Route("/jobs/{name}/system", read_system),
    Route("/jobs/{name}/metrics", list_metrics),
    Route("/series", read_series),
    Route("/diff", compare_two),
    Route("/jobs/{name}/graph", of_job(charts.describe_graph)),
    Route("/jobs/{name}/trials", of_job(charts.describe_trials)),
    Route("/jobs/{name}/scale", of_job(read_report)),
    Route("/jobs/{name}/rehearsal", of_job(read_table)),
    Route("/reports", show_reports),
    Route("/jobs/{name}/code", look_at_code),
    Route("/jobs/{name}/files", look_at_files),
    Route("/jobs/{name}/files/content", download_file),
]
