"""Lines of logs: by number, found, compared, and as they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from starlette.routing import Route

from drumline.contract.errors import NotFoundError
from drumline.control.logs import line_queries, merged
from drumline.control.logs.line_queries import Wanted
from drumline.control.logs.merged import ChosenLogs, find_logs
from drumline.control.logs.rank_log import open_log, read_range
from drumline.control.times import parse_moment
from drumline.studio.answers import attachment
from drumline.studio.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response


def _choose(request: Request) -> ChosenLogs:
    asked = query(request)
    return ChosenLogs(asked.text("ranks"), asked.text("nodes"), asked.number("attempt", None, 0))


def read_logs(request: Request) -> line_queries.ShownLines:
    asked = query(request)
    text, at = asked.text("q"), asked.text("at")
    return line_queries.read_lines(
        request.path_params["name"],
        _choose(request),
        line=asked.number("line", 0),
        at=parse_moment(at, "at") if at else None,
        count=asked.number("count", 400, 1, line_queries.MOST_LINES),
        fold=asked.flag("fold"),
        wanted=Wanted(text, asked.flag("regex")) if text else None,
        context=asked.number("context", 0, 0, 100),
    )


def search_logs(request: Request) -> line_queries.ShownMatches:
    asked = query(request)
    return line_queries.search_logs(
        request.path_params["name"],
        Wanted(asked.text("q"), asked.flag("regex")),
        _choose(request),
        begin=asked.number("from", 0),
        backwards=asked.flag("back"),
        limit=asked.number("limit", 100, 1, line_queries.MOST_MATCHES),
    )


def find_divergence(request: Request) -> line_queries.Divergence:
    asked = query(request)
    name, rank = request.path_params["name"], asked.number("rank", 0, 0)
    return line_queries.find_divergence(name, rank, asked.number("attempt", None, 0))


def download_log(request: Request) -> Response:
    name, rank = request.path_params["name"], query(request).number("rank", None, 0)
    chosen = _choose(request)
    if rank is None:
        return attachment(merged.read_whole(name, chosen), f"{name}.log", "text/plain")
    logs = find_logs(name, ChosenLogs(attempt=chosen.attempt))
    file = logs.files[logs.find(rank)]
    try:
        log = open(open_log(file.path), "rb")  # noqa: SIM115 - closed with the answer
    except OSError:
        raise NotFoundError(
            f"rank {file.label} of job {name} has written nothing", "see its node's log"
        ) from None
    filename = f"{name}-rank-{file.label}-{os.path.basename(file.path)}"
    return attachment(_read_now(log), filename, "text/plain")


def _read_now(file: BinaryIO) -> Iterator[bytes]:
    """Yield what is there by now of a log that may grow."""
    with file:
        yield from read_range(file.fileno(), 0, os.fstat(file.fileno()).st_size)


ROUTES = [
    Route("/jobs/{name}/logs", read_logs),
    Route("/jobs/{name}/logs/search", search_logs),
    Route("/jobs/{name}/logs/divergence", find_divergence),
    Route("/jobs/{name}/logs/raw", download_log),
]
