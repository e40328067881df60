"""Lines that a regular expression finds, within a limit of time for expressions that backtrack."""

from __future__ import annotations

import re
import signal
import threading
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.control import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 2.0
"""
CPU time for one block of lines. A good expression takes a hundredth of it. Python's engine looks for signals while it
backtracks, so an alarm ends it.
"""


class Matcher:
    """
    Finds lines that match a pattern. ``pattern``: as of Python's ``re``, searched for in each line. Raises UsageError
    for one that is not valid.

    The limit needs signals, which Python delivers to its main thread: in another thread there is none.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        if _wants_newline(pattern):
            raise UsageError(
                f"--grep: {pattern!r} has a newline, and each line is searched by itself",
                "leave it out, or give two alternatives: first|second",
            )
        self._literal = b"" if re.search(r"[\\.^$*+?{}\[\]|()]", pattern) else pattern.encode()
        try:
            self._search = _make_search(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                f"--grep: {pattern!r} is not a regular expression: {error}",
                "put a backslash before (, [, {, *, +, ?, . and | to search for the character itself",
            ) from error

    def select(self, lines: bytes) -> bytes:
        """Return those of whole lines, each with its newline, that match. Raises UsageError as ``find``."""
        return b"".join(lines[begin:end] for begin, end in self.find(lines))

    def find(self, lines: bytes) -> list[tuple[int, int]]:
        """Return where the lines that match begin and end. Raises UsageError when that takes too long."""
        if self._literal:
            return list(self._find_literal(lines))
        return _limit_time(lambda: list(self._find_each(lines)), self._pattern)

    def _find_literal(self, lines: bytes) -> Iterator[tuple[int, int]]:
        at = lines.find(self._literal)
        while at >= 0:
            begin = lines.rfind(b"\n", 0, at) + 1
            end = (lines.find(b"\n", at) + 1) or len(lines)
            yield begin, end
            at = lines.find(self._literal, end)

    def _find_each(self, lines: bytes) -> Iterator[tuple[int, int]]:
        begin = 0
        for line in lines.split(b"\n"):
            end = begin + len(line)
            # An empty text after the last newline is no line.
            if begin < len(lines) and self._search(line):
                yield begin, min(end + 1, len(lines))
            begin = end + 1


def _wants_newline(pattern: str) -> bool:
    r"""
    Return whether only text with a newline can match, where that is plain to see.

    >>> _wants_newline("a\nb"), _wants_newline(r"a\nb"), _wants_newline(r"[^\n]+"), _wants_newline(r"a\n?")
    (True, True, False, False)
    """
    text = re.sub(r"\\[^n]|\[\^?\]?[^\]]*\]", "", pattern)
    return not set(text) & set("(|") and bool(re.search(r"(?:\n|\\n)(?![?*{])", text))


def _make_search(pattern: str) -> Callable[[bytes], object]:
    """Return a function that searches a line for the pattern. Raises re.error."""
    if pattern.isascii():
        # It is the same in bytes, which need not be decoded.
        return re.compile(pattern.encode()).search
    search = re.compile(pattern).search
    return lambda line: search(terminal.decode(line))


class _TooLongError(Exception):
    pass


def _limit_time(match: Callable[[], list[tuple[int, int]]], pattern: str) -> list[tuple[int, int]]:
    """Return what ``match`` does. Raises UsageError after ``LIMIT_S`` of CPU time in it."""
    if threading.current_thread() is not threading.main_thread():
        return match()
    is_matching = False

    def stop(number: int, frame: object) -> None:
        # Python calls this some time after the signal: perhaps when the match is done, in the lines that clean up.
        if is_matching:
            raise _TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        try:
            is_matching = True
            return match()
        except _TooLongError as error:
            raise UsageError(
                f"--grep: {pattern!r} takes too long on these lines; it backtracks",
                "avoid repeats within repeats, such as (a+)+",
            ) from error
        finally:
            is_matching = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
