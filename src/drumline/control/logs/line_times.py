"""
The times at which the lines of a log were written, as far as they are known.

Lines have no times of their own. The agent of a node notes about once a second how far each log has come
(``contract/log_times.py``), so a line has the time of the first look that found it, up to a second late; late in jobs
of many days, up to a minute. For lines that no look has found, such as those of a job shorter than a second, it is the
time at which their file last changed.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING

from drumline.contract import log_times
from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_BYTES = 256 << 20


class Stretch(NamedTuple):
    """The bytes of a log from ``begin`` to ``end`` were there at ``time``, in seconds since 1970."""

    begin: int
    end: int
    time: float


def read_stretches(path: str, since: float = 0.0) -> Mapping[int, list[Stretch]]:
    """Return what the looks of an agent say of each rank's log, by rank; ``since``: only looks from then on."""
    data = read_plain(path, _MOST_BYTES)
    found: defaultdict[int, list[Stretch]] = defaultdict(list)
    for line in data[_find_line(data, since) :].splitlines(keepends=True):
        look = log_times.from_line(line)
        for grown in look.grown if look else ():
            assert look
            found[grown.rank].append(Stretch(grown.size - grown.added, grown.size, look.time))
    return found


def cut_stretches(known: Iterable[Stretch], begin: int, end: int, last: float) -> list[Stretch]:
    """
    Return stretches that cover a log from ``begin`` to ``end`` without a gap. ``last``: when its file last changed.

    >>> [tuple(one) for one in cut_stretches([Stretch(0, 10, 1.0), Stretch(10, 30, 2.0)], 5, 40, 9.0)]
    [(5, 10, 1.0), (10, 30, 2.0), (30, 40, 9.0)]
    """
    found = []
    for one in known:
        upto = min(one.end, end)
        if upto > begin:
            found.append(Stretch(begin, upto, one.time))
            begin = upto
    if begin < end:
        found.append(Stretch(begin, end, last))
    return found


def find_offset(known: Sequence[Stretch], since: float) -> int:
    """Return from which byte on a log was written at ``since`` or later."""
    index = bisect.bisect_left([one.time for one in known], since)
    if index < len(known):
        return known[index].begin
    return known[-1].end if known else 0


def _find_line(data: bytes, since: float) -> int:
    """Return where the first line of ``since`` or later begins."""
    low, high = 0, len(data)
    while low < high:
        begin = data.rfind(b"\n", low, (low + high) // 2) + 1 or low
        end = data.find(b"\n", begin, high) + 1 or high
        if _read_time(data[begin : begin + 20]) < since:
            low = end
        else:
            high = begin
    return low


def _read_time(line: bytes) -> float:
    try:
        return float(line.split(None, 1)[0])
    except (ValueError, IndexError):
        return 0.0
