"""What is new, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from drumline.contract import folder as homes
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_MOST_JOBS = 16


async def open_stream(request: Request) -> Response:
    wanted = query(request)
    jobs = await run_in_threadpool(lambda: wanted.jobs("jobs", _MOST_JOBS))
    cursor = request.headers.get("last-event-id") or wanted.text("cursor")
    answer: Response = await request.app.state.live.open(homes.current_workspace(), jobs, cursor)
    return answer


ROUTES = [Route("/stream", open_stream)]
