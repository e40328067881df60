"""
The outcome of jobs with very many events: each event is read once by a process, however often a page asks.

A file of events only grows. Where other bytes stand than before, a job has written it anew, and all of it is read.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.folder import LONGEST_EVENT, open_plain
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_MOST_JOBS = 8
_MOST_KEPT_BYTES = 2 << 20
_END_BYTES = 256


class _KeptOutcome(NamedTuple):
    """``end``: the bytes before ``offset``, up to which events are in ``outcome``, pickled: callers change theirs."""

    file: tuple[int, int]
    offset: int
    end: bytes
    outcome: bytes


_kept: OrderedDict[str, _KeptOutcome] = OrderedDict()
_reading = threading.Lock()
"""One at a time: several parts of a page ask the same at once."""


def fold_large(folder: RunFolder) -> Outcome:
    """Return what ``fold(folder.read_events())`` does. Raises FileNotFoundError."""
    with _reading, open_plain(folder.events) as file:
        return _fold_file(folder.events, file)


def _fold_file(path: str, file: BinaryIO) -> Outcome:
    known = os.fstat(file.fileno())
    identity = (known.st_dev, known.st_ino)
    kept = _kept.pop(path, None)
    if kept is not None and (kept.file != identity or _read_before(file, kept.offset) != kept.end):
        kept = None
    lines = _EventLines(file, kept.offset if kept else 0)
    outcome = fold(lines.read(), pickle.loads(kept.outcome) if kept else None)  # noqa: S301 - of this process
    if kept is None or lines.offset != kept.offset:
        kept = _KeptOutcome(identity, lines.offset, _read_before(file, lines.offset), pickle.dumps(outcome))
    if len(kept.outcome) <= _MOST_KEPT_BYTES:
        _kept[path] = kept
    while len(_kept) > _MOST_JOBS:
        _kept.popitem(last=False)
    return outcome


def _read_before(file: BinaryIO, offset: int) -> bytes:
    begin = max(0, offset - _END_BYTES)
    file.seek(begin)
    return file.read(offset - begin)


class _EventLines:
    """The whole lines of a file from a place on. ``offset``: behind the last that was read."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self.offset = offset

    def read(self) -> Iterator[e.Event]:
        self._file.seek(self.offset)
        while (line := self._file.readline(LONGEST_EVENT)).endswith(b"\n"):
            self.offset += len(line)
            event = e.from_line(line)
            if event is not None:
                yield event
