"""The steps of a node's ranks, folded by its agent into windows of about a second (``contract/steps.py``)."""

from __future__ import annotations

import math
import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Optional

from drumline.contract import steps
from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple
from drumline.contract.steps import MOST_CALLS, Looks, StepCalls, Total
from drumline.linux import process_usage
from drumline.node.metrics.log_files import SampleLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# The ring in which a rank notes its steps (``node/hook/steps.py``), for the agent: what came since the last look.

_MAGIC = b"DLSTEPS2"
_HEADER_BYTES = 4096
_RECORD = struct.Struct("<Q10dQ")
_CAPACITY = 4096
_HEAD = struct.Struct("<8sQqq24xQ")
_TOTAL_AT, _TOTAL = 32, struct.Struct("<qq")
_PASS_AT = 48
_SOURCE_AT, _SOURCE_BYTES = 64, 128
_BUCKETS_AT, _BUCKETS_BYTES = 192, 2048
_CALLS_AT, _CALL_SLOTS = _HEADER_BYTES + _CAPACITY * _RECORD.size, 8
_CALL_SLOT = struct.Struct(f"<QQ{MOST_CALLS}dQ")


class StepRecord(NamedTuple):
    """
    A step of a rank, in seconds. ``number``: from 1; ``at``: when it ended, since 1970. Of the first step of a program
    neither the time nor the parts are numbers: when it began is not known.

    ``comm`` and what follows are of the step before, and not a number where they are not known: ``collective``
    and ``entry`` say which collective the rank entered when.
    """

    number: int
    at: float
    step: float
    input: float
    forward: float
    backward: float
    comm: float
    overlap: float
    collective: float
    entry: float
    spare: float
    again: int


class StepRing:
    """The ring in the file ``path``, which may not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._read = 0
        self.pid = 0
        self.begun = 0
        """By which the rank's next program differs, even if it has the same process."""

        self.is_detailed = False

    def read(self) -> list[StepRecord]:
        """Return the steps since the last call, oldest first. Raises OSError, but not where there is no file."""
        if self._descriptor < 0:
            try:
                with open_plain(self._path) as file:
                    self._descriptor = os.dup(file.fileno())
            except FileNotFoundError:
                return []
        header = self._read_bytes(_HEAD.size, 0)
        if len(header) < _HEAD.size:
            return []
        magic, head, pid, is_detailed, begun = _HEAD.unpack(header)
        if magic != _MAGIC or head >= 1 << 62:
            return []
        if begun != self.begun:  # The rank's next program.
            self._read, self.pid, self.begun, self.is_detailed = 0, pid, begun, bool(is_detailed)
        first = max(self._read, head - _CAPACITY)
        steps = [step for step in map(self._read_step, range(first, head)) if step is not None]
        self._read = head
        return steps

    def read_total(self) -> Optional[Total]:
        """Return the number of steps of the whole training; None: not known. Raises OSError."""
        data = self._read_bytes(_TOTAL.size, _TOTAL_AT)
        if len(data) < _TOTAL.size:
            return None
        total, before = _TOTAL.unpack(data)
        if not 0 < total < 1 << 53 or not 0 <= before < 1 << 53:
            return None
        source = self._read_bytes(_SOURCE_BYTES, _SOURCE_AT).partition(b"\0")[0]
        return Total(total, before, source.decode("utf-8", "replace"))

    def read_pass(self) -> int:
        """Return how many steps a pass over the training's data makes; 0: not known. Raises OSError."""
        data = self._read_bytes(8, _PASS_AT)
        steps = int.from_bytes(data, "little") if len(data) == 8 else 0
        return steps if steps < 1 << 53 else 0

    def read_buckets(self) -> tuple[int, ...]:
        """Return the sizes of the buckets that are reduced in a step; empty: not known. Raises OSError."""
        data = self._read_bytes(_BUCKETS_BYTES, _BUCKETS_AT)
        sizes = data.partition(b"\0")[0].replace(b",", b" ").split()
        return tuple(int(size) for size in sizes if size.isdigit() and len(size) < 16)

    def read_calls(self) -> list[StepCalls]:
        """Return when the collectives of the newest steps of which that is noted began. Raises OSError."""
        data = self._read_bytes(_CALL_SLOTS * _CALL_SLOT.size, _CALLS_AT)
        data = data[: len(data) // _CALL_SLOT.size * _CALL_SLOT.size]
        found = []
        for number, count, *times, again in _CALL_SLOT.iter_unpack(data):
            entered = tuple(times[:count])
            # A slot may be written over meanwhile, or be something else of the job's.
            is_whole = number == again and number and 0 < count <= MOST_CALLS
            if is_whole and all(0.0 < at < 1e11 for at in entered):
                found.append(StepCalls(number, entered))
        return sorted(found)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _read_bytes(self, size: int, at: int) -> bytes:
        """Return what is there now; nothing before there is a file. Raises OSError."""
        return os.pread(self._descriptor, size, at) if self._descriptor >= 0 else b""

    def _read_step(self, index: int) -> Optional[StepRecord]:
        data = self._read_bytes(_RECORD.size, _HEADER_BYTES + index % _CAPACITY * _RECORD.size)
        if len(data) < _RECORD.size:
            return None
        step = StepRecord(*_RECORD.unpack(data))
        # It may have been written over meanwhile, or be something else of the job's.
        is_whole = step.number == step.again == index + 1 and 0.0 < step.at < 1e11
        are_seconds = all(0.0 <= value < 1e9 or math.isnan(value) for value in step[2:8])
        return step if is_whole and are_seconds else None


# The file in which a rank counts looks at its stack (``node/hook/looks.py``), for the agent.

_COUNTS_MAGIC = b"DLLOOKS1"
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
        try:
            with open_plain(self._path) as file:
                data = file.read(_LAYOUT.size)
        except FileNotFoundError:
            return None
        if len(data) < _LAYOUT.size:
            return None
        magic, pid, *counts = _LAYOUT.unpack(data)
        if magic != _COUNTS_MAGIC or pid >= 1 << 63:
            return None
        if pid != self._pid or any(now < before for now, before in zip(counts, self._before)):
            # The rank's next program.
            self._pid, self._before = pid, (0, 0, 0, 0)
        more = tuple(now - before for now, before in zip(counts, self._before))
        self._before = tuple(counts)
        # More than there can be are something else of the job's.
        return Looks(at, monotonic, self._rank, pid, more) if any(more) and max(more) <= _MOST else None


INTERVAL_S = 0.9
"""Less than the agent's idle second, so that each of those has a look."""

MOST_DETAILED = 2000
"""Steps of a rank in an attempt of which each is kept, where that is asked for."""

_MOST_ENTRIES = 16
_MOST_STEPS_WITH_CALLS = 2
"""In a window."""

_NAN = float("nan")
_UNKNOWN = StepRecord(0, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, 0)


class StepWindows:
    """
    Folds the steps of ranks. ``path``: the file for the windows. ``folder``: holds a ring for each rank, by its number;
    it may not exist yet. Nothing is raised: whatever is wrong with the files costs windows and nothing else.
    """

    def __init__(
        self, path: str, folder: str, ranks: Iterable[int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._path = path
        self._ranks = [_RankWindows(rank, StepRing(os.path.join(folder, str(rank)))) for rank in ranks]
        self._looks = [LookCounts(one.rank, os.path.join(folder, str(one.rank))) for one in self._ranks]
        self._file: Optional[SampleLines] = None
        self._is_detailed = False
        self._due = 0.0
        self._is_broken = False

    def look(self, *, last: bool = False) -> None:
        """Fold what came since the last look, if it is time for that. ``last``: in any case."""
        now = self._clock()
        if self._is_broken or (now < self._due and not last):
            return
        self._due = now + INTERVAL_S
        try:
            at = time.time()
            windows = [window for rank in self._ranks for window in rank.fold(at, now, last=last)]
            looks = [found for one in self._looks if (found := one.read(at, now))]
            if windows or looks:
                self._write(windows, looks, now)
        except Exception as error:  # noqa: BLE001 - ranks and agent go on without it
            self._is_broken = True
            print(f"steps: {error!r}; no more are noted", file=sys.stderr)

    def close(self) -> None:
        """Fold what came since the last look: the ranks have ended."""
        self.look(last=True)
        for rank in self._ranks:
            rank.ring.close()
        if self._file:
            self._file.close()
        self._is_broken = True

    def _write(self, windows: Sequence[steps.Window], looks: Sequence[steps.Looks], now: float) -> None:
        is_detailed = self._is_detailed or any(window.every for window in windows)
        if self._file is None or is_detailed != self._is_detailed:
            if self._file:
                self._file.close()
            self._is_detailed = is_detailed
            self._file = SampleLines(self._path, 0.0 if is_detailed else 1.0, "steps")
        self._file.add(steps.to_line(windows, looks), now)


class _RankWindows:
    """The windows of one rank, made of the steps in its ring."""

    def __init__(self, rank: int, ring: StepRing) -> None:
        self.ring = ring
        self.rank = rank
        self._before = self._done = self._detailed = 0
        self._pid = self._begun = 0
        self._reduced: dict[str, steps.Spread] = {}
        """The seconds of a step's all-reduce, as they were last known: on a GPU they are of few steps."""

        self._last: Optional[StepRecord] = None
        self._called = 0
        """The newest step whose collectives were read."""

    def fold(self, at: float, monotonic: float, *, last: bool) -> list[steps.Window]:
        """Return the window of the steps since the last call; none where there was no step. ``last``: of all calls."""
        found = self._complete(self.ring.read(), last=last)
        if not found:
            return []
        calls = self._choose_calls()
        self._know_reduce(found, is_other=bool(calls))
        values = _collect(found, self._reduced)
        every = {}
        if self.ring.is_detailed and self._detailed < MOST_DETAILED:
            kept = MOST_DETAILED - self._detailed
            every = {
                name: tuple(None if math.isnan(value) else value for value in series[:kept])
                for name, series in values.items()
            }
            self._detailed += len(found)
        spreads = {name: spread for name, series in values.items() if (spread := _find_spread(series))}
        seconds = {**self._reduced, **spreads}
        more = steps.DDP if "comm" in seconds else steps.COLLECTIVES if calls else ""
        sources = (steps.OPTIMIZER, more) if more else (steps.OPTIMIZER,)
        entries, buckets = _choose_entries(found, every=bool(every)), self.ring.read_buckets()
        total = self.ring.read_total()
        if (
            total and self._before
        ):  # What a program says of its steps is without those of the rank's program before.
            total = total._replace(steps=total.steps + self._before)
        counts = (self._pid, self._before + self._done, len(found))
        window = steps.Window(
            at,
            monotonic,
            self.rank,
            *counts,
            seconds,
            buckets,
            entries,
            sources,
            total,
            every,
            self.ring.read_pass(),
            calls,
        )
        return [window]

    def _know_reduce(self, found: Sequence[StepRecord], *, is_other: bool) -> None:
        """Keep what is known of all-reduces. ``is_other``: DistributedDataParallel makes them no more."""
        if is_other:
            self._reduced = {}
        known = [one for one in found if not math.isnan(one.comm + one.overlap)]
        for name in ("comm", "overlap"):
            spread = _find_spread([getattr(one, name) for one in known])
            if spread:
                self._reduced[name] = spread

    def _choose_calls(self) -> tuple[steps.StepCalls, ...]:
        """Return the collectives of a few steps since the last call: multiples of a power of two, as of entries."""
        found = [one for one in self.ring.read_calls() if one.number > self._called]
        self._called = max([self._called, *(one.number for one in found)])
        stride = 1
        while len(found) > _MOST_STEPS_WITH_CALLS:
            stride *= 2
            found = [one for one in found if one.number % stride == 0]
        return tuple(found)

    def _complete(self, found: list[StepRecord], *, last: bool) -> list[StepRecord]:
        """
        Return the steps with their own figures of all-reduce, which come with the step after. The newest waits for
        that, unless there will be none.
        """
        is_next = bool(found) and self.ring.begun != self._begun
        chain = ([self._last] if self._last else []) + ([] if is_next else found)
        complete = [_add_reduce(one, after) for one, after in zip(chain, chain[1:])]
        if is_next:  # The rank's next program; the one before makes no more steps.
            complete += [_add_reduce(one, _UNKNOWN) for one in chain]
            self._pid, self._begun = self.ring.pid, self.ring.begun
            self._before, self._done, self._called = self._before + self._done, 0, 0
            self._reduced = {}
            complete += [_add_reduce(one, after) for one, after in zip(found, found[1:])]
            chain = found
        if found:
            self._done = found[-1].number
        self._last = chain[-1] if chain else None
        if last and self._last:
            complete.append(_add_reduce(self._last, _UNKNOWN))
            self._last = None
        return complete


def _add_reduce(step: StepRecord, after: StepRecord) -> StepRecord:
    return step._replace(
        comm=after.comm, overlap=after.overlap, collective=after.collective, entry=after.entry
    )


def _collect(found: Sequence[StepRecord], reduced: Mapping[str, steps.Spread]) -> dict[str, list[float]]:
    """
    Return the seconds of each phase, a value a step; not a number: not known. ``reduced``: what an all-reduce takes in
    a step of which that is not known.
    """
    exposed_s = max(0.0, reduced["comm"].median - reduced["overlap"].median) if reduced else 0.0
    # max returns the first one if that is not a number.
    exposed = [exposed_s if math.isnan(one.comm) else max(one.comm - one.overlap, 0.0) for one in found]
    backward = [max(one.backward - wait, 0.0) for one, wait in zip(found, exposed)]
    parts = [one.input + one.forward + one.backward for one in found]
    return {
        "step": [one.step for one in found],
        "input": [one.input for one in found],
        "forward": [one.forward for one in found],
        "backward": backward,
        "comm": [one.comm for one in found],
        "overlap": [one.overlap for one in found],
        "other": [max(one.step - part, 0.0) for one, part in zip(found, parts)],
    }


def _find_spread(values: Sequence[float]) -> Optional[steps.Spread]:
    """
    Return the median and the bounds of 90 % of the values that are numbers; None for none.

    >>> _find_spread([3.0, 1.0, float("nan"), 2.0])
    Spread(median=2.0, low=1.0, high=3.0)
    """
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return None
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return steps.Spread(middle, ordered[round(0.05 * last)], ordered[round(0.95 * last)])


def _choose_entries(found: Sequence[StepRecord], *, every: bool) -> tuple[tuple[int, float], ...]:
    """
    Return numbers and times of a few collectives: multiples of a power of two, so that all ranks have the same; of
    ``every`` one where that is asked for.
    """
    entries = [(int(one.collective), one.entry) for one in found if one.entry > 0.0 and one.collective >= 0.0]
    stride = 1
    while len(entries) > _MOST_ENTRIES and not every:
        stride *= 2
        entries = [(number, at) for number, at in entries if number % stride == 0]
    return tuple(entries)
