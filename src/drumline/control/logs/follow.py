"""
The logs of all ranks as they grow, and the end of the job.

Files are read, never pipes: whoever watches cannot slow the ranks, and may come and go.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import ownership, process_identity
from drumline.contract.record import NamedTuple
from drumline.control.jobs.ending import wait_until_readable
from drumline.control.jobs.recovery import recover
from drumline.control.logs.rank_log import CHUNK, LINE_LIMIT, Block, RankLog, list_ranks, read_end
from drumline.engines.engine_table import is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.control.logs.log_history import History
    from drumline.linux.inotify import Inotify


_ROUND = 1 << 21
"""Bytes of all logs together before whoever watches is shown them: none waits long for the others."""

_SMALLEST_READ = 1 << 14

_FEW_LOGS = 256
"""Logs that fit into the files that any process may have open."""

_OUTCOME_POLL_S = 1.0
"""Between two looks at what became of a job whose supervisor is on another machine."""


class Follower:
    """
    Follows the logs of a job's ranks. ``labels``: the ranks to follow, by label; None: all of them. ``raw``: every byte
    as it is; else long lines are cut, and of a progress bar the newest state is shown. ``is_alone`` False: never wait
    for more, for whoever has other jobs to look at. ``history``: what to show first, of the ranks in it; it follows.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        labels: frozenset[str] | None = None,
        *,
        raw: bool = False,
        is_alone: bool = True,
        history: History | None = None,
    ) -> None:
        self._folder = folder
        self._history = history
        self._logs = [
            RankLog(os.path.join(folder.path, task.log), task.label, node, raw=raw)
            for node, task in list_ranks(plan, history.labels if history else labels)
        ]
        if len(self._logs) > _FEW_LOGS:
            # Few jobs have so many ranks.
            from drumline.linux import kernel

            kernel.allow_open_files(len(self._logs))
        self._is_alone = is_alone
        self._watcher = LogWatcher(self._logs, may_watch=is_alone)
        self._bars: set[RankLog] = set()
        self._supervisor: int | None = None
        self._next_look = 0.0
        self.outcome: Outcome | None = None
        """At the last look, of a job whose engine runs its supervisor elsewhere; None for others."""

    @property
    def has_more(self) -> bool:
        """Return whether more was there at the last None than fitted."""
        return bool(self._watcher.due)

    def blocks(self) -> Iterator[Block | None]:
        """
        Yield every line from the beginning, or of the history and after it, until the job's supervisor has ended and
        all was read. Blocks.

        None: as much as is to be shown at once; the reader may look at something else, or flush.
        """
        try:
            if self._history is not None:
                descriptors = self._history.take_open()
                for log in self._logs:
                    if log.label in descriptors:
                        log.begin_at(descriptors[log.label])
                yield from self._history.blocks()
            while self._runs():
                yield from self._round()
                yield None
                self._watcher.wait(None if self._is_alone else 0.0, self._supervisor)
            for log in self._logs:
                for lines in log.finish():
                    yield Block(log.label, log.node, lines)
        finally:
            self._close()

    def _round(self) -> Iterator[Block]:
        watcher = self._watcher
        count = max(_SMALLEST_READ, min(CHUNK, _ROUND // max(1, len(watcher.due))))
        for log, look in list(watcher.due.items()):
            lines = log.read(count, look=look)
            if lines:
                yield Block(log.label, log.node, lines)
            if log.has_bar:
                self._bars.add(log)
            if log.found < count:
                watcher.mark_read(log, log.found > 0)
        for log in list(self._bars):
            if lines := log.bar():
                yield Block(log.label, log.node, lines)
            if not log.has_bar:
                self._bars.discard(log)

    def _close(self) -> None:
        self._watcher.close()
        for log in self._logs:
            log.close()
        if self._supervisor is not None:
            os.close(self._supervisor)
            self._supervisor = None

    def _runs(self) -> bool:
        if self._supervisor is None:
            return self._find_supervisor()
        if not wait_until_readable((self._supervisor,), 0.0):
            return True
        os.close(self._supervisor)
        self._supervisor = None
        # Another may follow it, on other nodes.
        return self._find_supervisor()

    def _find_supervisor(self) -> bool:
        """Look for the supervisor; return False if the job has ended."""
        who = self._folder.read_json(self._folder.supervisor)
        self._supervisor = process_identity.open_pidfd(who)
        if self._supervisor is not None:
            return True
        # None yet, or none any more: the outcome tells, and ends a job whose supervisor was killed. Of one on another
        # machine it is all that there is to see.
        if time.monotonic() < self._next_look:
            return True
        outcome = recover(self._folder)
        if is_elsewhere(outcome.engine):
            self.outcome = outcome
            self._next_look = time.monotonic() + _OUTCOME_POLL_S
        return not outcome.is_final


def last_lines(folder: RunFolder, plan: Plan, rank: int, count: int) -> list[bytes]:
    """Return the last lines of a rank that are not blank, at most ``count``."""
    log = next((task.log for task in plan.ranks if task.rank == rank), None)
    lines = read_end(os.path.join(folder.path, log or ""), LINE_LIMIT).splitlines()
    return [line for line in lines if line.strip()][-count:]


# which logs have grown: the kernel says, or all are looked at now and then


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
        self._settle_at = None
        self._is_network = any(map(ownership.is_network, self._folders))
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
