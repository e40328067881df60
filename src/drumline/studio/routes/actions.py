"""What can be done to jobs: submit, cancel, preempt, archive, restore, rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.contract.errors import DrumlineError, UsageError
from drumline.control.jobs import listing
from drumline.control.jobs.ending import cancel, preempt
from drumline.control.submission.rerun import prepare_rerun
from drumline.control.submission.submit import submit, submit_text
from drumline.studio.answers import to_json
from drumline.studio.queries import body, check_is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from drumline.control.submission.submit import Submitted

_MOST_YAML = 1 << 20


def submit_job(request: Request) -> Response:
    given = body(request)
    text = given.text("yaml", most=_MOST_YAML)
    if not text.strip():
        raise UsageError("yaml: the job file is missing")
    changes = given.mapping("set")
    return _answer_submitted(request, submit_text(text, changes, given.text("folder")))


def rerun_job(request: Request) -> Response:
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


def archive_job(request: Request) -> dict[str, Any]:
    return _set_archived(request, archived=True)


def restore_job(request: Request) -> dict[str, Any]:
    return _set_archived(request, archived=False)


def _set_archived(request: Request, *, archived: bool) -> dict[str, Any]:
    name = request.path_params["name"]
    (listing.archive if archived else listing.restore)(name)
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
    return _do_to_each(request, listing.archive if archived else listing.restore)


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
    Route("/jobs", submit_job, methods=["POST"]),
    Route("/jobs/cancel", cancel_jobs, methods=["POST"]),
    Route("/jobs/archive", archive_jobs, methods=["POST"]),
    Route("/jobs/{name}/cancel", cancel_job, methods=["POST"]),
    Route("/jobs/{name}/preempt", preempt_job, methods=["POST"]),
    Route("/jobs/{name}/archive", archive_job, methods=["POST"]),
    Route("/jobs/{name}/restore", restore_job, methods=["POST"]),
    Route("/jobs/{name}/rerun", rerun_job, methods=["POST"]),
]
