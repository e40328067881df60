"""Read the sizes of a node's logs at each look of its agent (``contract/log_times.py``), as coarsely as wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERVAL_S = 1.0
"""About once in this time an agent looks; in jobs of many days more rarely."""

_MOST_BYTES = 256 << 20
_SIZES = re.compile(rb" (\d{1,18}):(\d{1,18})\+\d{1,18}(?=[ \n])")


class Sizes(NamedTuple):
    """Each log that had grown, by rank, with its size in bytes at ``time``, in seconds since 1970."""

    time: float
    by_rank: dict[int, int]


def read_looks(path: str) -> bytes:
    """Return the whole lines of a node's file; empty without one."""
    data = read_plain(path, _MOST_BYTES)
    return data[: data.rfind(b"\n") + 1]


def measure_span(looks: bytes) -> tuple[float, float]:
    """Return the times of the first and the last look; zeros without any."""
    last = looks.rfind(b"\n", 0, len(looks) - 1) + 1
    return _read_time(looks, 0), _read_time(looks, last)


def group_looks(looks: bytes, width_s: float) -> Iterator[Sizes]:
    """Yield what grew within each ``width_s``, in the order of the file, with the time of the last look in it."""
    begin = end = 0
    cell, when = -1, 0.0
    while end < len(looks):
        now = _read_time(looks, end)
        number = int(now // width_s)
        if number != cell and end > begin:
            yield Sizes(when, _read_sizes(looks[begin:end]))
            begin = end
        cell, when = number, now
        end = looks.find(b"\n", end) + 1
    if end > begin:
        yield Sizes(when, _read_sizes(looks[begin:end]))


def _read_sizes(lines: bytes) -> dict[int, int]:
    """Return the last size of each rank."""
    return {int(rank): int(size) for rank, size in _SIZES.findall(lines)}


def _read_time(looks: bytes, begin: int) -> float:
    try:
        return float(looks[begin : begin + 24].split(None, 1)[0])
    except (ValueError, IndexError):
        return 0.0
