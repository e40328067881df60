"""
The decision whether a job that failed is started again: all its ranks, with the numbers that they had.

It is not when that cannot help: the same exception at the same place twice in a row, or three attempts that left
neither a new checkpoint nor a metric. Exit code 93 then tells whoever requeues jobs to leave it.
A preemption is no failure: the job is started again however often that happens, and nothing is counted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drumline.contract.events import AttemptEnded
    from drumline.supervisor.deciding.happenings import Finish

NO_USE_CODE = 93
"""Do not start it again. Source: NVIDIA's resiliency extension has this code for attempts without progress."""

PREEMPTIONS = ("preemption", "node preemption")
"""Kinds of ends (``policy.Finish``)."""

MOST_WITHOUT_PROGRESS = 3
_MOST_FILES = 20_000


class RestartDecision(NamedTuple):
    again: bool
    end: Finish
    """As the job is to end, when it is not started again."""


class RestartPolicy:
    """
    Decides whether there is another attempt. ``restart_on``: ``failure`` (of a rank), ``node`` (an agent is lost),
    ``hang``, or exit codes as text; empty: all.
    """

    def __init__(self, max_restarts: int, restart_on: Sequence[str] = ()) -> None:
        self._max_restarts = max_restarts
        self._restart_on = restart_on
        self._before: tuple[Any, ...] | None = None
        self._without_progress = 0
        self._failures = 0
        self._losses = 0
        """Of nodes, in a row, in attempts that left nothing new."""

        self.number = 0
        """Of the attempt that runs, from 0."""

    def replay(self, ended: Iterable[AttemptEnded]) -> None:
        """Take in ends of attempts that another supervisor has seen, as if they had been seen here."""
        for one in ended:
            self.number = one.attempt + 1
            lost = one.kind == "node preemption" and one.progressed is False
            self._losses = self._losses + 1 if lost else 0
            if one.was_preempted:
                continue
            self._failures += 1
            self._before = _find_place(one.verdict)

    def decide_after_loss(self, end: Finish, *, progressed: bool) -> RestartDecision:
        """Decide after a loss of nodes for which there are others: no failure, unless several come without progress."""
        self._losses = 0 if progressed else self._losses + 1
        if self._losses >= MOST_WITHOUT_PROGRESS:
            why = f"{MOST_WITHOUT_PROGRESS} times in a row a node was lost before anything new was left"
            return RestartDecision(False, self._refuse(end, why))
        self.number += 1
        return RestartDecision(True, end)

    def decide_after(self, end: Finish, *, progressed: bool) -> RestartDecision:
        """Decide whether to restart after an attempt. ``progressed``: whether the attempt left anything new."""
        if end.kind in PREEMPTIONS:
            self.number += 1
            return RestartDecision(True, end)
        place = _find_place(end.verdict)
        alike = place is not None and place == self._before
        self._before = place
        self._without_progress = 0 if progressed else self._without_progress + 1
        is_wanted = not self._restart_on or {end.kind, str(end.exit_code)} & set(self._restart_on)
        if not self._max_restarts or end.status != status.FAILED or not is_wanted:
            return RestartDecision(False, self._add_counts(end))
        if alike:
            return RestartDecision(False, self._refuse(end, "the last two failed alike"))
        if self._without_progress >= MOST_WITHOUT_PROGRESS:
            why = f"the last {MOST_WITHOUT_PROGRESS} left neither a new checkpoint nor a metric"
            return RestartDecision(False, self._refuse(end, why))
        if self._failures >= self._max_restarts:
            return RestartDecision(False, self._add_counts(end))
        self._failures += 1
        self.number += 1
        return RestartDecision(True, end)

    def _add_counts(self, end: Finish) -> Finish:
        if not self.number:
            return end
        preemptions = self.number - self._failures
        parts = [f"after {self._failures} of {self._max_restarts} restarts"] if self._failures else []
        if preemptions:
            parts.append(f"preempted {'once' if preemptions == 1 else f'{preemptions} times'}")
        return end._replace(reason=f"{end.reason} ({', '.join(parts)})")

    def _refuse(self, end: Finish, why: str) -> Finish:
        reason = f"{end.reason} (attempt {self.number}; not restarted: {why})"
        return end._replace(exit_code=NO_USE_CODE, reason=reason)


def _find_place(verdict: dict[str, Any] | None) -> tuple[Any, ...] | None:
    """Return the exception and where it was raised; None when there was none."""
    verdict = verdict or {}
    if not verdict.get("error_type") or not verdict.get("file"):
        return None
    return tuple(verdict[name] for name in ("error_type", "error_message", "file", "line", "function"))


def list_files(folders: Iterable[str]) -> frozenset[tuple[str, int, int]]:
    """List path, size and time of change of the files in these folders, to be compared."""
    found = set()
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                try:
                    known = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                found.add((path, known.st_size, known.st_mtime_ns))
                if len(found) >= _MOST_FILES:
                    return frozenset(found)
    return frozenset(found)
