"""One rank's log as it grows: whole lines, many at once."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import time
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.plan import Plan, RankTask

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

_SETTLED_S = 2.0
"""After its last change a folder's time tells of the next one, however coarse times of the file system are."""

_MOST_FOLDERS = 64


class Block(NamedTuple):
    """Lines of a rank's log. ``lines``: whole ones as the rank wrote them, each with its newline."""

    label: str
    node: int
    lines: bytes
    time: float = 0.0
    """When they were written, in seconds since 1970; 0: just now."""


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

    def begin_at(self, descriptor: int) -> None:
        """Read on from where that descriptor is, which is ours to close from now on. Nothing may have been read yet."""
        self.descriptor = descriptor
        self.files = 1

    def read(self, count: int = CHUNK, *, look: bool = True) -> bytes:
        """
        Return the lines that the next bytes, at most ``count``, complete.

        ``look``: at the end of a file see whether there is one after it, or a first one.
        """
        data = self._more(count, look)
        self.found = len(data)
        return self._complete_lines(data) if data else b""

    @property
    def has_bar(self) -> bool:
        """Return whether the last line is a progress bar, or another unfinished line that overwrites itself."""
        # One at the end may be half of the line's end.
        return not self._raw and 0 <= self._rest.find(b"\r") < len(self._rest) - 1

    def bar(self) -> bytes:
        """Return the newest state of an unfinished progress bar, at intervals."""
        if not self.has_bar or time.monotonic() - self._shown <= _PROGRESS_S:
            return b""
        self._shown = time.monotonic()
        end = self._rest.rfind(b"\r", 0, len(self._rest) - 1)
        progress = bytes(self._rest[:end])
        cut, self._cut = self._cut, 0
        del self._rest[: end + 1]
        return self._line(_last_state(progress), cut)

    def finish(self) -> Iterator[bytes]:
        """Return everything that is left, with an unfinished last line. Closes the file."""
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
        """Open the file again: a network file system shows growth only to a new descriptor."""
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

    def _complete_lines(self, data: bytes) -> bytes:
        if self._raw:
            return self._complete_raw_lines(data)
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

    def _complete_raw_lines(self, data: bytes) -> bytes:
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
        """Keep as much of an unfinished line as may be shown."""
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
        """Return a line as shown. ``cut``: bytes of it that were left out before."""
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
        """Open the file of the next attempt, or the first; that attempt may have ended too."""
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
        """Return the path of the next attempt's file, or of the first; None while there is none."""
        if self.descriptor is not None and _is_same(self.path, self.descriptor):
            return None
        places = [place for _, place in list_earlier(self.path)]
        places = [place for place in [*places, self.path] if is_log(place)]
        if self.descriptor is None:
            return places[0] if places else None
        ours = next(
            (index for index, place in enumerate(places) if _is_same(place, self.descriptor)), len(places)
        )
        return places[ours + 1] if ours + 1 < len(places) else None


def list_ranks(plan: Plan, labels: frozenset[str] | None = None) -> list[tuple[int, RankTask]]:
    """Return the ranks with these labels, each with its node; None: all of them."""
    return [
        (node.node, task)
        for node in plan.nodes
        for task in node.ranks
        if labels is None or task.label in labels
    ]


def find_path(path: str, attempt: int | None) -> str:
    """Return where the log of that path is in an earlier attempt; None: in the present one."""
    folder, name = os.path.split(path)
    return path if attempt is None else os.path.join(folder, f"attempt-{attempt}", name)


def list_earlier(path: str) -> list[tuple[int, str]]:
    """Return the attempts before the present one, and the path that the log of that name would have in each."""
    return [(number, find_path(path, number)) for number in _list_attempts(os.path.dirname(path))]


def _list_attempts(folder: str) -> list[int]:
    """
    List the attempts that have a folder in that one. All logs of a job share it, and there may be thousands: it is read
    once, unless it has just changed, because a change that follows at once need not show.
    """
    try:
        state = os.stat(folder)
    except OSError:
        return []
    is_settled = time.time() - state.st_mtime > _SETTLED_S
    read = _read_attempts if is_settled else _read_attempts.__wrapped__
    return read(folder, state.st_dev, state.st_ino, state.st_mtime_ns)


@functools.lru_cache(_MOST_FOLDERS)
def _read_attempts(folder: str, *_state: int) -> list[int]:
    """Read which attempts a folder has. ``_state``: what tells whether it has changed."""
    numbers = (entry.removeprefix("attempt-") for entry in _entries(folder) if entry.startswith("attempt-"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def shorten_lines(lines: bytes) -> bytes:
    """Return whole lines as a person is shown them: long ones are cut, progress bars in their last state."""
    return RankLog("", "", 0)._lines(lines)


def _last_state(line: bytes) -> bytes:
    """Return what a terminal would show of a line: the text after its last carriage return."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2]


def _last_states(lines: bytes) -> bytes:
    """Do as ``_last_state`` for many lines at once."""
    *overwritten, last = lines.replace(b"\r\n", b"\n").split(b"\r")
    return b"".join([*(piece[: piece.rfind(b"\n") + 1] for piece in overwritten), last])


def _broken(line: bytes, limit: int) -> bytes:
    """Return the line with a newline after every ``limit`` bytes."""
    return b"\n".join(line[start : start + limit] for start in range(0, max(1, len(line)), limit))


def _has_longer(lines: bytes, limit: int) -> bool:
    """Return whether a line is longer than that, not counting its newline."""
    begin = 0
    while len(lines) - begin > limit + 1:
        end = lines.rfind(b"\n", begin, begin + limit + 1)
        if end < 0:
            return True
        begin = end + 1
    return False


def is_log(path: str) -> bool:
    """Return whether the path is a plain file; a job can put a pipe or a link there."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_log(path: str) -> int:
    """Open a log to read it, if it is a plain file and no folder that a job can replace is a link. Raises OSError."""
    if not is_log(path):
        raise OSError(errno.EINVAL, "not a plain file", path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        # What was opened, not what is there by now: that folder, perhaps of an attempt, is below the job's own.
        count = 4 if os.path.dirname(path).rpartition("/")[2].startswith("attempt-") else 3
        really = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
        if really.split("/")[-count:] != path.split("/")[-count:]:
            raise OSError(errno.ELOOP, "in a folder that is a link", path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def open_existing(path: str) -> Iterator[int | None]:
    """Open a log while it is read; None where there is none."""
    try:
        descriptor = open_log(path)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_range(descriptor: int, begin: int, end: int, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield what a log has from one place to another, at most ``chunk`` bytes at a time."""
    while begin < end:
        data = os.pread(descriptor, min(chunk, end - begin), begin)
        if not data:
            return  # Somebody has cut the file.
        begin += len(data)
        yield data


def read_end(path: str, count: int) -> bytes:
    """Return the last bytes of a log, at most ``count``; empty where there is none."""
    with open_existing(path) as descriptor, contextlib.suppress(OSError):
        if descriptor is not None:
            return os.pread(descriptor, count, max(0, os.fstat(descriptor).st_size - count))
    return b""


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
