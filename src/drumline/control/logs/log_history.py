"""
The lines that ranks have written so far, or the part of them that somebody wants to see.

``--tail`` and ``--since`` find where to begin from the end of a file and from the times that agents noted, so the size
of a log does not matter to them.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from drumline.contract import log_times
from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple
from drumline.control.logs import rank_log
from drumline.control.logs.rank_log import Block, list_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan, RankTask
    from drumline.control.logs.matching import Matcher
    from drumline.control.logs.printer import LogChoice


_ALL_CHUNKS = 1 << 25
"""Bytes of all logs together that are held at a time."""

_SMALLEST_CHUNK = 1 << 14


class _File:
    """The log of a rank in one attempt; what is shown of it is from ``begin`` to ``end``."""

    def __init__(self, path: str, attempt: int, end: int, changed: float, known: list[Stretch]) -> None:
        self.path = path
        self.attempt = attempt
        self.begin = 0
        self.end = end
        self.changed = changed
        self.known = known


class _Rank(NamedTuple):
    label: str
    node: int
    files: list[_File]


class History:
    """
    The lines that a job has logged so far. ``attempt``: the number of the latest one. ``raw``: every byte as it is,
    else as a person is shown it. ``follows``: stop after the last whole line; ``take_open`` then has the files to read
    on from there.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        choice: LogChoice,
        attempt: int,
        *,
        raw: bool = True,
        follows: bool = False,
    ) -> None:
        self._folder = folder
        self._choice = choice
        self._latest = attempt
        self._raw = raw
        self._times: dict[tuple[int, int, float], Mapping[int, list[Stretch]]] = {}
        self._open: dict[str, int] = {}
        self._ranks = [
            self._look_at(task, node, follows=follows) for node, task in list_ranks(plan, choice.labels)
        ]

    @property
    def labels(self) -> frozenset[str]:
        """Return the labels of the ranks that were chosen."""
        return frozenset(rank.label for rank in self._ranks)

    def take_open(self) -> dict[str, int]:
        """Return descriptors, for the caller to close, each where its history ends, by label."""
        taken, self._open = self._open, {}
        return taken

    def blocks(self) -> Iterator[Block]:
        """Return what was written, by time as far as it is known, each rank's lines in their order."""
        chunk = max(_SMALLEST_CHUNK, min(rank_log.CHUNK, _ALL_CHUNKS // max(1, len(self._ranks))))
        parts = [self._read(rank, chunk) for rank in self._ranks]
        for _, _, block in heapq.merge(*parts, key=lambda part: part[:2]):
            yield block if self._raw else block._replace(lines=rank_log.shorten_lines(block.lines))

    # ---------------------------------------------------------------- where to begin

    def _look_at(self, task: RankTask, node: int, *, follows: bool) -> _Rank:
        path = os.path.join(self._folder.path, task.log)
        files, descriptor = [], None
        for number, place in [*rank_log.list_earlier(path), (self._latest, path)]:
            if self._choice.attempt not in (None, number):
                continue
            try:
                opened = rank_log.open_log(place)
            except OSError:
                continue
            if descriptor is not None:
                os.close(descriptor)
            descriptor = opened
            files.append(self._describe(place, descriptor, number, node, task.rank))
        if descriptor is not None and follows:
            files[-1].end = find_line_end(descriptor, files[-1].end)
            os.lseek(descriptor, files[-1].end, os.SEEK_SET)
            self._open[task.label] = descriptor
        elif descriptor is not None:
            os.close(descriptor)
        if (tail := self._choice.tail) is not None:
            for file in reversed(files):
                with rank_log.open_existing(file.path) as log:
                    if log is not None:
                        file.begin, tail = find_tail(log, file.begin, file.end, tail, self._choice.matcher)
        return _Rank(task.label, node, files)

    def _describe(self, path: str, descriptor: int, attempt: int, node: int, rank: int) -> _File:
        known = os.fstat(descriptor)
        since = self._choice.since
        stretches = self._read_times(attempt, node, since).get(rank, [])
        if since and not stretches and known.st_mtime >= since:
            # Nothing that a look has found: what came since the last one is at the end of what all of them say.
            stretches = self._read_times(attempt, node, 0.0).get(rank, [])
        file = _File(path, attempt, known.st_size, known.st_mtime, stretches)
        if since:
            begin = find_offset(stretches, since) if known.st_mtime >= since else known.st_size
            file.begin = find_line_end(descriptor, min(begin, known.st_size))
        return file

    def _read_times(self, attempt: int, node: int, since: float) -> Mapping[int, list[Stretch]]:
        key = (attempt, node, since)
        if key not in self._times:
            self._times[key] = read_stretches(self._folder.log_times_path(attempt, node), since)
        return self._times[key]

    # ---------------------------------------------------------------- reading

    def _read(self, rank: _Rank, chunk: int) -> Iterator[tuple[int, float, Block]]:
        for file in rank.files:
            with rank_log.open_existing(file.path) as descriptor:
                for time, lines in _read_lines(descriptor, file, chunk) if descriptor is not None else ():
                    yield file.attempt, time, Block(rank.label, rank.node, lines, time)


def _read_lines(descriptor: int, file: _File, chunk: int) -> Iterator[tuple[float, bytes]]:
    """Return whole lines with the time of the last of their bytes; one that is not whole gets its newline."""
    rest = bytearray()
    for stretch in cut_stretches(file.known, file.begin, file.end, file.changed):
        for data in rank_log.read_range(descriptor, stretch.begin, stretch.end, chunk):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield stretch.time, bytes(rest) + data[:cut]
                rest.clear()
            rest += data[cut:]
            while len(rest) > rank_log.RAW_LINE_LIMIT:
                yield stretch.time, bytes(rest[: rank_log.RAW_LINE_LIMIT]) + b"\n"
                del rest[: rank_log.RAW_LINE_LIMIT]
    if rest:
        yield file.changed, bytes(rest) + b"\n"


def find_line_end(descriptor: int, upto: int) -> int:
    """
    Return where the last line before ``upto`` ends that is whole; 0 where there is none. In a line that is longer than
    any that is shown whole, that is ``upto``.
    """
    position, count = upto, 1 << 12
    first = max(0, upto - rank_log.RAW_LINE_LIMIT)
    while position > first:
        begin = max(first, position - count)
        cut = os.pread(descriptor, position - begin, begin).rfind(b"\n") + 1
        if cut:
            return begin + cut
        position, count = begin, min(count * 4, rank_log.CHUNK)
    return upto if first else 0


def find_tail(
    descriptor: int, begin: int, end: int, count: int, matcher: Matcher | None = None
) -> tuple[int, int]:
    """
    Return where the last ``count`` lines between ``begin`` and ``end`` begin, and how many of them are not there.

    ``matcher``: only lines that match count. Both ends are ends of lines, but for an unfinished last one.
    """
    position, size, carry = end, rank_log.CHUNK, b""
    while count > 0 and position > begin:
        start = max(begin, position - size)
        data = os.pread(descriptor, position - start, start) + carry
        cut = 0 if start == begin else data.find(b"\n") + 1
        position = start
        if start > begin and not cut:
            if len(data) < rank_log.RAW_LINE_LIMIT:
                carry, size = data, size * 2
                continue
            cut = 0  # A line that is longer than any is shown counts in pieces.
        carry, size = data[:cut], rank_log.CHUNK
        places = _find_last(data[cut:], count, matcher)
        if len(places) == count:
            return start + cut + places[0], 0
        count -= len(places)
    return (begin, count) if count else (end, 0)


def _find_last(lines: bytes, count: int, matcher: Matcher | None) -> list[int]:
    """Return where the last lines begin, ``count`` at most, in their order."""
    if matcher is not None:
        begins = [0, *itertools.accumulate(len(line) + 1 for line in lines.split(b"\n"))]
        return [begins[number] for number in matcher.find_within_limit(lines)][-count:]
    places: list[int] = []
    end = len(lines) - 1
    while len(places) < count and end >= 0:
        begin = lines.rfind(b"\n", 0, end) + 1
        places.append(begin)
        end = begin - 1
    return places[::-1]


# times


_MOST_BYTES = 256 << 20


class Stretch(NamedTuple):
    """The bytes of a log from ``begin`` to ``end`` were there at ``time``, in seconds since 1970."""

    begin: int
    end: int
    time: float


def read_looks(path: str) -> bytes:
    """Return the whole lines of a node's file of times; empty without one."""
    data = read_plain(path, _MOST_BYTES)
    return data[: data.rfind(b"\n") + 1]


def read_stretches(path: str, since: float = 0.0) -> Mapping[int, list[Stretch]]:
    """Return what the looks of an agent say of each rank's log, by rank; ``since``: only looks from then on."""
    data = read_looks(path)
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
        if read_time(data, begin) < since:
            low = end
        else:
            high = begin
    return low


def read_time(looks: bytes, begin: int) -> float:
    """Return the time of the look whose line begins there; 0 where there is none."""
    try:
        return float(looks[begin : begin + 24].split(None, 1)[0])
    except (ValueError, IndexError):
        return 0.0
