"""Notes for the agent when the logs of its ranks grow, a line for each look (``contract/log_times.py``)."""

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

INTERVAL_S = 0.9
"""Less than the agent's idle second, so that each of those has a look."""

_DENSE_BYTES = 256 << 10
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
            self._due = now + INTERVAL_S * max(1.0, self._written / _DENSE_BYTES)

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
            self._open()
        self._written += len(line)
        if os.write(self._descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def _open(self) -> None:
        # Not those above it: a run folder that was removed meanwhile stays so.
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(self._path), 0o700)
        # A job can put a pipe or a link in its place.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", self._path)
