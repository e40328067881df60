"""The logs that have grown: by word of the kernel where it can be had, else by looking at all of them now and then."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control.jobs.ending import wait_until_readable

if TYPE_CHECKING:
    from drumline.control.logs.rank_log import RankLog
    from drumline.linux.inotify import Inotify

SHORTEST_PAUSE_S = 0.01
"""Between two looks, even where there is something each time: many lines cost little more than one."""

LONGEST_PAUSE_S = 0.1
_LONGEST_WATCHED_S = 0.25

_SETTLE_S = 0.5
"""Before the kernel is asked: a job that ends sooner is not worth the import of ctypes."""

_SETTLING_PAUSE_S = 0.03

_FULL_POLL_S = 2.0
"""Between two looks at everything, whatever the kernel said."""

_NETWORK_POLL_S = 0.1
_NETWORK_POLL_PER_LOG_S = 0.001
"""A network file system is asked for each log, and less often where there are many."""


class _LogWatch(NamedTuple):
    """The watch of one log. ``files``: the number of the log's file that is watched."""

    number: int
    files: int


class LogWatcher:
    """
    Watches logs that grow. ``due`` are the logs to read now, ``wait`` blocks until there may be some, ``mark_read``
    takes one off the list.

    ``may_watch`` False: always by looking; for whoever waits for more than these logs.
    """

    def __init__(self, logs: list[RankLog], *, may_watch: bool = True) -> None:
        self._logs = logs
        self._folders: dict[str, int | None] = {os.path.dirname(log.path): None for log in logs}
        self._is_network = False
        self._may_watch = may_watch
        self._settle_at: float | None = time.monotonic() + _SETTLE_S
        self._inotify: Inotify | None = None
        self._watches: dict[RankLog, _LogWatch] = {}
        self._watched: dict[int, RankLog] = {}
        self._changed: dict[str, int] = {}
        self._next_look = 0.0
        self._pause = SHORTEST_PAUSE_S
        self._next_wake = 0.0
        self.due: dict[RankLog, bool] = dict.fromkeys(logs, True)
        """With each: whether there may be another file after its present one."""

    def mark_read(self, log: RankLog, any_new: bool) -> None:
        """Note that the end of a log was reached. It is watched from now on, and due once more."""
        if any_new:
            self._pause = SHORTEST_PAUSE_S
        watch = self._watches.get(log)
        is_watched = watch is not None and watch.files == log.files
        if self._inotify is None or is_watched or log.descriptor is None:
            del self.due[log]
            return
        self._forget(log)
        self.due[log] = False
        try:
            number = self._inotify.watch_file(log.descriptor)
        except OSError:
            self._may_watch = False
            self._stop_watching()
            return
        self._watches[log] = _LogWatch(number, log.files)
        self._watched[number] = log

    def wait(self, longest_s: float | None, other: int | None) -> None:
        """Wait until a log may have grown, ``other`` is readable, or ``longest_s`` are over. None: a default."""
        if self._settle_at is not None and time.monotonic() >= self._settle_at:
            self._settle()
        if self._inotify is not None:
            self._wait_for_word(_LONGEST_WATCHED_S if longest_s is None else longest_s, other)
        elif not self.due or time.monotonic() >= self._next_wake:
            self._pause_between_looks(longest_s, other)
        if time.monotonic() >= self._next_look:
            self._look_at_all()

    def close(self) -> None:
        self._may_watch = False
        self._stop_watching()
        self.due.clear()

    # ---------------------------------------------------------------- by word of the kernel

    def _settle(self) -> None:
        from drumline.contract import filesystems

        self._settle_at = None
        self._is_network = any(map(filesystems.is_network, self._folders))
        if self._may_watch and not self._is_network:
            self._start_watching()
        self._may_watch = self._inotify is not None or self._settle_at is not None

    def _start_watching(self) -> None:
        from drumline.linux.inotify import Inotify

        try:
            self._inotify = Inotify()
            for folder in self._folders:
                self._folders[folder] = self._inotify.watch_folder(folder)
        except FileNotFoundError:
            self._stop_watching()  # The folder is yet to come.
            self._settle_at = time.monotonic() + _SETTLE_S
        except OSError:
            self._stop_watching()
        else:
            self.due = dict.fromkeys(self._logs, True)

    def _stop_watching(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
        self._watches.clear()
        self._watched.clear()

    def _wait_for_word(self, seconds: float, other: int | None) -> None:
        assert self._inotify is not None
        # A log that grows faster than it is read does not keep the others waiting.
        if not self.due:
            wait_until_readable((other, self._inotify.descriptor), seconds)
            wait_until_readable((other,), max(0.0, self._next_wake - time.monotonic()))
        elif time.monotonic() < self._next_wake:
            return
        self._next_wake = time.monotonic() + SHORTEST_PAUSE_S
        names: set[str] = set()
        for event in self._inotify.events():
            log = self._watched.pop(event.watch, None)
            if log is not None:
                del self._watches[log]
                self.due.setdefault(log, False)
            if event.name:
                names.add(event.name)
            if event.lost:
                self._next_look = 0.0
        if names:
            self.due.update((log, True) for log in self._logs if os.path.basename(log.path) in names)

    def _forget(self, log: RankLog) -> None:
        """Stop watching the file that a log has gone on from."""
        assert self._inotify is not None
        watch = self._watches.pop(log, None)
        if watch is not None:
            self._watched.pop(watch.number, None)
            self._inotify.forget(watch.number)

    # ---------------------------------------------------------------- by looking

    def _pause_between_looks(self, longest_s: float | None, other: int | None) -> None:
        longest_s = self._longest_pause() if longest_s is None else longest_s
        if not self.due:
            wait_until_readable((other,), min(self._pause, longest_s))
            self._pause = min(self._pause * 1.5, longest_s)
        self._next_wake = time.monotonic() + SHORTEST_PAUSE_S
        look = self._any_folder_changed()
        for log in self._logs:
            self.due[log] = look or self.due.get(log, False)

    def _longest_pause(self) -> float:
        if self._is_network:
            return _NETWORK_POLL_S + _NETWORK_POLL_PER_LOG_S * len(self._logs)
        return _SETTLING_PAUSE_S if self._may_watch else LONGEST_PAUSE_S

    def _any_folder_changed(self) -> bool:
        changed = {folder: _read_change_time(folder) for folder in self._folders}
        any_new = changed != self._changed
        # A folder's time is that of a clock that ticks: what comes within the same tick does not show in it.
        self._changed = {
            folder: when if abs(time.time_ns() - when) > 50_000_000 else -1
            for folder, when in changed.items()
        }
        return any_new

    def _look_at_all(self) -> None:
        self.due = dict.fromkeys(self._logs, True)
        if self._is_network:
            self._next_look = time.monotonic() + self._longest_pause()
            for log in self._logs:
                log.open_again()
        else:
            self._next_look = time.monotonic() + _FULL_POLL_S


def _read_change_time(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
