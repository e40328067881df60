"""
Folds over the events of jobs that have very many: each event is read once by a process, however often a page asks.

A file of events only grows. Where other bytes stand than before, a job has written it anew, and all of it is read.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar, get_args

from drumline.contract import events as e
from drumline.contract.folder import LONGEST_EVENT, open_plain
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_MOST_JOBS = 8
_MOST_KEPT_BYTES = 3 << 20
"""Of each fold, for all jobs together."""

_END_BYTES = 256
_CHUNK_BYTES = 1 << 18
_UNSEEN_KINDS = (e.FirstOutput, e.GroupFormed, e.WarmStart, e.WarmDeclined)
"""Of events that change nothing of an outcome."""

_PASSING_KINDS = (*_UNSEEN_KINDS, e.RankExited, e.JobWarned)
"""Likewise if another attempt follows."""


T = TypeVar("T")


class EventLines:
    """The whole lines of a file from a place on. ``offset``: behind the last that was read."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self.offset = offset

    def read(self, kinds: Sequence[type], until: int | None = None) -> Iterator[e.Event]:
        """Yield events of these kinds, and the first of the file, up to a place. No other line is parsed."""
        begins = tuple(map(e.begin_of, kinds))
        self._file.seek(self.offset)
        readline = self._file.readline
        while until is None or self.offset < until:
            line = readline(LONGEST_EVENT)
            if not line.endswith(b"\n"):
                break
            is_wanted = not self.offset or line.startswith(begins)
            self.offset += len(line)
            event = e.from_line(line) if is_wanted else None
            if event is not None:
                yield event

    def find_last(self, kind: type) -> int:
        """Return where the last line of a kind begins; if there is none left to be read, where that goes on."""
        wanted = b"\n" + e.begin_of(kind)
        end = self._file.seek(0, os.SEEK_END)
        while end > self.offset:
            begin = max(self.offset, end - _CHUNK_BYTES)
            self._file.seek(begin)
            chunk = self._file.read(end - begin + len(wanted))
            found = chunk.rfind(wanted)
            if found >= 0:
                return begin + found + 1
            if b"\n" not in chunk:
                # Damaged, or a very long event: from there on all is read, as far as its lines are whole.
                break
            end = begin
        return self.offset


class _Kept(NamedTuple):
    """
    A fold so far: ``made`` has the events before ``offset``, and is pickled, as callers change theirs. ``end``: the
    bytes before ``offset``.
    """

    file: tuple[int, int]
    offset: int
    end: bytes
    made: bytes


class KeptFold(Generic[T]):
    """
    A fold over the events of jobs, which goes on from where it was. For several threads, one at a time: several parts
    of a page ask the same at once.
    """

    def __init__(self, fold: Callable[[EventLines, T | None], T]) -> None:
        self._fold = fold
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._reading = threading.Lock()

    def read(self, folder: RunFolder) -> T:
        """Return what the fold makes of all events of a job. Raises OSError."""
        with self._reading, open_plain(folder.events) as file:
            return self._fold_file(folder.events, file)

    def clear(self) -> None:
        with self._reading:
            self._kept.clear()

    def _fold_file(self, path: str, file: BinaryIO) -> T:
        known = os.fstat(file.fileno())
        identity = (known.st_dev, known.st_ino)
        kept = self._kept.pop(path, None)
        if kept is not None and (kept.file != identity or _read_before(file, kept.offset) != kept.end):
            kept = None
        lines = EventLines(file, kept.offset if kept else 0)
        made = self._fold(lines, pickle.loads(kept.made) if kept else None)  # noqa: S301 - of this process
        if kept is None or lines.offset != kept.offset:
            kept = _Kept(identity, lines.offset, _read_before(file, lines.offset), pickle.dumps(made))
        self._keep(path, kept)
        return made

    def _keep(self, path: str, kept: _Kept) -> None:
        if len(kept.made) <= _MOST_KEPT_BYTES:
            self._kept[path] = kept
        while (
            len(self._kept) > _MOST_JOBS
            or sum(len(one.made) for one in self._kept.values()) > _MOST_KEPT_BYTES
        ):
            self._kept.popitem(last=False)


def _read_before(file: BinaryIO, offset: int) -> bytes:
    begin = max(0, offset - _END_BYTES)
    file.seek(begin)
    return file.read(offset - begin)


def _fold_outcome(lines: EventLines, before: Outcome | None) -> Outcome:
    kinds = set(get_args(e.Event))
    earlier = lines.read(tuple(kinds.difference(_PASSING_KINDS)), lines.find_last(e.AttemptEnded))
    outcome = fold(earlier, before)
    return fold(lines.read(tuple(kinds.difference(_UNSEEN_KINDS))), outcome)


outcomes: KeptFold[Outcome] = KeptFold(_fold_outcome)
"""What ``fold(folder.read_events())`` returns."""
