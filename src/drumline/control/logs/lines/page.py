"""Some lines of a job's logs by their numbers, as a person is shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.control.logs.lines import rank_files
from drumline.control.logs.lines.rank_files import ALL, ChosenLogs
from drumline.control.logs.lines.search import Wanted, find_lines
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from drumline.control.logs.lines.line_index import LogLine
    from drumline.control.logs.lines.merged import MergedLog

MOST_LINES = 5000
MOST_LETTERS = 2000
_MOST_BYTES = 4 << 20
"""Of all lines of an answer."""


class _Placed(NamedTuple):
    """A line with its number in the merged order, and the place of its log."""

    number: int
    log: int
    time: float
    line: LogLine


def read_lines(
    name: str,
    chosen: ChosenLogs = ALL,
    *,
    line: int = 0,
    at: float | None = None,
    count: int = 400,
    fold: bool = False,
    wanted: Wanted | None = None,
    context: int = 0,
) -> dict[str, Any]:
    """
    Return ``count`` lines from number ``line`` on; a negative one counts from the end. ``at``: from the first line of
    that time on, in seconds since 1970.

    ``fold``: equal lines of several ranks, of these ``count``, are one. ``wanted``: only lines that match, each with so
    many lines of its own rank before and after it as ``context`` says. ``next``: where to go on. ``exact``: whether the
    order of the lines is known, and not only up to ``within_s``. ``is_whole``: whether all was read by now.
    Raises NotFoundError, UsageError.
    """
    logs = rank_files.find_logs(name, chosen)
    merged = rank_files.merge(logs)
    count = max(1, min(count, MOST_LINES))
    first = max(0, merged.total + line) if line < 0 else line
    if at is not None:
        first = merged.find_time(at)
    following = first
    timed_out = False
    matching: set[int] | None = None
    if wanted is None:
        placed = _read(merged, first, count)
        following = placed[-1].number + 1 if placed else first
    else:
        found = find_lines(merged, wanted, first, limit=count)
        matching = {one.number for one in found.matches}
        placed = _add_context(merged, matching, context)
        following, timed_out = found.following, found.timed_out
    shown = _fold(placed) if fold else [(one, [one.log]) for one in placed]
    return {
        "attempt": logs.attempt,
        "total": merged.total,
        "line": first,
        "next": following,
        "exact": len(merged.files) < 2,
        "within_s": round(merged.within_s, 1),
        "is_whole": merged.is_whole,
        "timed_out": timed_out,
        "lines": [_describe(merged, one, ranks, matching) for one, ranks in shown],
        "first_error": merged.find_first_error(),
    }


def _read(merged: MergedLog, first: int, count: int) -> list[_Placed]:
    found: list[_Placed] = []
    size = 0
    for run in merged.runs(first, count):
        for place, line in enumerate(merged.logs[run.log].read(run.first, run.lines)):
            found.append(_Placed(run.number + place, run.log, run.time, line))
            size += len(line.text)
        if size > _MOST_BYTES:
            break
    return found


def _add_context(merged: MergedLog, numbers: Iterable[int], context: int) -> list[_Placed]:
    """Return these lines, and those of the same rank around them, in the merged order."""
    wanted: set[int] = set()
    for number in numbers:
        for run in merged.runs(number, 1):
            first = max(0, run.first - context)
            last = min(merged.counts[run.log] - 1, run.first + context)
            wanted.update(merged.number_of(run.log, line) for line in range(first, last + 1))
    return [placed for number in sorted(wanted)[:MOST_LINES] for placed in _read(merged, number, 1)]


def _fold(placed: Iterable[_Placed]) -> list[tuple[_Placed, list[int]]]:
    """Put equal lines of several ranks together where the first of them is: the third ``x`` with the third ``x``."""
    shown: dict[tuple[bytes, int], tuple[_Placed, list[int]]] = {}
    seen: dict[tuple[bytes, int], int] = {}
    for one in placed:
        own = (one.line.text, one.log)
        seen[own] = seen.get(own, 0) + 1
        key = (one.line.text, seen[own])
        if key in shown:
            shown[key][1].append(one.log)
        else:
            shown[key] = (one, [one.log])
    return list(shown.values())


def _describe(
    merged: MergedLog, one: _Placed, logs: Iterable[int], matching: Container[int] | None
) -> dict[str, Any]:
    file = merged.files[one.log]
    text = one.line.as_text
    described = {
        "n": one.number,
        "rank": file.rank,
        "label": file.label,
        "ranks": sorted(merged.files[log].rank for log in logs),
        "node": file.node,
        "time": utc(one.time),
        "text": text[:MOST_LETTERS],
        "error": one.line.is_error,
    }
    if len(text) > MOST_LETTERS or one.line.length > len(one.line.text):
        described["cut"] = one.line.length
    if matching is not None and one.number not in matching:
        described["context"] = True
    return described
