"""
Lines that hold a text or match a regular expression.

A text is searched for in this process. A regular expression may backtrack for longer than anybody lives, and Python
cannot be stopped in it, so a process of its own matches (``matcher_program``), which the kernel kills at a limit of
CPU time, and this process after ten times as long.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.control.logs import matcher_program

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 2.0
"""CPU time for one block of lines. A good expression takes a hundredth of it."""

_WALL_FACTOR = 10.0
"""A busy machine is slow; a process that was stopped answers nobody."""


class Matcher:
    """
    Finds lines that match ``pattern``, an expression of Python's ``re`` that is searched for in each line; ``is_text``:
    the text itself. ``option``: what errors call it. Raises UsageError for one that is not valid.
    """

    def __init__(
        self, pattern: str, option: str = "--grep", *, is_text: bool = False, ignores_case: bool = False
    ) -> None:
        self._named = f"{option}: {pattern!r}"
        self._process: subprocess.Popen[bytes] | None = None
        if "\n" in pattern:
            raise UsageError(
                f"{self._named} has a newline, and each line is searched by itself",
                "leave it out, or give two alternatives: first|second",
            )
        flags = re.IGNORECASE if ignores_case else 0
        if is_text or not re.search(r"[\\.^$*+?{}\[\]|()]", pattern):
            self._find_text = _make_search(pattern.encode(errors="surrogateescape"), flags)
        else:
            self._start(pattern, flags)

    def _start(self, pattern: str, flags: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a program of ours
            [sys.executable, "-I", "-S", matcher_program.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
        problem = self._ask(json.dumps([pattern, int(flags)]).encode(), LIMIT_S)
        if problem != "":
            self.close()
            raise UsageError(
                f"{self._named} is not a regular expression: {problem or 'it is too large'}",
                "put a backslash before (, [, {, *, +, ?, . and | to search for the character itself",
            )

    def close(self) -> None:
        """End the process that matches."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, lines: bytes, limit_s: float) -> list[int] | None:
        """Return the numbers of the lines that match, from 0; None if that takes more CPU time than the limit."""
        if self._process is None:
            return _find_text(self._find_text, lines)
        return self._ask(lines, max(0.001, limit_s)) if lines else []

    def select(self, lines: bytes) -> bytes:
        """Return those of whole lines, each with its newline, that match. Raises UsageError when it takes too long."""
        split = lines.split(b"\n")
        return b"".join(split[number] + b"\n" for number in self.find_within_limit(lines))

    def find_within_limit(self, lines: bytes) -> list[int]:
        """Return what ``find`` does. Raises UsageError when it takes too long."""
        numbers = self.find(lines, LIMIT_S)
        if numbers is None:
            raise UsageError(
                f"{self._named} takes too long on these lines; it backtracks",
                "avoid repeats within repeats, such as (a+)+",
            )
        return numbers

    def _ask(self, data: bytes, limit_s: float) -> Any:
        """Return the answer of the process; None if it was killed before that."""
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        deadline = time.monotonic() + _WALL_FACTOR * max(limit_s, 1.0)
        try:
            message = json.dumps([limit_s, len(data)]).encode() + b"\n" + data
            _write(self._process.stdin.fileno(), message, deadline)
            return json.loads(_read_line(self._process.stdout.fileno(), deadline))
        except (OSError, ValueError):
            self._process.kill()
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


def _make_search(text: bytes, flags: int) -> Callable[[bytes, int], int]:
    """Return a function that finds the text from a place on: where it is, or -1."""
    if not flags:
        return lambda lines, begin: lines.find(text, begin)
    search = re.compile(re.escape(text), flags).search
    return lambda lines, begin: match.start() if (match := search(lines, begin)) else -1


def _find_text(find: Callable[[bytes, int], int], lines: bytes) -> list[int]:
    numbers = []
    number = begin = 0
    while begin < len(lines) and (place := find(lines, begin)) >= 0:
        number += lines.count(b"\n", begin, place)
        numbers.append(number)
        begin = (lines.find(b"\n", place) + 1) or len(lines)
        number += 1
    return numbers
