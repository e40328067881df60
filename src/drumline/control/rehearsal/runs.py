"""One run of a rehearsal: submitted, awaited, and ended when it has run for long enough."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from drumline.contract import status
from drumline.contract.drills import KINDS
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.control.jobs import cancel
from drumline.control.jobs.recovery import recover
from drumline.control.jobs.waiting import wait_for_end
from drumline.node import leftovers
from drumline.supervisor.drills.steps import StepWatch

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_TIDY_LIMIT_S = 5.0
_PAUSE_S = 0.05
_COUNT_INTERVAL_S = 0.2


class Progress(Protocol):
    """Tells whoever waits for a rehearsal how far it is."""

    def tell(self, text: str) -> None:
        """Take a line on what has begun or ended."""

    def count(self, what: str, seconds: float, said: str) -> None:
        """Take what goes on, and for how long, several times a second."""


class RunWatch:
    """Waits for one run. ``what`` says which it is; ``for_s``: how long its ranks are to run; None: until they end."""

    def __init__(self, folder: RunFolder, progress: Progress, what: str, for_s: float | None = None) -> None:
        self._folder = folder
        self._progress = progress
        self._what = what
        self._for_s = for_s
        self._steps = StepWatch(Plan.read(folder.plan)) if for_s is not None else None
        self._mark: int | None = None
        self._began = time.monotonic()
        self.is_late = False
        """Whether it had to be canceled: it took too long."""

        self.is_shortened = False
        """Whether it was ended while all was well."""

    def wait(self, longest_s: float | None, drill_count: int = 0) -> None:
        """
        Wait for the end of the job and of all that it left. ``drill_count``: how many drills are to begin before it is
        ended. An interrupt cancels it.
        """
        try:
            self._wait(longest_s, drill_count)
        except KeyboardInterrupt:
            cancel.cancel(self._folder.name, at_once=True)
            wait_for_end(self._folder)
            raise
        deadline = time.monotonic() + _TIDY_LIMIT_S
        while leftovers.list_leftovers(self._folder) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)  # Its supervisor may be about to end.

    def _wait(self, longest_s: float | None, drill_count: int) -> None:
        while not wait_for_end(self._folder, time.monotonic() + _COUNT_INTERVAL_S):
            passed_s = time.monotonic() - self._began
            self._progress.count(self._what, passed_s, f"job {self._folder.name}")
            if longest_s is not None and passed_s > longest_s:
                self.is_late = True
                self._end("its rehearsal: it took too long")
            elif self._has_run_enough(drill_count):
                self._end("its rehearsal: its time was over")
                self.is_shortened = recover(self._folder).status == status.CANCELED

    def _end(self, by: str) -> None:
        cancel.cancel(self._folder.name, at_once=True, by=by)
        wait_for_end(self._folder)

    def _has_run_enough(self, drill_count: int) -> bool:
        """Return whether the ranks have run for that long, are well after their drills, and go on."""
        if self._for_s is None or self._steps is None:
            return False
        outcome = fold(self._folder.read_events())
        if outcome.started is None or time.time() - outcome.started < self._for_s:
            return False
        if outcome.status != status.RUNNING or not _are_over(outcome, drill_count):
            return False
        last = self._steps.find_last()
        if last is None:
            return True
        # Ranks that only look as if they ran make no steps.
        if self._mark is None:
            self._mark = last
        return last > self._mark


def _are_over(outcome: Outcome, drill_count: int) -> bool:
    """Return whether so many drills have begun, or were refused, and those that last have ended."""
    drills: list[Any] = list(outcome.drills.values())
    return len(drills) >= drill_count and all(
        one.ended is not None or not KINDS[one.kind].lasts for one in drills
    )
