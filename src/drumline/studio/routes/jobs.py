"""Lists of jobs, and what can be done to jobs: submit, cancel, preempt, archive, restore, rerun."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import DrumlineError, UsageError
from drumline.control.facts import jobs
from drumline.control.facts.job_table import find_page
from drumline.control.jobs import job_folders
from drumline.control.jobs.ending import cancel, preempt
from drumline.control.times import parse_moment
from drumline.studio.answers import to_json
from drumline.studio.queries import body, check_is_ours, query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from drumline.control.submission.submit import Submitted
    from drumline.studio.queries import Reader


_ARCHIVED = {"": False, "0": False, "1": True, "all": None}
_ALL = "*"


def list_jobs(request: Request) -> dict[str, Any]:
    wanted = query(request)
    figures = request.app.state.tables.here()
    table = figures.table
    offset, limit = wanted.number("offset", 0, 0), wanted.number("limit", 100, 0, 1000)
    page = find_page(table, _read_filters(wanted), wanted.text("sort") or "-created", offset, limit)
    return {
        "sentence": page.sentence,
        "total": page.total,
        "matched": page.matched,
        "counts": page.counts,
        "pending": table.waiting_count,
        "jobs": figures.describe(page.jobs, sparks=wanted.flag("spark")),
    }


def _read_filters(wanted: Reader) -> jobs.JobFilters:
    since, parent = wanted.text("since"), wanted.text("parent")
    return jobs.JobFilters(
        statuses=jobs.parse_statuses(wanted.words("status"), "status"),
        experiment=wanted.text("experiment"),
        compute=wanted.text("compute"),
        since=parse_moment(since, "since") if since else None,
        tags=jobs.parse_tags(wanted.words("tag")),
        text=wanted.text("q").strip().lower(),
        kinds=frozenset(wanted.words("type")),
        archived=_ARCHIVED[wanted.choice("archived", "0", tuple(_ARCHIVED))],
        parent=None if parent == _ALL else parent,
    )


# What can be done to jobs: submit, cancel, preempt, archive, restore, rerun.


_MOST_YAML = 1 << 20


def submit_job(request: Request) -> Response:
    from drumline.control.submission.submit import submit_text

    given = body(request)
    text = given.text("yaml", most=_MOST_YAML)
    if not text.strip():
        raise UsageError("yaml: the job file is missing")
    changes = given.mapping("set")
    return _answer_submitted(request, submit_text(text, changes, given.text("folder")))


def rerun_job(request: Request) -> Response:
    from drumline.control.submission.rerun import prepare_rerun
    from drumline.control.submission.submit import submit

    given = body(request)
    changes = given.mapping("set")
    again = prepare_rerun(
        request.path_params["name"],
        [{path: value} for path, value in changes.items()],
        compute=given.text("compute") or None,
        code=given.text("code") or None,
        new_name=given.text("new_name") or None,
    )
    return _answer_submitted(request, submit(again.job, again.run), again.notes)


def _answer_submitted(request: Request, submitted: Submitted, notes: Iterable[str] = ()) -> Response:
    _look_again(request, [submitted.name])
    return to_json({"name": submitted.name, "warnings": [*notes, *submitted.warnings]}, 201)


def cancel_job(request: Request) -> dict[str, Any]:
    name = request.path_params["name"]
    requested = cancel(name, at_once=body(request).flag("at_once"))
    _look_again(request, [name])
    return {"name": name, "requested": requested}


def preempt_job(request: Request) -> dict[str, Any]:
    name = request.path_params["name"]
    attempt = preempt(name, body(request).number("node"))
    _look_again(request, [name])
    return {"name": name, "attempt": attempt}


def set_archived(request: Request, *, archived: bool) -> dict[str, Any]:
    name = request.path_params["name"]
    job_folders.set_archived(name, archived=archived)
    _look_again(request, [name])
    return {"name": name, "archived": archived}


def cancel_jobs(request: Request) -> dict[str, Any]:
    at_once = body(request).flag("at_once")

    def end(name: str) -> None:
        if not cancel(name, at_once=at_once):
            raise UsageError(f"job {name} has ended already")

    return _do_to_each(request, end)


def archive_jobs(request: Request) -> dict[str, Any]:
    archived = body(request).flag("archived", default=True)
    return _do_to_each(request, partial(job_folders.set_archived, archived=archived))


def _do_to_each(request: Request, action: Callable[[str], object]) -> dict[str, Any]:
    """Do it to as many of the jobs as possible, and return which were done and why others were not."""
    names = list(dict.fromkeys(body(request).words("names")))
    if not names:
        raise UsageError("names: no job is named")
    done, failed = [], []
    for name in names:
        try:
            check_is_ours(name)
            action(name)
            done.append(name)
        except (DrumlineError, OSError) as error:
            failed.append({"name": name, "message": getattr(error, "message", str(error))})
    _look_again(request, done)
    return {"done": done, "failed": failed}


def _look_again(request: Request, names: list[str]) -> None:
    request.app.state.tables.here().table.touch(names)


ROUTES = [
    Route("/jobs", list_jobs),
    Route("/jobs", submit_job, methods=["POST"]),
    Route("/jobs/cancel", cancel_jobs, methods=["POST"]),
    Route("/jobs/archive", archive_jobs, methods=["POST"]),
    Route("/jobs/{name}/cancel", cancel_job, methods=["POST"]),
    Route("/jobs/{name}/preempt", preempt_job, methods=["POST"]),
    Route("/jobs/{name}/archive", partial(set_archived, archived=True), methods=["POST"]),
    Route("/jobs/{name}/restore", partial(set_archived, archived=False), methods=["POST"]),
    Route("/jobs/{name}/rerun", rerun_job, methods=["POST"]),
]
