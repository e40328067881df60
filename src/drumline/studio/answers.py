"""Answers to requests: parameters with limits, errors as JSON, and handlers as plain functions in threads."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response, StreamingResponse

from drumline.contract import folder as homes
from drumline.contract.errors import (
    DAMAGED,
    DrumlineError,
    EngineError,
    NotFoundError,
    SpecError,
    UsageError,
)
from drumline.control.jobs import lookup
from drumline.control.settings.studios import NO_WORKSPACE
from drumline.studio.security import MOST_BODY_BYTES, SANDBOX
from drumline.studio.settings import API
from drumline.studio.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from starlette.requests import Request

    from drumline.studio.settings import StudioSettings

_MOST_TEXT = 1000
_MOST_WORDS = 1000
MOST_OFFSET = 1 << 62
"""Of a place in a file."""

_DEEPEST = 64
"""Levels of an object in a body."""


class Reader(NamedTuple):
    """The values of a query or a body. Each method raises UsageError for what cannot be meant."""

    values: Mapping[str, Any]

    def text(self, name: str, default: str = "", most: int = _MOST_TEXT) -> str:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > most:
            raise UsageError(f"{name} must be a text of at most {most:,} characters")
        return value

    @overload
    def number(self, name: str, default: int, least: int | None = None, most: int | None = None) -> int: ...

    @overload
    def number(
        self, name: str, default: None = None, least: int | None = None, most: int | None = None
    ) -> int | None: ...

    def number(
        self, name: str, default: int | None = None, least: int | None = None, most: int | None = None
    ) -> int | None:
        """Return a whole number; the default where it is missing or empty."""
        value = self.values.get(name)
        if value is None or value == "":
            return default
        try:
            number = int(value) if isinstance(value, str) and len(value) < 20 else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError(f"{name} must be a whole number")
        if (least is not None and number < least) or (most is not None and number > most):
            limits = (
                f"at least {least}"
                if most is None
                else f"at most {most}"
                if least is None
                else f"{least} to {most}"
            )
            raise UsageError(f"{name} must be {limits}; got {number}")
        return number

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name, default)
        known = {"1": True, "true": True, "0": False, "false": False, "": default}
        value = known.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be 1 or 0")
        return value

    def words(self, name: str) -> list[str]:
        """Return a list, in a query separated by commas."""
        value = self.values.get(name, "")
        words = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
            raise UsageError(f"{name} must be a list of texts")
        if len(words) > _MOST_WORDS:
            raise UsageError(f"{name} has {len(words):,} entries; {_MOST_WORDS:,} at most")
        return [one for one in words if one]

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        value = self.text(name, default) or default
        if value not in known:
            raise UsageError(f"{name} must be one of {', '.join(known)}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise UsageError(f"{name} must be an object")
        _check_depth(name, value)
        return value

    def jobs(self, name: str, most: int = 200) -> list[str]:
        """Return the names of jobs of this user. Raises NotFoundError."""
        names = self.words(name)
        if len(names) > most:
            raise UsageError(f"{name} has {len(names):,} jobs; {most} at most")
        for one in names:
            check_is_ours(one)
        return names


def _check_depth(name: str, value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    if level:
        raise UsageError(f"{name} has more than {_DEEPEST} levels")


def query(request: Request) -> Reader:
    return Reader(request.query_params)


def body(request: Request) -> Reader:
    """Return the object that was sent with a change."""
    return Reader(request.state.body)


def check_is_ours(name: str) -> None:
    """Raise NotFoundError unless the job is there and this user's own: the server shows nobody else's run folders."""
    if not lookup.is_own(lookup.folder_of(name)):
        raise NotFoundError(f"there is no job {name!r} of yours", "drumline job list")


# answers


def to_json(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def encode(value: Any) -> bytes:
    """Return JSON as browsers read it: what is no number there, such as ``nan``, is null."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_to_finite(value), separators=(",", ":"), allow_nan=False, default=str)
    return text.encode()


def _to_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _to_finite(one) for key, one in value.items()}
    return [_to_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def attachment(
    content: str | bytes | Iterable[bytes], filename: str, kind: str = "application/octet-stream"
) -> Response:
    """Return a download, which no browser shows as a page. A text is the path of a plain file that was checked."""
    headers = {
        "content-disposition": f"attachment; filename*=utf-8''{quote(filename, safe='')}",
        "content-security-policy": SANDBOX,
    }
    if isinstance(content, str):
        return FileResponse(content, media_type=kind, headers=headers)
    if isinstance(content, bytes):
        return Response(content, media_type=kind, headers=headers)
    return StreamingResponse(content, media_type=kind, headers=headers)


def describe_error(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of an error."""
    if isinstance(error, DrumlineError):
        status = (
            404
            if isinstance(error, NotFoundError)
            else 400
            if isinstance(error, (UsageError, SpecError))
            else 503
            if isinstance(error, EngineError)
            else 409
        )
        return status, {"error": {"message": error.message, "hint": error.hint, **_list_problems(error)}}
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return 503, {"error": {"message": f"{error.strerror or error}{where}", "hint": ""}}
    return 500, {"error": {"message": f"internal error: {type(error).__name__}", "hint": "see the terminal"}}


def _describe_damage(error: Exception, request: Request) -> tuple[int, dict[str, Any]] | None:
    """Return the answer for a damaged file of a job that was asked for; None for another error."""
    if not isinstance(error, DAMAGED) or isinstance(error, DrumlineError):
        return None
    asked = [request.path_params.get("name"), *(request.query_params.get(one) for one in ("jobs", "a", "b"))]
    names = ", ".join(one for one in asked if one)[:_MOST_TEXT]
    if not names:
        return None
    return 409, {"error": {"message": f"a file of job {names} is damaged", "hint": "see the terminal"}}


def _list_problems(error: DrumlineError) -> dict[str, Any]:
    """Return every mistake of a job file, with the first one as the sentence."""
    problems = error.problems if isinstance(error, SpecError) else ()
    if not problems:
        return {}
    fields = ("what", "hint", "path", "line", "column")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return {
        "message": problems[0].what + more,
        "hint": problems[0].hint,
        "problems": [{field: getattr(one, field) for field in fields} for one in problems],
    }


# handlers

if TYPE_CHECKING:
    Handler = Callable[[Request], Any]


def wrap(handler: Handler, settings: StudioSettings) -> Callable[[Request], Awaitable[Response]]:
    """
    Make an endpoint of a handler, which is called with the request's workspace chosen, in a thread unless it is a
    coroutine, and returns an answer or what becomes JSON.
    """
    call = in_turns(handler)

    async def respond(request: Request) -> Response:
        try:
            if request.method == "POST":
                request.state.body = await _read_body(request)
            with homes.workspace(choose_workspace(request, settings)):
                # anyio runs threads with a copy of this context.
                if "name" in request.path_params:
                    await run_in_threadpool(check_is_ours, request.path_params["name"])
                found = await call(request)
                return found if isinstance(found, Response) else await run_in_threadpool(to_json, found)
        except ClientDisconnect:
            return Response(status_code=400)  # Nobody is there to read it.
        except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
            status, told = _describe_damage(error, request) or describe_error(error)
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


async def _read_body(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY_BYTES:
            raise UsageError(f"the body is larger than {MOST_BODY_BYTES >> 20} MiB")
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError("the body is not JSON") from error
    if not isinstance(found, dict):
        raise UsageError("the body must be a JSON object")
    return found
