"""The ring in which a rank notes its steps (``node/hook/steps.py``), for the agent: what came since the last look."""

from __future__ import annotations

import math
import os
import stat
import struct
from typing import Optional

from drumline.contract.record import NamedTuple
from drumline.contract.steps import MOST_CALLS, StepCalls, Total

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
        if self._descriptor < 0 and not self._open():
            return []
        header = os.pread(self._descriptor, _HEAD.size, 0)
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
        data = os.pread(self._descriptor, _TOTAL.size, _TOTAL_AT) if self._descriptor >= 0 else b""
        if len(data) < _TOTAL.size:
            return None
        total, before = _TOTAL.unpack(data)
        if not 0 < total < 1 << 53 or not 0 <= before < 1 << 53:
            return None
        source = os.pread(self._descriptor, _SOURCE_BYTES, _SOURCE_AT).partition(b"\0")[0]
        return Total(total, before, source.decode("utf-8", "replace"))

    def read_pass(self) -> int:
        """Return how many steps a pass over the training's data makes; 0: not known. Raises OSError."""
        data = os.pread(self._descriptor, 8, _PASS_AT) if self._descriptor >= 0 else b""
        steps = int.from_bytes(data, "little") if len(data) == 8 else 0
        return steps if steps < 1 << 53 else 0

    def read_buckets(self) -> tuple[int, ...]:
        """Return the sizes of the buckets that are reduced in a step; empty: not known. Raises OSError."""
        data = os.pread(self._descriptor, _BUCKETS_BYTES, _BUCKETS_AT) if self._descriptor >= 0 else b""
        sizes = data.partition(b"\0")[0].replace(b",", b" ").split()
        return tuple(int(size) for size in sizes if size.isdigit() and len(size) < 16)

    def read_calls(self) -> list[StepCalls]:
        """Return when the collectives of the newest steps of which that is noted began. Raises OSError."""
        size = _CALL_SLOTS * _CALL_SLOT.size
        data = os.pread(self._descriptor, size, _CALLS_AT) if self._descriptor >= 0 else b""
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

    def _read_step(self, index: int) -> Optional[StepRecord]:
        at = _HEADER_BYTES + index % _CAPACITY * _RECORD.size
        data = os.pread(self._descriptor, _RECORD.size, at)
        if len(data) < _RECORD.size:
            return None
        step = StepRecord(*_RECORD.unpack(data))
        # It may have been written over meanwhile, or be something else of the job's.
        is_whole = step.number == step.again == index + 1 and 0.0 < step.at < 1e11
        return step if is_whole and all(map(_may_be_seconds, step[2:8])) else None

    def _open(self) -> bool:
        try:
            # A job can put a pipe or a link in its place.
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise OSError(f"{self._path} is no file")
        return True


def _may_be_seconds(value: float) -> bool:
    return 0.0 <= value < 1e9 or math.isnan(value)
