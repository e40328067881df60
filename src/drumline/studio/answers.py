"""Answers to requests: JSON, downloads, and errors as a sentence with a hint."""

from __future__ import annotations

import json
import math
from array import array
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from drumline.contract.errors import (
    DAMAGED,
    DrumlineError,
    EngineError,
    NotFoundError,
    SpecError,
    UsageError,
    describe_os_error,
)
from drumline.contract.record import describe_record
from drumline.studio.queries import MOST_TEXT
from drumline.studio.security import SANDBOX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

_STATUSES = (
    (NotFoundError, 404),
    (UsageError, 400),
    (SpecError, 400),
    (EngineError, 503),
    (DrumlineError, 409),
)
"""Of errors, the first that fits."""

_LONG = 10


class BodyError(DrumlineError):
    """A body that is not read to its end; ``status``: of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def to_json(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def encode(value: Any) -> bytes:
    """
    Return a record, or another value, as JSON that browsers read: what is no number there, such as ``nan``, is null.

    Long lists are encoded one by one: the encoder has an object for every number, until it has all of them.

    >>> encode({"rows": [1, float("nan")], "of": None})
    b'{"rows":[1,null],"of":null}'
    """
    value = describe_record(value)
    if isinstance(value, dict):
        return (
            b"{"
            + b",".join(_encode_whole(str(key)) + b":" + _encode_value(one) for key, one in value.items())
            + b"}"
        )
    return _encode_whole(value)


def _encode_value(value: Any) -> bytes:
    if isinstance(value, list) and len(value) >= _LONG:
        return b"[" + b",".join(map(_encode_whole, value)) + b"]"
    return _encode_whole(value)


def _encode_whole(value: Any) -> bytes:
    try:
        text = _dump(value)
    except ValueError:
        text = _dump(_to_finite(value))
    return text.encode()


def _dump(value: Any) -> str:
    def to_plain(value: Any) -> Any:
        return list(map(_to_finite, value)) if isinstance(value, array) else str(value)

    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=to_plain)


def _to_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _to_finite(one) for key, one in value.items()}
    return [_to_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def attachment(
    content: bytes | Iterable[bytes], filename: str, kind: str = "application/octet-stream"
) -> Response:
    """Return a download, which no browser shows as a page."""
    headers = {
        "content-disposition": f"attachment; filename*=utf-8''{quote(filename, safe='')}",
        "content-security-policy": SANDBOX,
    }
    if isinstance(content, bytes):
        return Response(content, media_type=kind, headers=headers)
    return StreamingResponse(content, media_type=kind, headers=headers)


def describe_error(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of an error."""
    if isinstance(error, DrumlineError):
        status = next(status for kind, status in _STATUSES if isinstance(error, kind))
        status = error.status if isinstance(error, BodyError) else status
        return status, {"error": {"message": error.message, "hint": error.hint, **_list_problems(error)}}
    if isinstance(error, OSError):
        return 503, {"error": {"message": describe_os_error(error), "hint": ""}}
    return 500, {"error": {"message": f"internal error: {type(error).__name__}", "hint": "see the terminal"}}


def describe_damage(error: Exception, request: Request) -> tuple[int, dict[str, Any]] | None:
    """Return the answer for a damaged file of a job that was asked for; None for another error."""
    if not isinstance(error, DAMAGED) or isinstance(error, DrumlineError):
        return None
    asked = [request.path_params.get("name"), *(request.query_params.get(one) for one in ("jobs", "a", "b"))]
    names = ", ".join(one for one in asked if one)[:MOST_TEXT]
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
