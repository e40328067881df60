"""
Lines of several logs in one order, by the times at which agents found them.

An agent looks about once a second, so lines of different ranks are in order up to that second; lines of one rank are
always in theirs. Lines that no look has found have the time at which their file last changed. For very many ranks or
a very long job, looks are put together, and the order is coarser: ``within_s`` says how coarse.
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

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control import terminal
from drumline.control.answer_cache import stamp_files
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.logs.log_history import History, read_looks, read_time
from drumline.control.logs.printer import LogChoice, prefix_of, put_behind
from drumline.control.logs.rank_log import find_path, list_ranks, open_existing, read_range
from drumline.control.logs.view import choose_labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.contract.folder import RunFolder


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


MOST_PIECES = 1 << 15


class RankFile(NamedTuple):
    """The log of one rank in one attempt."""

    rank: int
    label: str
    node: int
    path: str


class MergedRun(NamedTuple):
    """Lines that follow one another in the merged order and in one log; ``log``: its place in the list of logs."""

    number: int
    log: int
    first: int
    lines: int
    time: float
    """In seconds since 1970."""


class MergedLog:
    """The lines as they were when this was made; they have numbers from 0 to ``total``."""

    def __init__(self, files: Sequence[RankFile], looks: Mapping[int, str], deadline: float) -> None:
        """``looks``: the file of each node with its agent's looks. At the deadline the logs are read no further."""
        self.files = list(files)
        self.logs: list[LineIndex] = [index_of(file.path) for file in files]
        grown = [index.grow(deadline) for index in self.logs]
        self.is_whole = all(grown)
        self.counts = [index.count for index in self.logs]
        self.total = sum(self.counts)
        self.within_s = 0.0
        self._numbers, self._firsts, self._which = array("q"), array("q"), array("l")
        self._times = array("d")
        self._by_log: list[array[int]] = [array("l") for _ in files]
        self._fill(sorted(self._cut(looks)))

    def _fill(self, pieces: list[tuple[float, int, int, int]]) -> None:
        number = 0
        for when, log, first, count in pieces:
            self._by_log[log].append(len(self._numbers))
            self._numbers.append(number)
            self._firsts.append(first)
            self._which.append(log)
            self._times.append(when)
            number += count

    def _cut(self, looks: Mapping[int, str]) -> Iterator[tuple[float, int, int, int]]:
        """Yield time, log, first line and number of lines of each piece."""
        nodes = {node: read_looks(path) for node, path in looks.items()}
        spans = [measure_span(data) for data in nodes.values() if data]
        width_s = INTERVAL_S
        if len(self.files) > 1:
            span_s = max((last for _, last in spans), default=0.0) - min(
                (first for first, _ in spans), default=0.0
            )
            width_s = max(INTERVAL_S, span_s * len(self.files) / MOST_PIECES)
            self.within_s = width_s
        for node, data in nodes.items():
            logs = {file.rank: log for log, file in enumerate(self.files) if file.node == node}
            yield from self._cut_node(data, logs, width_s)

    def _cut_node(
        self, data: bytes, logs: Mapping[int, int], width_s: float
    ) -> Iterator[tuple[float, int, int, int]]:
        sizes: dict[int, array[int]] = {rank: array("q") for rank in logs}
        times: dict[int, array[float]] = {rank: array("d") for rank in logs}
        for when, grown in group_looks(data, width_s):
            for rank in grown.keys() & sizes.keys():
                sizes[rank].append(grown[rank])
                times[rank].append(when)
        for rank, log in logs.items():
            yield from self._cut_log(log, sizes[rank], times[rank])

    def _cut_log(
        self, log: int, sizes: Sequence[int], times: Sequence[float]
    ) -> Iterator[tuple[float, int, int, int]]:
        index, first, last = self.logs[log], 0, 0.0
        for ended, when in zip(index.count_ended(sorted(sizes)), times, strict=True):
            last = max(last, when)  # A clock that was set back changes no order within a log.
            if ended > first:
                yield last, log, first, ended - first
                first = ended
        if first < self.counts[log]:
            yield max(last, index.changed), log, first, self.counts[log] - first

    def runs(self, number: int, count: int) -> Iterator[MergedRun]:
        """Yield the lines from that number on."""
        at = max(0, bisect.bisect_right(self._numbers, number) - 1)
        while count > 0 and at < len(self._numbers) and number < self.total:
            skipped = number - self._numbers[at]
            end = self._numbers[at + 1] if at + 1 < len(self._numbers) else self.total
            taken = min(count, end - number)
            yield MergedRun(number, self._which[at], self._firsts[at] + skipped, taken, self._times[at])
            number, count, at = end, count - taken, at + 1

    def number_of(self, log: int, line: int) -> int:
        """Return the number of a line of one log in the merged order."""
        own = self._by_log[log]
        at = bisect.bisect_right(own, line, key=lambda piece: self._firsts[piece]) - 1
        piece = own[max(0, at)]
        return self._numbers[piece] + line - self._firsts[piece]

    def find_first_error(self) -> int | None:
        """Return where the first account of an error begins."""
        places = [
            self.number_of(log, index.first_error)
            for log, index in enumerate(self.logs)
            if index.first_error is not None and index.first_error < self.counts[log]
        ]
        return min(places, default=None)

    def find_time(self, when: float) -> int:
        """Return the number of the first line of that time, in seconds since 1970, or later; else of the last one."""
        at = bisect.bisect_left(self._times, when)
        return self._numbers[at] if at < len(self._numbers) else max(0, self.total - 1)

    def find_last(self) -> float:
        """Return the time of the last line, in seconds since 1970; 0 without any."""
        return self._times[-1] if self._times else 0.0


# sizes at each look of an agent (contract/log_times.py)


INTERVAL_S = 1.0
"""About once in this time an agent looks; in jobs of many days more rarely."""

_SIZES = re.compile(rb" (\d{1,18}):(\d{1,18})\+\d{1,18}(?=[ \n])")


class Sizes(NamedTuple):
    """Each log that had grown, by rank, with its size in bytes at ``time``, in seconds since 1970."""

    time: float
    by_rank: dict[int, int]


def measure_span(looks: bytes) -> tuple[float, float]:
    """Return the times of the first and the last look; zeros without any."""
    last = looks.rfind(b"\n", 0, len(looks) - 1) + 1
    return read_time(looks, 0), read_time(looks, last)


def group_looks(looks: bytes, width_s: float) -> Iterator[Sizes]:
    """Yield what grew within each ``width_s``, in the order of the file, with the time of the last look in it."""
    begin = end = 0
    cell, when = -1, 0.0
    while end < len(looks):
        now = read_time(looks, end)
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


# The logs of a job that a viewer has chosen: of some ranks or nodes, in one attempt.


READ_S = 2.0
"""At most so long are logs read before there is an answer; the next one goes on from there."""

_MOST_KEPT = 8


class ChosenLogs(NamedTuple):
    """The logs of ranks and nodes such as ``0,3-5``, empty for all; ``attempt``, counted from 0, None: the latest."""

    ranks: str = ""
    nodes: str = ""
    attempt: int | None = None


ALL = ChosenLogs()


class JobLogs(NamedTuple):
    """The chosen logs of a job. ``attempt``: counted from 0."""

    folder: RunFolder
    attempt: int
    files: list[RankFile]

    def find(self, rank: int) -> int:
        """Return the place of a rank among the files. Raises UsageError."""
        for place, file in enumerate(self.files):
            if file.rank == rank:
                return place
        raise UsageError(
            f"job {self.folder.name} has no rank {rank}", "the ranks of a job are counted from 0"
        )


def find_logs(name: str, chosen: ChosenLogs) -> JobLogs:
    """
    Return the chosen logs of a job; a pipeline or a sweep has none.

    Raises NotFoundError, UsageError for a rank or an attempt that the job lacks.
    """
    folder = folder_of(name)
    latest = len(read_outcome(folder).attempts)
    number = latest if chosen.attempt is None else chosen.attempt
    if not 0 <= number <= latest:
        there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
        raise UsageError(f"job {name} has no attempt {number}", f"it has {there}")
    if not os.path.exists(folder.plan):
        return JobLogs(folder, number, [])
    plan = read_plan(folder)
    try:
        labels = choose_labels(plan, chosen.ranks, chosen.nodes)
    except UsageError as error:
        # What the command line calls a flag is a parameter here.
        raise UsageError(error.message.removeprefix("--"), error.hint.removeprefix("--node ")) from None
    earlier = None if number == latest else number
    files = [
        RankFile(task.rank, task.label, node, find_path(os.path.join(folder.path, task.log), earlier))
        for node, task in list_ranks(plan, labels)
    ]
    return JobLogs(folder, number, sorted(files))


_merged: dict[tuple[object, ...], tuple[str, MergedLog]] = {}
_merged_lock = threading.Lock()


def merge(logs: JobLogs, limit_s: float = READ_S) -> MergedLog:
    """Return the lines of these logs in one order, as they are now. What is known of them is kept for a while."""
    nodes = {file.node for file in logs.files}
    looks = {node: logs.folder.log_times_path(logs.attempt, node) for node in nodes}
    key = (logs.folder.path, logs.attempt, tuple(file.rank for file in logs.files))
    stamp = stamp_files([*(file.path for file in logs.files), *looks.values()])
    known = _merged.get(key)
    if known is not None and known[0] == stamp and known[1].is_whole:
        return known[1]
    merged = MergedLog(logs.files, looks, time.monotonic() + limit_s)
    with _merged_lock:
        _merged.pop(key, None)
        _merged[key] = (stamp, merged)
        if len(_merged) > _MOST_KEPT:
            del _merged[next(iter(_merged))]
    return merged


# all of the logs as one text


def read_whole(name: str, chosen: ChosenLogs) -> Iterator[bytes]:
    """
    Return what these ranks have written so far, in the order of time as far as it is known, each line behind its rank
    where the job has several.

    Raises NotFoundError, UsageError for a rank or an attempt that the job lacks.
    """
    logs = find_logs(name, chosen)
    if not logs.files:
        return iter(())
    plan = read_plan(logs.folder)
    choice = LogChoice(labels=frozenset(file.label for file in logs.files), attempt=logs.attempt)
    history = History(logs.folder, plan, choice, len(read_outcome(logs.folder).attempts))
    if len(plan.ranks) == 1:
        return (block.lines for block in history.blocks())
    return (put_behind(prefix_of(block).encode(), block.lines) for block in history.blocks())
