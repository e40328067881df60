"""Files of an agent that grow slowly: samples, of which fewer are kept the longer a job runs, and times of logs."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import log_times

if TYPE_CHECKING:
    from collections.abc import Mapping


INTERVAL_S = 5.0

_DENSE_BYTES = 240 << 10
_STEP_BYTES = 16 << 10
_MAX_BYTES = 8 << 20


def compute_kept_interval_s(size: int, interval_s: float = INTERVAL_S) -> float:
    """
    Return how many seconds apart the lines are that a file of that many bytes keeps.

    ``interval_s`` in the beginning, as long as there is room, then more and more, so that it grows with the square root
    of the time. For 8 ranks that is 5 s in the first half hour and 20 min after a month, at 4 MB.
    """
    if size >= _MAX_BYTES:
        return float("inf")
    return interval_s * max(1.0, (size - _DENSE_BYTES) / _STEP_BYTES)


class SampleLines:
    """
    The lines, of which the last two are always the newest: what is not to be kept is written over by the next one.

    ``interval_s``: between two lines, as long as there is room for all; 0: keep all. ``name``: of their content.
    """

    def __init__(self, path: str, interval_s: float = INTERVAL_S, name: str = "system metrics") -> None:
        self._path = path
        self._interval_s = interval_s
        self._name = name
        self._descriptor = -1
        self._size = 0
        """Of the lines that are kept."""

        self._kept_at = float("-inf")
        self._last: list[tuple[float, bytes]] = []
        self._has_failed = False

    def add(self, line: bytes, now: float) -> None:
        """
        Add a line. ``now``: monotonic seconds. An error is said once, on standard error, and the next line tried again.
        """
        self._last.append((now, line))
        # A little less than the interval will do: lines are a moment more or less apart.
        interval_s = compute_kept_interval_s(self._size, self._interval_s) - self._interval_s / 2
        if len(self._last) > 2 and self._last[0][0] - self._kept_at < interval_s:
            del self._last[0]
        try:
            if self._descriptor < 0:
                self._open()
            data = b"".join(text for _, text in self._last)
            if os.pwrite(self._descriptor, data, self._size) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            os.ftruncate(self._descriptor, self._size + len(data))
            if len(self._last) > 2:
                self._kept_at = self._last[0][0]
                self._size += len(self._last[0][1])
        except OSError as error:
            if not self._has_failed:
                print(f"{self._name}: {error}", file=sys.stderr)
            self._has_failed = True
        del self._last[:-2]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> None:
        """Open the file at the end of what earlier attempts have left. Raises OSError."""
        descriptor = _open_to_write(self._path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                os.pwrite(descriptor, b"\n", size)
            self._size = os.fstat(descriptor).st_size
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor


def _open_to_write(path: str, flags: int) -> int:
    """Open a plain file, and make it and its folder where they are missing. Raises OSError."""
    # Not those above it: a run folder that was removed meanwhile stays so.
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(path), 0o700)
    # A job can put a pipe or a link in its place.
    flags |= os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return descriptor


# Notes for the agent when the logs of its ranks grow, a line for each look (``contract/log_times.py``).


GROWTH_INTERVAL_S = 0.9
"""Less than the agent's idle second, so that each of those has a look."""

_DENSE_GROWTH_BYTES = 256 << 10
"""From this size on looks become rarer, so that the file grows with the square root of the time."""


class LogTimes:
    """
    Notes when logs have grown. ``logs``: their paths, by rank. Nothing is raised: a disk that is full, or a folder that
    is read-only, costs times and nothing else.
    """

    def __init__(self, path: str, logs: Mapping[int, str]) -> None:
        self._path = path
        self._logs = logs
        self._sizes: dict[int, int] = {}
        self._descriptor = -1
        self._written = 0
        self._due = 0.0

    def look(self, *, last: bool = False) -> None:
        """Look whether one has grown, if it is time for that. ``last``: in any case."""
        now = time.monotonic()
        if now < self._due and not last:
            return
        try:
            grown = list(self._find_grown())
            if grown:
                self._write(log_times.to_line(time.time(), grown))
        except OSError as error:
            print(f"times of logs: {error}; no more are noted", file=sys.stderr)
            self._due = float("inf")
            self._logs = {}
        else:
            self._due = now + GROWTH_INTERVAL_S * max(1.0, self._written / _DENSE_GROWTH_BYTES)

    def close(self) -> None:
        """Note what came since the last look."""
        self.look(last=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._logs = {}

    def _find_grown(self) -> list[log_times.Growth]:
        grown = []
        for rank, path in self._logs.items():
            try:
                size = os.stat(path, follow_symlinks=False).st_size
            except OSError:
                continue
            before = self._sizes.get(rank, 0)
            if size > before:
                self._sizes[rank] = size
                grown.append(log_times.Growth(rank, size, size - before))
        return grown

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = _open_to_write(self._path, os.O_WRONLY | os.O_APPEND)
        self._written += len(line)
        if os.write(self._descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
