"""News of one job: events as they are written, and logs that have grown."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.folder import open_plain
from drumline.contract.hiding import hide_in_job
from drumline.contract.plan import Plan
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.job_list.event_text import describe_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder

_MOST_BYTES = 1 << 20
"""Of events that are read at once."""


class News(NamedTuple):
    """
    The news of one look. ``sizes``: bytes of each rank's log that has grown, by rank. ``has_samples``: whether system
    metrics have come.
    """

    events: list[dict[str, Any]]
    sizes: dict[str, int]
    has_samples: bool

    def __bool__(self) -> bool:
        return bool(self.events or self.sizes or self.has_samples)


class JobWatch:
    """
    Looks at one job again and again. ``offset``: the number of the last event that is known; None: that of now.

    Raises NotFoundError.
    """

    def __init__(self, name: str, offset: int | None = None) -> None:
        self._folder = folder_of(name)
        size = _size_of(self._folder.events)
        self.offset = size if offset is None or not 0 <= offset <= size else offset
        self._logs: dict[str, str] | None = None
        self._sizes: dict[str, int] = {}
        self._samples = _newest_in(self._samples_folder)
        self._look_at_logs()

    @property
    def _samples_folder(self) -> str:
        return os.path.join(self._folder.path, "system_metrics")

    def look(self) -> News:
        """Return what is new since the last look. Costs a few system calls where nothing is."""
        found: list[dict[str, Any]] = []
        if _size_of(self._folder.events) > self.offset:
            found, self.offset = read_events(self._folder, self.offset)
        samples = _newest_in(self._samples_folder)
        has_samples, self._samples = samples != self._samples, samples
        return News(found, self._look_at_logs(), has_samples)

    def _look_at_logs(self) -> dict[str, int]:
        if self._logs is None:
            self._logs = _find_logs(self._folder)
        grown = {}
        for rank, path in (self._logs or {}).items():
            size = _size_of(path)
            if size != self._sizes.get(rank, 0):
                grown[rank] = self._sizes[rank] = size
        return grown


def read_events(folder: RunFolder, after: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events behind a place in the file, and the place behind the last of them."""
    try:
        with open_plain(folder.events) as file:
            file.seek(after)
            data = file.read(_MOST_BYTES)
    except OSError:
        return [], after
    found = list(_parse_events(data, after))
    whole = data.rfind(b"\n") + 1
    # A line longer than all that is read at once is no event that could be shown.
    return found, after + (whole or (len(data) if len(data) == _MOST_BYTES else 0))


def _parse_events(data: bytes, begin: int) -> Iterator[dict[str, Any]]:
    at = 0
    while (end := data.find(b"\n", at) + 1) > 0:
        event = e.from_line(data[at:end])
        at = end
        if event is not None:
            with contextlib.suppress(TypeError, ValueError, OverflowError, AttributeError):
                yield hide_in_job(describe_event(begin + end, event))


def _find_logs(folder: RunFolder) -> dict[str, str] | None:
    """Return the path of each rank's log, by rank; None as long as there is no plan."""
    try:
        plan = Plan.read(folder.plan)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return {str(task.rank): os.path.join(folder.path, task.log) for task in plan.ranks}


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _newest_in(place: str) -> int:
    """Return what changes when a file in a small folder is written to."""
    newest = 0
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime_ns)
    return newest
