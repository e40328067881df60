"""One rank's log as it grows: whole lines, many at once."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_LIMIT = 64 * 1024
"""Bytes of a line that a person is shown; the file has all of them."""

RAW_LINE_LIMIT = 64 * 1024 * 1024
"""
Bytes of a line that are held in memory, so that lines of several ranks do not mix in a pipe or file. A longer line is
broken there into several: no byte is lost.
"""

CHUNK = 1 << 18

_PROGRESS_S = 1.0
"""How often a progress bar that never ends its line is shown."""


class RankLog:
    """
    One rank's files, those of all attempts one after the other, read from where they were left.

    ``raw``: lines as they are, progress bars too. What is returned are whole lines, each with its newline.
    """

    def __init__(self, path: str, label: str, node: int, *, raw: bool = False) -> None:
        self.path = path
        self.label = label
        self.node = node
        self.descriptor: int | None = None
        self.files = 0
        """How many were opened so far."""

        self.found = 0
        """Bytes that the last read found."""

        self._raw = raw
        self._limit = RAW_LINE_LIMIT if raw else LINE_LIMIT
        self._rest = bytearray()
        self._cut = 0
        self._shown = 0.0

    def read(self, count: int = CHUNK, *, look: bool = True) -> bytes:
        """
        The lines that the next bytes, at most ``count``, complete.

        ``look``: at the end of a file see whether there is one after it, or a first one.
        """
        data = self._more(count, look)
        self.found = len(data)
        return self._completed(data) if data else b""

    @property
    def has_bar(self) -> bool:
        """Whether there is a progress bar, or another line that is written over itself and has not ended."""
        # One at the end may be half of the line's end.
        return not self._raw and 0 <= self._rest.find(b"\r") < len(self._rest) - 1

    def bar(self) -> bytes:
        """Of an unfinished progress bar its newest state, now and then."""
        if not self.has_bar or time.monotonic() - self._shown <= _PROGRESS_S:
            return b""
        self._shown = time.monotonic()
        end = self._rest.rfind(b"\r", 0, len(self._rest) - 1)
        progress = bytes(self._rest[:end])
        cut, self._cut = self._cut, 0
        del self._rest[: end + 1]
        return self._line(_last_state(progress), cut)

    def finish(self) -> Iterator[bytes]:
        """Everything that is left, a last line without its end included. Closes the file."""
        yield from self._all()
        self.open_again()
        yield from self._all()
        if self._rest:
            rest = bytes(self._rest)
            yield rest + b"\n" if self._raw else self._line(_last_state(rest), self._cut)
        self._rest = bytearray()
        self.close()

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def open_again(self) -> None:
        """A network file system shows how long a file is by now to whoever opens it, not to whoever has it open."""
        if self.descriptor is None or not _is_same(self.path, self.descriptor):
            return
        with contextlib.suppress(OSError):
            again = open_log(self.path)
            os.lseek(again, os.lseek(self.descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
            os.close(self.descriptor)
            self.descriptor = again

    def _all(self) -> Iterator[bytes]:
        lines = self.read()
        while self.found:
            if lines:
                yield lines
            lines = self.read()
        if lines := self.bar():
            yield lines

    # ---------------------------------------------------------------- lines

    def _completed(self, data: bytes) -> bytes:
        if self._raw:
            return self._completed_raw(data)
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return b""
        lines = bytes(self._rest) + data[:end] if self._rest else data[:end]
        cut, self._cut = self._cut, 0
        self._rest = bytearray()
        self._keep(data[end:])
        if not cut:
            return self._lines(lines)
        first, _, others = lines.partition(b"\n")
        return self._line(_last_state(first), cut) + self._lines(others)

    def _completed_raw(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        lines = bytes(self._rest) + data[:end] if self._rest and end else data[:end]
        if end:
            self._rest.clear()
        self._rest += data[end:]
        if _has_longer(lines, self._limit):
            lines = b"".join(_broken(line, self._limit) + b"\n" for line in lines[:-1].split(b"\n"))
        while len(self._rest) > self._limit:
            lines += self._rest[: self._limit] + b"\n"
            del self._rest[: self._limit]
        return lines

    def _keep(self, data: bytes) -> None:
        """Of a line that has not ended, as much as may be shown."""
        self._rest += data
        if len(self._rest) > self._limit:
            # All but the last two states of a progress bar will never be seen.
            before = self._rest.rfind(b"\r", 0, max(0, self._rest.rfind(b"\r")))
            del self._rest[: before + 1]
        if len(self._rest) > self._limit:
            self._cut += len(self._rest) - self._limit
            del self._rest[self._limit :]

    def _lines(self, lines: bytes) -> bytes:
        if b"\r" in lines:
            lines = _last_states(lines)
        if _has_longer(lines, self._limit):
            return b"".join(self._line(line) for line in lines[:-1].split(b"\n"))
        return lines

    def _line(self, text: bytes, cut: int = 0) -> bytes:
        """``cut``: bytes of it that were left out before."""
        if len(text) > self._limit or cut:
            left_out = cut + max(0, len(text) - self._limit)
            text = text[: self._limit] + b" ... (%d bytes more)" % left_out
        return text + b"\n"

    # ---------------------------------------------------------------- files

    def _more(self, count: int, look: bool) -> bytes:
        if self.descriptor is None:
            self.descriptor = self._open_next() if look else None
            if self.descriptor is None:
                return b""
        while not (data := os.read(self.descriptor, count)):
            newer = self._open_next() if look else None
            if newer is None:
                return b""
            # Between the last look and the other file's coming it may have grown. Now nobody writes to it any more.
            rest = os.read(self.descriptor, count) or (b"\n" if self._rest else b"")
            if rest:
                os.close(newer)
                return rest
            os.close(self.descriptor)
            self.descriptor = newer
        return data

    def _open_next(self) -> int | None:
        """The file after this one, or the first; by now that attempt may have ended too."""
        path = self._next()
        if path is None:
            return None
        try:
            descriptor = open_log(path)
        except OSError:
            return None
        path = self._next()
        if path is not None and _is_same(path, descriptor):
            self.files += 1
            return descriptor
        os.close(descriptor)  # It was put aside at this moment: the next look finds it.
        return None

    def _next(self) -> str | None:
        """Where the file of the attempt after this one is, or of the first attempt; None while there is none."""
        if self.descriptor is not None and _is_same(self.path, self.descriptor):
            return None
        folder, name = os.path.split(self.path)
        numbers = sorted(
            int(entry.removeprefix("attempt-"))
            for entry in _entries(folder)
            if entry.startswith("attempt-") and entry.removeprefix("attempt-").isdecimal()
        )
        places = [os.path.join(folder, f"attempt-{number}", name) for number in numbers]
        places = [place for place in [*places, self.path] if is_log(place)]
        if self.descriptor is None:
            return places[0] if places else None
        ours = next(
            (index for index, place in enumerate(places) if _is_same(place, self.descriptor)), len(places)
        )
        return places[ours + 1] if ours + 1 < len(places) else None


def _last_state(line: bytes) -> bytes:
    """A carriage return overwrites: what a terminal would show is what came after the last one."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2]


def _last_states(lines: bytes) -> bytes:
    """The same of many lines at once."""
    *overwritten, last = lines.replace(b"\r\n", b"\n").split(b"\r")
    return b"".join([*(piece[: piece.rfind(b"\n") + 1] for piece in overwritten), last])


def _broken(line: bytes, limit: int) -> bytes:
    """The line with a newline after every ``limit`` bytes of it but the last."""
    return b"\n".join(line[start : start + limit] for start in range(0, max(1, len(line)), limit))


def _has_longer(lines: bytes, limit: int) -> bool:
    """Whether a line is longer than that, its newline not counted."""
    begin = 0
    while len(lines) - begin > limit + 1:
        end = lines.rfind(b"\n", begin, begin + limit + 1)
        if end < 0:
            return True
        begin = end + 1
    return False


def is_log(path: str) -> bool:
    """Whether it is a plain file: a job can put a pipe or a link there, and many attempts."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_log(path: str) -> int:
    """Raises OSError, and never blocks."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _is_same(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
