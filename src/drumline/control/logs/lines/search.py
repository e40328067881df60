"""Lines of logs that hold a text or match a regular expression, found within a limit of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.logs.lines import rank_files
from drumline.control.logs.lines.rank_files import ALL, ChosenLogs
from drumline.control.logs.matching import Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.control.logs.lines.merged import MergedLog, MergedRun

LIMIT_S = 2.0
MOST_MATCHES = 1000
_LONGEST_QUERY = 500
_LINES = 2048
"""That are looked through at a time."""

_MOST_BYTES = 4 << 20
_SHOWN = 300


class Wanted(NamedTuple):
    """``query`` without a capital letter finds capital ones too."""

    query: str
    is_regex: bool = False


class Match(NamedTuple):
    """The line ``line`` of a log, with its number in the merged order."""

    number: int
    log: int
    line: int


class FoundLines(NamedTuple):
    """Lines that match. ``following``: where to go on. ``more``: whether there may be others there."""

    matches: list[Match]
    following: int
    more: bool
    timed_out: bool


def search_logs(
    name: str,
    wanted: Wanted,
    chosen: ChosenLogs = ALL,
    *,
    begin: int = 0,
    backwards: bool = False,
    limit: int = 100,
) -> dict[str, Any]:
    """
    Return the first ``limit`` lines that match from number ``begin`` on, or the last ones before it.

    Raises NotFoundError, UsageError.
    """
    logs = rank_files.find_logs(name, chosen)
    merged = rank_files.merge(logs)
    found = find_lines(merged, wanted, begin, limit=limit, backwards=backwards)
    return {
        "attempt": logs.attempt,
        "total": merged.total,
        "matches": [_describe(merged, match) for match in found.matches],
        "next": found.following,
        "more": found.more,
        "timed_out": found.timed_out,
    }


def _describe(merged: MergedLog, match: Match) -> dict[str, Any]:
    lines = merged.logs[match.log].read(match.line, 1)
    text = lines[0].as_text if lines else ""
    return {"n": match.number, "rank": merged.files[match.log].rank, "text": text[:_SHOWN]}


def find_lines(
    merged: MergedLog,
    wanted: Wanted,
    begin: int,
    *,
    limit: int,
    backwards: bool = False,
    limit_s: float = LIMIT_S,
) -> FoundLines:
    """Find lines that match a query. Raises UsageError for a query that cannot be."""
    limit = max(1, min(limit, MOST_MATCHES))
    if begin < 0:
        begin = max(0, merged.total + begin)
    query = wanted.query
    if not query or "\0" in query:
        raise UsageError("q: there is nothing to look for", "q=TEXT")
    if len(query) > _LONGEST_QUERY:
        raise UsageError(f"q: {len(query)} letters are too many", f"{_LONGEST_QUERY} at most")
    with Matcher(query, "q", is_text=not wanted.is_regex, ignores_case=query == query.lower()) as matcher:
        return _look_through(merged, matcher, begin, limit, backwards, time.monotonic() + limit_s)


def _look_through(
    merged: MergedLog,
    matcher: Matcher,
    begin: int,
    limit: int,
    backwards: bool,
    deadline: float,
) -> FoundLines:
    matches: list[Match] = []
    at = begin
    for run in _parts(merged, begin, backwards):
        at = run.number + run.lines if backwards else run.number
        left_s = deadline - time.monotonic()
        block = merged.logs[run.log].read_block(run.first, run.lines, _MOST_BYTES)
        lines = matcher.find(block, left_s) if left_s > 0 else None
        if lines is None:
            return FoundLines(matches, at, more=True, timed_out=True)
        for line in reversed(lines) if backwards else lines:
            matches.append(Match(run.number + line, run.log, run.first + line))
            if len(matches) >= limit:
                number = matches[-1].number
                return FoundLines(matches, number if backwards else number + 1, more=True, timed_out=False)
    return FoundLines(matches, 0 if backwards else merged.total, more=not merged.is_whole, timed_out=False)


def _parts(merged: MergedLog, begin: int, backwards: bool) -> Iterator[MergedRun]:
    """Yield parts of few lines from ``begin`` on, or from there back to the first."""
    if not backwards:
        for run in merged.runs(begin, merged.total):
            for skipped in range(0, run.lines, _LINES):
                count = min(_LINES, run.lines - skipped)
                yield run._replace(number=run.number + skipped, first=run.first + skipped, lines=count)
        return
    end = min(begin, merged.total)
    while end > 0:
        first = max(0, end - _LINES)
        yield from reversed(list(merged.runs(first, end - first)))
        end = first
