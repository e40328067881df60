"""The application: requests of Microsoft's client, their tokens, and errors in the shape of ARM."""

from __future__ import annotations

import hmac
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from drumline.azure import explain_lack
from drumline.contract import folder as homes
from drumline.contract.errors import (
    DAMAGED,
    DrumlineError,
    EngineError,
    NotFoundError,
    SpecError,
    UsageError,
    describe_os_error,
)
from drumline.rest import arm, endpoint
from drumline.rest.blob_access import welcome
from drumline.rest.routes import asset_routes, job_routes, run_history, schedule_routes, workspace_routes
from drumline.studio.answers import BodyError
from drumline.studio.handlers import BODY_S, read_body
from drumline.studio.security import LOOPBACK_NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import Receive, Scope, Send

_MOST_BODY_BYTES = 8 << 20
_MOST_SHOWN = 200
_STATUSES = (
    (NotFoundError, 404, "UserError"),
    (UsageError, 400, "UserError"),
    (SpecError, 400, "UserError"),
    (BodyError, 408, "UserError"),
    (EngineError, 503, "ServiceUnavailable"),
    (DrumlineError, 409, "Conflict"),
)
"""Of errors, the first that fits."""

_ROUTES = {
    "": (*job_routes.ROUTES, *asset_routes.ROUTES, *schedule_routes.ROUTES, *workspace_routes.ROUTES),
    "/history": run_history.ROUTES,
    "/data": run_history.DATA_ROUTES,
    "/mlflow": workspace_routes.MLFLOW_ROUTES,
}
"""Method, path behind the scope and handler, by the service before the scope."""


_PUBLIC = ("/msi/token", "/discovery")
"""What asks for no token: the way to one, and addresses that the client asks for without one."""


class RestService:
    """
    The application of one server.

    address: ``https://127.0.0.1:7979``. files: routes that check the signature in their address themselves.
    """

    def __init__(self, key: bytes, address: str, files: Sequence[Route] = ()) -> None:
        self._key = key
        self._address = address
        self._routes = [
            Route(service + path, self._answer_call(handler), methods=[method])
            for service, routes in _ROUTES.items()
            for method, path, handler in routes
        ]
        self._outside = [
            Route("/msi/token", self._give_token),
            *(
                Route(path, self._answer_call(handler), methods=["GET"])
                for path, handler in workspace_routes.OUTSIDE
            ),
            *files,
        ]
        self._public = [route for route in self._outside if route in files or route.path in _PUBLIC]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._find(scope)
        await answer(scope, receive, send)

    def _find(self, scope: Scope) -> Any:
        """Return the application of a request: a route of ours, or an answer that refuses it."""
        request = Request(scope)
        name = request.headers.get("host", "").lower().rpartition(":")[0]
        if name not in LOOPBACK_NAMES:
            return _refuse(403, "Forbidden", "this server is not reached under that name")
        split = arm.split_path(scope["path"])
        if split is None:
            scope.setdefault("arm", arm.Scope("local", "local", ""))
            chosen, scope = _choose(self._outside, scope)
        else:
            service, scope["arm"], rest = split
            inside = {**scope, "path": service + (rest or "/"), "root_path": ""}
            chosen, scope = _choose(self._routes, inside)
        is_checked_there = chosen in self._public
        if not is_checked_there and not self._is_known(request):
            hint = 'eval "$(drumline azure env)", or drumline azure run -- COMMAND'
            return _refuse(401, "Unauthorized", f"the request has no token of this server; {hint}")
        if chosen is None:
            path = request.url.path[:_MOST_SHOWN]
            print(f"501: {request.method[:20]} {path!r}", file=sys.stderr)
            words = rest.split("/") if split else []
            reason = next(
                filter(None, map(explain_lack, (*words[1:2], f"begin{words[-1]}" if words else ""))), ""
            )
            return _refuse(
                501, "NotImplemented", reason or f"Drumline has no {request.method[:20]} of {path}"
            )
        if not is_checked_there:
            welcome(scope)
        return lambda _, receive, send: chosen.handle(scope, receive, send)

    def _is_known(self, request: Request) -> bool:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and endpoint.is_token(self._key, token.strip())

    async def _give_token(self, request: Request) -> Response:
        """Reply as the identity of a machine of Azure does."""
        shown = request.headers.get("x-identity-header") or request.headers.get("secret") or ""
        if not hmac.compare_digest(shown.encode(), endpoint.make_secret(self._key).encode()):
            return _refuse(401, "Unauthorized", "the value of IDENTITY_HEADER is another server's")
        welcome(request.scope)
        audience = request.query_params.get("resource") or "https://management.azure.com"
        token, until = endpoint.make_token(self._key, audience)
        return JSONResponse(
            {"access_token": token, "expires_on": str(until), "resource": audience, "token_type": "Bearer"}
        )

    def _answer_call(self, handler: Callable[[arm.Call], Any]) -> Callable[[Request], Awaitable[Response]]:
        """Make an endpoint of a handler, which runs in a thread and in the workspace of the request."""

        async def respond(request: Request) -> Response:
            try:
                call = arm.Call(
                    scope=request.scope["arm"],
                    address=self._address,
                    path={**request.path_params, "rest": request.url.path},
                    query=dict(request.query_params),
                    body={},
                    key=self._key,
                )
                reads = request.method not in ("GET", "HEAD", "DELETE")
                data = await read_body(request, _MOST_BODY_BYTES, BODY_S) if reads else b""
                return await run_in_threadpool(_call, handler, call, data)
            except ClientDisconnect:
                return Response(status_code=400)  # Nobody is there to read it.
            except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
                return _describe(error, request)

        return respond


def _call(handler: Callable[[arm.Call], Any], call: arm.Call, data: bytes) -> Response:
    """Answer in a thread: a large body takes a while to be read as JSON."""
    call = call._replace(body=_parse(data))
    with homes.workspace(arm.choose_workspace(call.scope.workspace)):
        found = handler(call)
    if isinstance(found, Response):
        return found
    answer = found if isinstance(found, arm.Reply) else arm.Reply(found)
    return JSONResponse(answer.content, answer.status, dict(answer.headers))


def _choose(routes: Sequence[Route], scope: Scope) -> tuple[Route | None, Scope]:
    """Return the route of a request, with the scope that it handles; None: there is none."""
    for route in routes:
        fit, child = route.matches(scope)
        if fit == Match.FULL:
            return route, {**scope, **child}
    return None, scope


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError("the body is not JSON") from error
    if not isinstance(found, (dict, list)):
        raise UsageError("the body must be a JSON object")
    return found if isinstance(found, dict) else {"items": found}


def _describe(error: Exception, request: Request) -> Response:
    """Return the answer of an error."""
    if isinstance(error, DrumlineError):
        status, code = next((status, code) for kind, status, code in _STATUSES if isinstance(error, kind))
        if isinstance(error, SpecError):
            # Without the lines of the file, which is a body, and may have a secret.
            problems = (f"{one.what} ({one.hint})" if one.hint else one.what for one in error.problems)
            message = "; ".join(problems) or error.message
        else:
            message = f"{error.message} ({error.hint})" if error.hint else error.message
        status = error.status if isinstance(error, BodyError) else status
        return _refuse(status, code, message)
    if isinstance(error, OSError):
        return _refuse(503, "ServiceUnavailable", describe_os_error(error))
    # Not its words, which may have a secret.
    kind, frame = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    print(f"error: {request.method} {request.url.path[:_MOST_SHOWN]!r}: {kind} at {place}", file=sys.stderr)
    if isinstance(error, DAMAGED) and not isinstance(error, UnicodeError):
        return _refuse(409, "Conflict", f"a file that is needed may be damaged ({kind} at {place})")
    return _refuse(500, "InternalError", f"internal error: {type(error).__name__}; see the server's output")


def _refuse(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status)
