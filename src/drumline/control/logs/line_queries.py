"""
Questions about the lines of a job's logs: some by their numbers, as a person is shown them; those that match; the line
at which one rank leaves the others.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.record import ABSENT, NamedTuple
from drumline.contract.words import format_seconds
from drumline.control.logs.matching import Matcher
from drumline.control.logs.merged import ALL, ChosenLogs, find_logs, merge
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from drumline.contract.record import Absent
    from drumline.control.logs.merged import LineIndex, LogLine, MergedLog, MergedRun


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


class ShownLine(NamedTuple):
    """A line with its number ``n`` in the merged order. ``ranks``: all that have it. ``cut``: its whole length."""

    n: int
    rank: int
    label: str
    ranks: list[int]
    node: int
    time: str | None
    text: str
    error: bool
    cut: int | Absent
    context: bool | Absent


class ShownLines(NamedTuple):
    """
    Lines of logs. ``next``: where to go on. ``exact``: whether the order of the lines is known, and not only up to
    ``within_s``. ``is_whole``: whether all was read by now.
    """

    attempt: int
    total: int
    line: int
    next: int
    exact: bool
    within_s: float
    is_whole: bool
    timed_out: bool
    lines: list[ShownLine]
    first_error: int | None


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
) -> ShownLines:
    """
    Return ``count`` lines from number ``line`` on; a negative one counts from the end. ``at``: from the first line of
    that time on, in seconds since 1970.

    ``fold``: equal lines of several ranks, of these ``count``, are one. ``wanted``: only lines that match, each with so
    many lines of its own rank before and after it as ``context`` says. Raises NotFoundError, UsageError.
    """
    logs = find_logs(name, chosen)
    merged = merge(logs)
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
    return ShownLines(
        *(logs.attempt, merged.total, first, following),
        exact=len(merged.files) < 2,
        within_s=round(merged.within_s, 1),
        is_whole=merged.is_whole,
        timed_out=timed_out,
        lines=[_describe(merged, one, ranks, matching) for one, ranks in shown],
        first_error=merged.find_first_error(),
    )


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
) -> ShownLine:
    file, line = merged.files[one.log], one.line
    text = line.as_text
    return ShownLine(
        *(one.number, file.rank, file.label),
        ranks=sorted(merged.files[log].rank for log in logs),
        node=file.node,
        time=utc(one.time),
        text=text[:MOST_LETTERS],
        error=line.is_error,
        cut=line.length if len(text) > MOST_LETTERS or line.length > len(line.text) else ABSENT,
        context=ABSENT if matching is None or one.number in matching else True,
    )


# Lines of logs that hold a text or match a regular expression, found within a limit of time.


LIMIT_S = 2.0
MOST_MATCHES = 1000
_LONGEST_QUERY = 500
_LINES = 2048
"""That are looked through at a time."""

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


class ShownMatch(NamedTuple):
    n: int
    rank: int
    text: str


class ShownMatches(NamedTuple):
    attempt: int
    total: int
    matches: list[ShownMatch]
    next: int
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
) -> ShownMatches:
    """
    Return the first ``limit`` lines that match from number ``begin`` on, or the last ones before it.

    Raises NotFoundError, UsageError.
    """
    logs = find_logs(name, chosen)
    merged = merge(logs)
    found = find_lines(merged, wanted, begin, limit=limit, backwards=backwards)
    matches = [_show_match(merged, match) for match in found.matches]
    return ShownMatches(
        logs.attempt, merged.total, matches, found.following, more=found.more, timed_out=found.timed_out
    )


def _show_match(merged: MergedLog, match: Match) -> ShownMatch:
    lines = merged.logs[match.log].read(match.line, 1)
    text = lines[0].as_text if lines else ""
    return ShownMatch(match.number, merged.files[match.log].rank, text[:_SHOWN])


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


# Find the line at which one rank leaves the others.


_MOST_PEERS = 7
_MOST_FORMS = 200_000
_SENTENCE_LETTERS = 120
_VALUES = re.compile(
    rb"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?|nan|inf", re.IGNORECASE
)


class Divergence(NamedTuple):
    """A sentence, and the number ``n`` of a line in the merged order of all ranks, ``line`` in the rank's own log."""

    sentence: str
    n: int | None = None
    line: int | None = None


def find_divergence(name: str, rank: int, attempt: int | None = None) -> Divergence:
    """
    Return where the lines of a rank leave those of the others.

    Lines are compared without the numbers in them. Of many other ranks some are looked at. Raises NotFoundError,
    UsageError.
    """
    logs = find_logs(name, ChosenLogs(attempt=attempt))
    own = logs.find(rank)
    merged = merge(logs)
    label = logs.files[own].label
    others = [log for log, count in enumerate(merged.counts) if log != own and count]
    # Some that have said something, spread over all of them.
    peers = others[:: max(1, len(others) // _MOST_PEERS)][:_MOST_PEERS]
    if not peers:
        return Divergence(f"rank {label} has no other rank to be compared with")
    deadline = time.monotonic() + LIMIT_S
    known: set[int] = set()
    for peer in peers:
        known.update(form for _, form, _ in _read_forms(merged.logs[peer], merged.counts[peer], deadline))
    for line, form, text in _read_forms(merged.logs[own], merged.counts[own], deadline):
        if form not in known:
            shown = text.decode("utf-8", "replace").strip()
            shown = shown if len(shown) <= _SENTENCE_LETTERS else shown[:_SENTENCE_LETTERS] + "..."
            sentence = f"rank {label} leaves the others at its line {line + 1}: {shown}"
            return Divergence(sentence, merged.number_of(own, line), line)
    if time.monotonic() > deadline:
        looked = f"as far as could be looked in {format_seconds(LIMIT_S)}"
        return Divergence(f"rank {label} says what others say, {looked}")
    return _tell_of_end(merged, own, peers)


def _tell_of_end(merged: MergedLog, own: int, peers: list[int]) -> Divergence:
    """Tell of a rank that says nothing of its own: whether it stopped before the others."""
    label, count = merged.files[own].label, merged.counts[own]
    most = sorted(merged.counts[peer] for peer in peers)[len(peers) // 2]
    if count >= most:
        return Divergence(f"rank {label} says what the others say")
    if not count:
        return Divergence(f"rank {label} has said nothing; the others have {most} lines")
    sentence = f"rank {label} stops after line {count}; the others go on to line {most}"
    return Divergence(sentence, merged.number_of(own, count - 1), count - 1)


def _read_forms(index: LineIndex, count: int, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, the form without values, as a hash, and the text of each line that is not blank."""
    for first in range(0, min(count, _MOST_FORMS), _LINES):
        if time.monotonic() > deadline:
            return
        block = index.read_block(first, min(_LINES, count - first), _MOST_BYTES)
        forms = _VALUES.sub(b"#", block).split(b"\n")
        for place, (form, text) in enumerate(zip(forms, block.split(b"\n"), strict=True)):
            if form.strip():
                yield first + place, hash(form.strip()), text
