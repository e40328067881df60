"""Handlers, which are plain functions: in threads, in turns, with the workspace chosen, and with errors as answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from drumline.contract import folder as homes
from drumline.contract.errors import DAMAGED, DrumlineError, NotFoundError, UsageError
from drumline.contract.words import format_seconds, format_size
from drumline.control.settings.studios import NO_WORKSPACE
from drumline.studio.answers import BodyError, describe_damage, describe_error, to_json
from drumline.studio.queries import check_is_ours
from drumline.studio.security import API, is_public, limit_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from drumline.studio.security import StudioSettings

    Handler = Callable[[Request], Any]

_MOST_AT_ONCE = 2

BODY_S = 60.0
"""In which a body has arrived."""

PUBLIC_BODY_S = 10.0
"""Likewise where anybody may send one."""


def wrap(handler: Handler, settings: StudioSettings) -> Callable[[Request], Awaitable[Response]]:
    """
    Make an endpoint of a handler, which is called with the request's workspace chosen, in a thread unless it is a
    coroutine, and returns an answer or what becomes JSON.
    """
    call = _in_turns(handler)

    async def respond(request: Request) -> Response:
        try:
            if request.method == "POST":
                request.state.body = await _read_json(request)
            with homes.workspace(choose_workspace(request, settings)):
                # anyio runs threads with a copy of this context.
                if "name" in request.path_params:
                    await run_in_threadpool(check_is_ours, request.path_params["name"])
                found = await call(request)
                return found if isinstance(found, Response) else await run_in_threadpool(to_json, found)
        except ClientDisconnect:
            return Response(status_code=400)  # Nobody is there to read it.
        except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
            status, told = describe_damage(error, request) or describe_error(error)
            if status == 500 or (isinstance(error, DAMAGED) and not isinstance(error, DrumlineError)):
                print(f"error: {request.method} {request.url.path!r}: {error!r}", file=sys.stderr)
            return to_json(told, status)

    return respond


def choose_workspace(request: Request, settings: StudioSettings) -> str:
    """Return the workspace that a request is for. Raises NotFoundError, UsageError."""
    # A page says itself what it cannot find.
    name = request.query_params.get("workspace") if request.url.path.startswith(API) else None
    if name is None:
        return settings.workspace
    name = "" if name == NO_WORKSPACE else name
    homes.check_workspace(name)
    if name and name not in homes.workspace_names():
        raise NotFoundError(f"there is no workspace {name!r}", "drumline workspace list")
    return name


async def _read_json(request: Request) -> dict[str, Any]:
    path = request.url.path
    limit_s = PUBLIC_BODY_S if is_public("POST", path) else BODY_S
    data = await read_body(request, limit_body("POST", path), limit_s)
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError("the body is not JSON") from error
    if not isinstance(found, dict):
        raise UsageError("the body must be a JSON object")
    return found


async def read_body(request: Request, most: int, limit_s: float) -> bytes:
    """Return a body of ``most`` bytes at most, which has arrived in time. Raises BodyError."""
    data = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise BodyError(413, f"the body is larger than {format_size(most)}")
    except TimeoutError:
        raise BodyError(408, f"the body has not arrived within {format_seconds(limit_s)}") from None
    return bytes(data)


def _in_turns(handler: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Any]]:
    """
    Make a coroutine of a handler, which runs in a thread unless it is one already.

    Of each action two go on at once, and not in the threads of those who look: a submission that copies much keeps
    nobody from looking, and nobody from canceling.
    """
    limiter: CapacityLimiter | None = None

    async def call(request: Request) -> Any:
        nonlocal limiter
        if inspect.iscoroutinefunction(handler):
            return await handler(request)
        if request.method != "POST":
            return await to_thread.run_sync(handler, request)
        limiter = limiter or CapacityLimiter(_MOST_AT_ONCE)
        return await to_thread.run_sync(handler, request, limiter=limiter)

    return call
