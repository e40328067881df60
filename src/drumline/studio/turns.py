"""Handlers in threads, and actions in threads of their own, a few at once."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

_MOST_AT_ONCE = 2


def in_turns(handler: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Any]]:
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
