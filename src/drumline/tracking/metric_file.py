"""The file of one metric, read while ranks write to it."""

from __future__ import annotations

import json
import time
from array import array
from typing import TYPE_CHECKING, BinaryIO

from drumline.contract.folder import open_plain
from drumline.tracking.metrics import MOST_BYTES, metric_path

if TYPE_CHECKING:
    from drumline.tracking.series import Series

_CHUNK = 1 << 18
_PLAIN = b"0123456789.eE+- \n"
_COMMAS = bytes.maketrans(b" \n", b",,")


class MetricFile:
    """A metric's file that grows; each call of ``read_more`` goes on where the last one ended."""

    def __init__(self, run_dir: str, name: str, series: Series) -> None:
        """Open the file of a metric. Raises UsageError for a name that cannot be."""
        self._path = metric_path(run_dir, name)
        self._offset = 0
        self.series = series

    def read_more(self, deadline: float) -> None:
        """Read to its end, or until that time on the monotonic clock. Never raises for a file that cannot be read."""
        self.series.is_cut = False
        try:
            with open_plain(self._path) as file:
                while self._take(file):
                    if time.monotonic() > deadline or self._offset >= MOST_BYTES:
                        self.series.is_cut = True
                        return
        except OSError:
            return

    def _take(self, file: BinaryIO) -> bool:
        """Read one part; return False at the end."""
        file.seek(self._offset)
        data = file.read(_CHUNK)
        whole = data.rfind(b"\n") + 1
        # What is longer than a chunk is no line of ours.
        taken = whole or (len(data) if len(data) == _CHUNK else 0)
        if not self._take_at_once(data[:whole]):
            self._take_lines(data[:whole])
        self._offset += taken
        return len(data) == _CHUNK

    def _take_at_once(self, lines: bytes) -> bool:
        """
        Add lines that all have time, value and step, as plain numbers; return False for others.

        JSON's reader makes numbers of text faster than anything else here, and makes no object of each word.
        """
        count = lines.count(b"\n")
        if lines.count(b" ") != 2 * count or lines.translate(None, _PLAIN):
            return False
        try:
            numbers = json.loads(b"[%b0]" % lines.translate(_COMMAS))
            steps, times = array("q", numbers[2::3]), array("q", numbers[:-1:3])
            values = array("d", numbers[1::3])
        except (ValueError, TypeError, OverflowError):
            return False
        if len(numbers) != 3 * count + 1:
            return False
        self.series.add_many(steps, times, values)
        return True

    def _take_lines(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            parts = line.split(b" ")
            try:
                self.series.add(int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1]))
            except (ValueError, IndexError, OverflowError):
                continue
