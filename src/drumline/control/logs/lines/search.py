"""
Lines of logs that hold a text or match a regular expression, found within a limit of time.

A text is looked for in this process, in time that grows with the logs alone. A regular expression may backtrack for
longer than anybody lives, and Python cannot be stopped in it; so a process of its own matches, and is killed when the
time is over.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.logs.lines import matcher_program, rank_files
from drumline.control.logs.lines.rank_files import ALL, ChosenLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.control.logs.lines.merged import MergedLog, MergedRun

LIMIT_S = 2.0
MOST_MATCHES = 1000
_LONGEST_QUERY = 500
_LINES = 2048
"""That are looked through at a time."""

_MOST_BYTES = 4 << 20
_SHOWN = 300
_START_S = 10.0
"""For another process to start, on a machine that is busy; that time does not count."""


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
    with _open_matcher(wanted) as match:
        return _look_through(merged, match, begin, limit, backwards, time.monotonic() + limit_s)


def _look_through(
    merged: MergedLog,
    match: Callable[[bytes, float], list[int] | None],
    begin: int,
    limit: int,
    backwards: bool,
    deadline: float,
) -> FoundLines:
    matches: list[Match] = []
    at = begin
    for run in _parts(merged, begin, backwards):
        at = run.number + run.lines if backwards else run.number
        if time.monotonic() > deadline:
            return FoundLines(matches, at, more=True, timed_out=True)
        lines = match(merged.logs[run.log].read_block(run.first, run.lines, _MOST_BYTES), deadline)
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


# Matching: a function from lines and a deadline to those that match, counted from 0; None when the time is over.


@contextmanager
def _open_matcher(wanted: Wanted) -> Iterator[Callable[[bytes, float], list[int] | None]]:
    query = wanted.query
    if not query or "\n" in query or "\0" in query:
        raise UsageError("q: there is nothing to look for", "q=TEXT")
    if len(query) > _LONGEST_QUERY:
        raise UsageError(f"q: {len(query)} letters are too many", f"{_LONGEST_QUERY} at most")
    if not wanted.is_regex:
        yield _TextSearch(query).find
        return
    with ExitStack() as held:
        yield held.enter_context(_RegexSearch(query)).find


class _TextSearch:
    def __init__(self, query: str) -> None:
        flags = re.IGNORECASE if query == query.lower() else 0
        self._search = re.compile(re.escape(query.encode()), flags).search

    def find(self, lines: bytes, _deadline: float) -> list[int]:
        found = []
        line = begin = 0
        match = self._search(lines)
        while match:
            line += lines.count(b"\n", begin, match.start())
            found.append(line)
            begin = (lines.find(b"\n", match.start()) + 1) or len(lines)
            line += 1
            match = self._search(lines, begin)
        return found


class _RegexSearch:
    """A process that matches lines: ``matcher_program``."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _RegexSearch:
        flags = 0 if self._query != self._query.lower() else re.IGNORECASE
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a program of ours
            [sys.executable, "-I", "-S", matcher_program.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
        try:
            said = self._ask(json.dumps([self._query, int(flags)]).encode(), time.monotonic() + _START_S)
        except BaseException:
            self.__exit__()
            raise
        if not isinstance(said, str) or said:
            self.__exit__()
            raise UsageError(
                f"q: {self._query!r} is not a regular expression that can be used: {said or 'it is too large'}",
                "put a backslash before (, [, {, *, +, ?, . and | to search for the character itself",
            )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        self._process = None

    def find(self, lines: bytes, deadline: float) -> list[int] | None:
        found = self._ask(lines, deadline)
        return found if isinstance(found, list) else None

    def _ask(self, data: bytes, deadline: float) -> Any:
        """Return the answer; None when there is none by then."""
        process = self._process
        assert process
        assert process.stdin
        assert process.stdout
        try:
            _write(process.stdin.fileno(), b"%d\n" % len(data) + data, deadline)
            return json.loads(_read_line(process.stdout.fileno(), deadline))
        except (OSError, ValueError):
            return None


def _write(descriptor: int, data: bytes, deadline: float) -> None:
    os.set_blocking(descriptor, False)
    view = memoryview(data)
    while view:
        _wait(descriptor, select.POLLOUT, deadline)
        view = view[os.write(descriptor, view) :]


def _read_line(descriptor: int, deadline: float) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        _wait(descriptor, select.POLLIN, deadline)
        part = os.read(descriptor, 1 << 16)
        if not part:
            raise OSError("the program that matches has ended")
        data += part
    return data


def _wait(descriptor: int, what: int, deadline: float) -> None:
    """Wait until a descriptor is ready. Raises TimeoutError."""
    poll = select.poll()
    poll.register(descriptor, what)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError
