"""
The logs of all ranks as they grow, and the end of the job.

Files are read, never pipes: whoever watches cannot slow the ranks, and may come and go.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.plan import Plan
from drumline.contract.record import NamedTuple
from drumline.control.growth import LONGEST_PAUSE_S, Growth
from drumline.control.rank_log import CHUNK, LINE_LIMIT, RankLog, is_log, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_ROUND = 1 << 21
"""Bytes of all logs together before whoever watches is shown them: none waits long for the others."""

_SMALLEST_READ = 1 << 14

_LOOK_S = 1.0
"""Between two looks at what became of a job whose supervisor is on another machine."""


class Block(NamedTuple):
    """``lines``: whole ones as the rank wrote them, each with its newline."""

    label: str
    node: int
    lines: bytes


class Follower:
    """
    ``labels``: the ranks to follow, by label; None: all of them.
    ``raw``: every byte as it is; else long lines are cut, and of a progress bar the newest state is shown.
    ``is_alone`` False: never wait for more, for whoever has other jobs to look at.
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
        self._is_alone = is_alone
        self._growth = Growth(self._logs, may_watch=is_alone)
        self._bars: set[RankLog] = set()
        self._supervisor: int | None = None
        self._next_look = 0.0
        self.outcome: Outcome | None = None
        """At the last look, of a job whose engine runs its supervisor elsewhere; None for others."""

    @property
    def has_more(self) -> bool:
        """Whether there was more at the last None than fitted."""
        return bool(self._growth.due)

    def blocks(self) -> Iterator[Block | None]:
        """
        Every line from the beginning, until the job's supervisor has ended and all was read. Blocks.

        None: as much as is to be shown at once; whoever asks may look at something else, or flush.
        """
        try:
            while self._runs():
                yield from self._round()
                yield None
                self._growth.wait(None if self._is_alone else 0.0, self._supervisor)
            for log in self._logs:
                for lines in log.finish():
                    yield Block(log.label, log.node, lines)
        finally:
            self._close()

    def _round(self) -> Iterator[Block]:
        growth = self._growth
        count = max(_SMALLEST_READ, min(CHUNK, _ROUND // max(1, len(growth.due))))
        for log, look in list(growth.due.items()):
            lines = log.read(count, look=look)
            if lines:
                yield Block(log.label, log.node, lines)
            if log.has_bar:
                self._bars.add(log)
            if log.found < count:
                growth.ended(log, log.found > 0)
        for log in list(self._bars):
            if lines := log.bar():
                yield Block(log.label, log.node, lines)
            if not log.has_bar:
                self._bars.discard(log)

    def _close(self) -> None:
        self._growth.close()
        for log in self._logs:
            log.close()
        if self._supervisor is not None:
            os.close(self._supervisor)
            self._supervisor = None

    def _runs(self) -> bool:
        if self._supervisor is None:
            return self._find_supervisor()
        if not _readable(self._supervisor, 0.0):
            return True
        os.close(self._supervisor)
        self._supervisor = None
        # Another may follow it, on other nodes.
        return self._find_supervisor()

    def _find_supervisor(self) -> bool:
        """False when there is none any more."""
        from drumline.control.jobs import outcome_of
        from drumline.engines.table import is_elsewhere

        who = self._folder.read_json(self._folder.supervisor)
        self._supervisor = identity.open_pidfd(who)
        if self._supervisor is not None:
            return True
        # None yet, or none any more: the outcome tells, and ends a job whose supervisor was killed. Of one on another
        # machine it is all that there is to see.
        if time.monotonic() < self._next_look:
            return True
        outcome = outcome_of(self._folder)
        if is_elsewhere(outcome.engine):
            self.outcome = outcome
            self._next_look = time.monotonic() + _LOOK_S
        return not outcome.is_final


def _readable(descriptor: int | None, seconds: float) -> bool:
    """Whether it becomes so in that time; None: never. By poll, which takes descriptors above 1023 too."""
    poller = select.poll()
    if descriptor is not None:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def plan_of(folder: RunFolder) -> Plan:
    return Plan.read(folder.plan)


def last_lines(folder: RunFolder, plan: Plan, rank: int, count: int) -> list[bytes]:
    """The last lines of a rank that are not blank, at most ``count``."""
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


def wait_for_end(folder: RunFolder, deadline: float | None = None, *, of_attempt: int | None = None) -> bool:
    """
    Block until the job has ended, or that attempt of it; False when ``deadline`` (monotonic seconds) came first.
    """
    from drumline.control.jobs import outcome_of

    while not (outcome := outcome_of(folder)).is_final:
        if of_attempt is not None and len(outcome.attempts) > of_attempt:
            return True
        longest = 1.0 if of_attempt is None else LONGEST_PAUSE_S
        left = longest if deadline is None else min(longest, deadline - time.monotonic())
        if left <= 0:
            return False
        supervisor = identity.open_pidfd(folder.read_json(folder.supervisor))
        if supervisor is None:
            time.sleep(min(left, LONGEST_PAUSE_S))
            continue
        _readable(supervisor, left)
        os.close(supervisor)
    return True
