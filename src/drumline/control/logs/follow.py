"""
The logs of all ranks as they grow, and the end of the job.

Files are read, never pipes: whoever watches cannot slow the ranks, and may come and go.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.record import NamedTuple
from drumline.control.jobs.ending import wait_until_readable
from drumline.control.jobs.recovery import recover
from drumline.control.logs.log_watcher import LogWatcher
from drumline.control.logs.rank_log import CHUNK, LINE_LIMIT, RankLog, is_log, open_log
from drumline.engines.table import is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan

_ROUND = 1 << 21
"""Bytes of all logs together before whoever watches is shown them: none waits long for the others."""

_SMALLEST_READ = 1 << 14

_FEW_LOGS = 256
"""Logs that fit into the files that any process may have open."""

_OUTCOME_POLL_S = 1.0
"""Between two looks at what became of a job whose supervisor is on another machine."""


class Block(NamedTuple):
    """Lines of a rank's log. ``lines``: whole ones as the rank wrote them, each with its newline."""

    label: str
    node: int
    lines: bytes
    time: float = 0.0
    """When they were written, in seconds since 1970; 0: just now."""


class Follower:
    """
    Follows the logs of a job's ranks. ``labels``: the ranks to follow, by label; None: all of them. ``raw``: every byte
    as it is; else long lines are cut, and of a progress bar the newest state is shown. ``is_alone`` False: never wait
    for more, for whoever has other jobs to look at.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        labels: frozenset[str] | None = None,
        *,
        raw: bool = False,
        is_alone: bool = True,
    ) -> None:
        self._folder = folder
        self._logs = [
            RankLog(os.path.join(folder.path, task.log), task.label, node.node, raw=raw)
            for node in plan.nodes
            for task in node.ranks
            if labels is None or task.label in labels
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

    def begin_at(self, descriptors: Mapping[str, int]) -> None:
        """Begin where these are, by label, each ours to close from now on. To be called before ``blocks``."""
        for log in self._logs:
            if log.label in descriptors:
                log.begin_at(descriptors[log.label])

    @property
    def has_more(self) -> bool:
        """Return whether more was there at the last None than fitted."""
        return bool(self._watcher.due)

    def blocks(self) -> Iterator[Block | None]:
        """
        Yield every line from the beginning, until the job's supervisor has ended and all was read. Blocks.

        None: as much as is to be shown at once; the reader may look at something else, or flush.
        """
        try:
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
        self._supervisor = identity.open_pidfd(who)
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
    path = os.path.join(folder.path, log or "")
    if not is_log(path):
        return []
    try:
        with open(open_log(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LINE_LIMIT))
            lines = file.read().splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
