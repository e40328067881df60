"""Lists of jobs, and the stream of what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from drumline.contract import folder as homes
from drumline.control.facts import jobs
from drumline.control.facts.table import find_page
from drumline.control.times import parse_moment
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from drumline.studio.queries import Reader

_ARCHIVED = {"": False, "0": False, "1": True, "all": None}
_ALL = "*"
_MOST_WATCHED = 16


def list_jobs(request: Request) -> dict[str, Any]:
    wanted = query(request)
    table, figures = request.app.state.tables.here()
    offset, limit = wanted.number("offset", 0, 0), wanted.number("limit", 100, 0, 1000)
    page = find_page(table, _read_filters(wanted), wanted.text("sort") or "-created", offset, limit)
    return {
        "sentence": page.sentence,
        "total": page.total,
        "matched": page.matched,
        "counts": page.counts,
        "pending": table.waiting_count,
        "jobs": figures.describe(table, page.jobs, sparks=wanted.flag("spark")),
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


async def open_stream(request: Request) -> Response:
    wanted = query(request)
    watched = await run_in_threadpool(lambda: wanted.jobs("jobs", _MOST_WATCHED))
    cursor = request.headers.get("last-event-id") or wanted.text("cursor")
    answer: Response = await request.app.state.live.open(homes.current_workspace(), watched, cursor)
    return answer


ROUTES = [Route("/jobs", list_jobs), Route("/stream", open_stream)]
