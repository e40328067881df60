"""The application: the routes of each noun below ``/api/v1``, the page, and the guard before all of them."""

from __future__ import annotations

import asyncio
import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Match, Route

from drumline.contract.errors import NotFoundError
from drumline.studio.answers import to_json
from drumline.studio.handlers import wrap
from drumline.studio.live_streams import Live
from drumline.studio.pages import Pages, refuse
from drumline.studio.routes.machine import show_metrics
from drumline.studio.security import API, METRICS, Guard
from drumline.studio.tables import Tables, fill, return_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Scope

    from drumline.studio.security import Refusal, StudioSettings, Tokens

NOUNS = ("jobs", "job", "logs", "machine")
"""The modules of ``routes/``; each has its ROUTES."""

_MOST_THREADS = 8
_ALL_OTHERS = "/{path:path}"


def make_app(settings: StudioSettings, tokens: Tokens) -> ASGIApp:
    """Return the guarded application."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        from anyio.to_thread import current_default_thread_limiter

        current_default_thread_limiter().total_tokens = _MOST_THREADS
        tasks = [asyncio.create_task(return_memory()), asyncio.create_task(fill(tables))]
        yield
        for task in tasks:
            task.cancel()

    app = Starlette(routes=list_routes(settings, tokens), lifespan=lifespan)
    app.state.settings = settings
    app.state.tables = tables = Tables()
    app.state.live = Live(tables)

    def refuse_with_methods(scope: Scope, refusal: Refusal) -> Response:
        answer = refuse(scope, refusal)
        if refusal.status == 405:
            answer.headers["allow"] = list_methods(app.routes, scope["path"])
        return answer

    return Guard(app, settings, tokens, refuse_with_methods)


def list_routes(settings: StudioSettings, tokens: Tokens) -> list[Route]:
    routes = [
        Route(API + route.path, wrap(route.endpoint, settings), methods=route.methods, name=route.name)
        for noun in NOUNS
        for route in load_noun(noun)
    ]
    pages = Pages(settings, tokens)
    return [
        *routes,
        Route("/api" + _ALL_OTHERS, wrap(_refuse_path, settings), methods=["GET", "POST"]),
        Route(METRICS, wrap(show_metrics, settings)),
        Route("/static/{hash}/{path:path}", wrap(pages.send_file, settings)),
        Route("/login", wrap(pages.log_in, settings), methods=["GET", "POST"]),
        Route(_ALL_OTHERS, wrap(pages.show, settings)),
    ]


def list_methods(routes: Sequence[BaseRoute], path: str) -> str:
    """Return the methods of a path as ``Allow`` has them: those of whatever takes it, or of what takes all others."""
    known = [
        route
        for route in routes
        if isinstance(route, Route)
        and route.matches({"type": "http", "path": path, "method": ""})[0] != Match.NONE
    ]
    named = [route for route in known if not route.path.endswith(_ALL_OTHERS)]
    return ", ".join(sorted(set().union(*(route.methods or () for route in named or known[:1]))))


def load_noun(noun: str) -> list[Route]:
    found: Any = import_module(f"drumline.studio.routes.{noun}").ROUTES
    return list(found)


def _refuse_path(request: Request) -> Response:
    methods = list_methods(request.app.routes, request.url.path)
    if request.method not in methods.split(", "):
        error = {
            "message": f"there is no {request.method} of {request.url.path[:200]}",
            "hint": f"there is {methods}",
        }
        answer = to_json({"error": error}, 405)
        answer.headers["allow"] = methods
        return answer
    raise NotFoundError(f"there is no {request.url.path[:200]}", f"{API}/openapi.json lists what there is")
