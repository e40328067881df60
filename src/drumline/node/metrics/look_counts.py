"""The file in which a rank counts looks at its stack (``node/hook/looks.py``), for the agent."""

from __future__ import annotations

import os
import stat
import struct
from typing import Optional

from drumline.contract.steps import Looks
from drumline.linux import process_usage

_MAGIC = b"DLLOOKS1"
_LAYOUT = struct.Struct("<8sQ4Q")
_MOST = 1 << 16
_WRITTEN_EVERY = 3


def count_written_bytes(ring: str) -> int:
    """Return how many bytes the hook has written for the looks at a rank, which are not the rank's own."""
    data = process_usage.read_bytes(ring + ".looks", _LAYOUT.size)
    return sum(_LAYOUT.unpack(data)[2:]) // _WRITTEN_EVERY * _LAYOUT.size if len(data) == _LAYOUT.size else 0


class LookCounts:
    """The counts of a rank. ``ring``: the path of its ring of steps, beside which the file is, which may not exist."""

    def __init__(self, rank: int, ring: str) -> None:
        self._path = ring + ".looks"
        self._rank = rank
        self._pid = 0
        self._before: tuple[int, ...] = (0, 0, 0, 0)

    def read(self, at: float, monotonic: float) -> Optional[Looks]:
        """Return the looks since the last call; None: none. Raises OSError, but not where there is no file."""
        data = self._read_file()
        if len(data) < _LAYOUT.size:
            return None
        magic, pid, *counts = _LAYOUT.unpack(data)
        if magic != _MAGIC or pid >= 1 << 63:
            return None
        if pid != self._pid or any(now < before for now, before in zip(counts, self._before)):
            # The rank's next program.
            self._pid, self._before = pid, (0, 0, 0, 0)
        more = tuple(now - before for now, before in zip(counts, self._before))
        self._before = tuple(counts)
        # More than there can be are something else of the job's.
        return Looks(at, monotonic, self._rank, pid, more) if any(more) and max(more) <= _MOST else None

    def _read_file(self) -> bytes:
        try:
            # A job can put a pipe or a link in its place.
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(f"{self._path} is no file")
            return os.pread(file, _LAYOUT.size, 0)
        finally:
            os.close(file)
