"""
The starts of a job's attempts, of which one at a time is asked for: a job may have thousands, and a million events.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple
from drumline.control.jobs.many_events import EventLines, KeptFold
from drumline.control.jobs.outcome import has_many_events
from drumline.control.observing.timeline_phases import KINDS, TROUBLES, Start, apply

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


class _Head(NamedTuple):
    """The beginning of an attempt. ``offset``: where in the file the events behind it are."""

    offset: int
    zero: float
    cause: str
    over: float | None


class Starts:
    """The starts of all attempts: the latest whole, of the others the heads."""

    def __init__(self) -> None:
        self._heads: list[_Head] = []
        self._latest: Start | None = None

    def __len__(self) -> int:
        return len(self._heads)

    def find_zero(self, number: int) -> float:
        """Return when an attempt began; the first with the submission."""
        return self._heads[number].zero

    def add(self, lines: EventLines) -> None:
        earlier = lines.read(TROUBLES, lines.find_last(e.AttemptEnded))
        for event in chain(earlier, lines.read(KINDS)):
            if self._latest is None:
                self._begin(0, Start(0, event.time))
            before = self._latest
            after = apply(before, event) if before else None
            if after and after is not before:
                self._begin(lines.offset, after)

    def _begin(self, offset: int, start: Start) -> None:
        self._heads.append(_Head(offset, start.zero, start.cause, start.over))
        self._latest = start

    def find(self, folder: RunFolder, number: int) -> Start:
        """Return the start of an attempt; one before the latest is read again. Raises OSError, IndexError."""
        head = self._heads[number]
        if number == len(self._heads) - 1 and self._latest:
            return self._latest
        start = Start(number, head.zero, head.cause)
        start.over = head.over
        with open_plain(folder.events) as file:
            for event in EventLines(file, head.offset).read(KINDS):
                if apply(start, event) is not start:
                    break
        return start


def read_starts(folder: RunFolder) -> Starts:
    """Return the starts of the attempts of a job. Of very many events, a process reads each once."""
    try:
        if has_many_events(folder):
            return _starts.read(folder)
        with open_plain(folder.events) as file:
            return _fold(EventLines(file, 0), None)
    except FileNotFoundError:
        return Starts()


def _fold(lines: EventLines, before: Starts | None) -> Starts:
    starts = before or Starts()
    starts.add(lines)
    return starts


_starts: KeptFold[Starts] = KeptFold(_fold)
