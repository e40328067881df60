"""
An index of the lines of one log: the number that end before each block of its bytes, counted in one reading.

A line is found by a search among these counts and then in one block, so that the size of a log hardly matters. A log
that grows is counted on from where its end was. Nothing is written: the counts of a log of 1 GB take 128 KB of memory.
"""

from __future__ import annotations

import bisect
import functools
import os
import re
import threading
import time
from array import array
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control import terminal
from drumline.control.logs.rank_log import open_existing, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


BLOCK = 1 << 16
MOST_BLOCKS = 1 << 14
"""Of one log; blocks of a larger one are twice as long, and so on."""

MOST_COUNTED = 1 << 16
"""Offsets that are remembered, of one log."""

LONGEST = 8000
"""Bytes of a line that are kept: 2,000 characters, however they are encoded."""

_CHUNK = 1 << 20
_MOST_LOGS = 2048
_MARKS = (
    b"Traceback (most recent call last)",
    b"Fatal Python error",
    b"Segmentation fault",
    b"terminate called after throwing",
    b"CUDA error",
    b"CUDA out of memory",
)
"""Texts with which the account of an error begins, rare enough in other lines."""

_TAIL = max(map(len, _MARKS)) - 1
_ERROR_LINE = re.compile(
    rb"Traceback \(most recent call last\)|Fatal Python error|Segmentation fault|terminate called after throwing"
    rb"|CUDA (?:error|out of memory)|^\s*(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?::|$)|\b(?:FATAL|CRITICAL|ERROR)\b"
)


class LogLine(NamedTuple):
    """A line. ``text``: as a terminal shows it, its beginning if it is long. ``length``: all of its bytes."""

    text: bytes
    length: int

    @property
    def as_text(self) -> str:
        """Return it without control sequences, but those for colours."""
        return terminal.clean_lines(self.text, colours=True)

    @property
    def is_error(self) -> bool:
        return _ERROR_LINE.search(self.text) is not None


class LineIndex:
    """The lines of one file. Lines are counted from 0; an unfinished last line counts."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._reset(0)

    def _reset(self, inode: int) -> None:
        self._inode = inode
        self._block = BLOCK
        self._ends = array("q", [0])
        """How many lines end before each block."""

        self._ended = 0
        self._is_open = False
        self._tail = b""
        self._counted: dict[int, int] = {}
        """How many lines end before the offsets that were asked for: the same ones are asked for again."""

        self.size = 0
        """Bytes that were counted."""

        self.changed = 0.0
        self.first_error: int | None = None
        """The line in which the first account of an error begins."""

    @property
    def count(self) -> int:
        return self._ended + self._is_open

    def grow(self, deadline: float) -> bool:
        """Count what was written since the last call; return False if the time is over before that."""
        with self.lock, open_existing(self.path) as descriptor:
            if descriptor is None:
                self._reset(0)
                return True
            known = os.fstat(descriptor)
            if known.st_ino != self._inode or known.st_size < self.size:
                self._reset(known.st_ino)
            self.changed = known.st_mtime
            for data in read_range(descriptor, self.size, known.st_size, _CHUNK):
                self._look_for_error(data)
                self._add(data)
                if time.monotonic() > deadline and self.size < known.st_size:
                    return False
        return True

    def _add(self, data: bytes) -> None:
        begin = 0
        while begin < len(data):
            upto = min(len(data), begin + self._block - self.size % self._block)
            self._ended += data.count(b"\n", begin, upto)
            self.size += upto - begin
            begin = upto
            if self.size % self._block == 0:
                self._ends.append(self._ended)
                if len(self._ends) > MOST_BLOCKS:
                    self._ends = self._ends[::2]
                    self._block *= 2
        self._is_open = not data.endswith(b"\n")

    def _look_for_error(self, data: bytes) -> None:
        if self.first_error is not None:
            return
        text = self._tail + data
        found = [place for place in map(text.find, _MARKS) if place >= 0]
        if found:
            self.first_error = self._ended - self._tail.count(b"\n") + text.count(b"\n", 0, min(found))
        self._tail = text[-_TAIL:]

    def count_ended(self, offsets: Sequence[int]) -> list[int]:
        """Return how many lines end before each of these offsets, which are in ascending order."""
        with self.lock, open_existing(self.path) as descriptor:
            if descriptor is None:
                return [self._ended for _ in offsets]
            new = [offset for offset in offsets if offset < self.size and offset not in self._counted]
            if len(self._counted) + len(new) > MOST_COUNTED:
                self._counted.clear()
                new = [offset for offset in offsets if offset < self.size]
            self._counted.update(self._count_new(descriptor, new))
            return [self._counted.get(offset, self._ended) for offset in offsets]

    def _count_new(self, descriptor: int, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield each offset with how many lines end before it."""
        block, data = -1, b""
        for offset in offsets:
            number, rest = divmod(offset, self._block)
            if number != block and rest:
                block, data = number, os.pread(descriptor, self._block, number * self._block)
            yield offset, self._ends[number] + (data.count(b"\n", 0, rest) if rest else 0)

    def read(self, first: int, count: int) -> list[LogLine]:
        """Return lines from that one on, fewer at the end of the log."""
        with self.lock, open_existing(self.path) as descriptor:
            if descriptor is None or first >= self.count:
                return []
            found: list[LogLine] = []
            for line in _split(descriptor, self._find(descriptor, first), self.size):
                found.append(line)
                if len(found) >= count:
                    break
        return found

    def read_block(self, first: int, count: int, most: int) -> bytes:
        """Return these lines, each with its newline; cut as ``read`` does if they have more than ``most`` bytes."""
        with self.lock, open_existing(self.path) as descriptor:
            if descriptor is None or first >= self.count:
                return b""
            begin = self._find(descriptor, first)
            end = self._find(descriptor, first + count) if first + count < self.count else self.size
            if end - begin <= most:
                data = os.pread(descriptor, end - begin, begin)
                return data if data.endswith(b"\n") or not data else data + b"\n"
        return b"".join(line.text + b"\n" for line in self.read(first, count))

    def _find(self, descriptor: int, line: int) -> int:
        """Return the offset at which a line begins."""
        if line <= 0:
            return 0
        number = bisect.bisect_left(self._ends, line) - 1
        begin = number * self._block
        data = os.pread(descriptor, min(self._block, self.size - begin), begin)
        before = line - self._ends[number]
        parts = data.split(b"\n", before)
        return begin + len(data) - (len(parts[-1]) if len(parts) > before else 0)


def _split(descriptor: int, begin: int, end: int) -> Iterator[LogLine]:
    text, length = b"", 0
    for data in read_range(descriptor, begin, end, BLOCK):
        *parts, rest = data.split(b"\n")
        for part in parts:
            yield LogLine(*_extend(text, length, part))
            text, length = b"", 0
        text, length = _extend(text, length, rest)
    if length:
        yield LogLine(text, length)


def _extend(text: bytes, length: int, part: bytes) -> tuple[bytes, int]:
    """Return the beginning and the length of a line with another part; a progress bar only in its last state."""
    if b"\r" in part:
        _, overwritten, state = part.rstrip(b"\r").rpartition(b"\r")
        if overwritten:
            return state[:LONGEST], len(state)
        part = state
    return text + part[: max(0, LONGEST - len(text))], length + len(part)


@functools.lru_cache(_MOST_LOGS)
def index_of(path: str) -> LineIndex:
    """Return the index of a log, which this process keeps for a while."""
    return LineIndex(path)
