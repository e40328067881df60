"""What is new in a home, for whoever shows it live: rows of the list, and events and logs of chosen jobs."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DAMAGED, DrumlineError
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.job_list.rows import describe_row
from drumline.control.observing.job_list.watch import JobWatch, read_events

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.control.observing.job_list.rows import RowFigures
    from drumline.control.observing.job_list.table import JobTable

_MOST_ROWS = 200
"""That are worth sending one by one; after more, the list is asked for again."""

_METRICS_S = 2.0
_MOST_RUNNING = 50
ROW, GONE, RESET, EVENT, LOG, SYSTEM = "row", "gone", "reset", "event", "log", "system"


class Message(NamedTuple):
    """
    ``job``: empty for what all may want to know. ``mark``: the version of the list after a row; the number of an event.
    """

    kind: str
    data: dict[str, Any]
    job: str = ""
    mark: int = 0


class Feed:
    """Of one home, for many viewers. Used by one thread at a time, with the home's workspace chosen."""

    def __init__(self, table: JobTable, figures: RowFigures) -> None:
        self._table = table
        self._figures = figures
        self._watches: dict[str, JobWatch] = {}
        self._measured = time.monotonic()
        with contextlib.suppress(DrumlineError, OSError):
            table.refresh()
        self.version = table.version
        """Of the list, as of the last look."""

    def look(self, watched: Iterable[str]) -> list[Message]:
        """Return what is new since the last look; of the jobs ``watched`` more than their rows."""
        found = []
        with contextlib.suppress(DrumlineError, OSError):
            self._table.refresh()
            self._measure()
            found += self.list_rows(self.version)
            self.version = self._table.version
        names = set(watched)
        for name in self._watches.keys() - names:
            del self._watches[name]
        for name in names:
            with contextlib.suppress(DrumlineError, OSError, *DAMAGED):
                found += _list_news(name, self._find_watch(name))
        return found

    def watch(self, name: str, after: int | None = None) -> tuple[list[Message], int]:
        """
        Begin to watch a job. Return the events behind ``after``, and the number of the last one that a look does not
        bring any more. Raises NotFoundError.
        """
        seq = self._find_watch(name).offset
        if after is None or after >= seq:
            return [], seq
        events, _ = read_events(folder_of(name), after)
        return [_to_message(name, event) for event in events if event["seq"] <= seq], seq

    def _find_watch(self, name: str) -> JobWatch:
        if name not in self._watches:
            self._watches[name] = JobWatch(name)
        return self._watches[name]

    def list_rows(self, version: int) -> list[Message]:
        """Return the rows that are new since a version of the list."""
        changes = self._table.changes_since(version)
        if len(changes.jobs) > _MOST_ROWS:
            return [Message(RESET, {}, mark=changes.version)]
        rows = [Message(ROW, describe_row(job), mark=changes.version) for job in changes.jobs]
        return rows + [Message(GONE, {"name": name}, mark=changes.version) for name in changes.gone]

    def _measure(self) -> None:
        """Read the metrics of jobs that run, so that their rows show them."""
        if time.monotonic() - self._measured < _METRICS_S:
            return
        running = [job for job in self._table.overviews() if not job.is_final and job.started is not None]
        if running:
            self._figures.describe(self._table, running[:_MOST_RUNNING])
        self._measured = time.monotonic()


def _list_news(name: str, watch: JobWatch) -> list[Message]:
    news = watch.look()
    found = [_to_message(name, event) for event in news.events]
    if news.sizes:
        found.append(Message(LOG, {"job": name, "sizes": news.sizes}, name))
    if news.has_samples:
        found.append(Message(SYSTEM, {"job": name}, name))
    return found


def _to_message(name: str, event: dict[str, Any]) -> Message:
    return Message(EVENT, {"job": name, **event}, name, event["seq"])
