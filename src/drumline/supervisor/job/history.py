"""The part of a job that an earlier supervisor has run, as its events tell it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from drumline.contract import events as e

if TYPE_CHECKING:
    from drumline.contract.plan import Plan
    from drumline.supervisor.supervised_folder import SupervisedFolder


class JobHistory:
    """Attempts and preparations before this supervisor's own."""

    def __init__(self, folder: SupervisedFolder) -> None:
        self.attempts: list[e.AttemptEnded] = []
        self.has_prepared = self.has_started = False
        self.was_interrupted = False
        """Whether an attempt had begun whose end is not known."""

        self.ran_s = 0.0
        """How long ranks have run in all attempts."""

        self._folder = folder
        self._last = 0.0
        began = None
        for event in folder.read_events():
            self._last = event.time
            if isinstance(event, e.JobPreparing):
                self.has_prepared = True
            elif isinstance(event, e.JobStarting):
                self.has_started = self.was_interrupted = True
            elif isinstance(event, e.RankStarted):
                began = began or event.time
            elif isinstance(event, e.AttemptEnded):
                self.attempts.append(event)
                self.ran_s += max(0.0, event.time - began) if began else 0.0
                self.was_interrupted, began = False, None

    def find_last_sign(self, plan: Plan) -> float:
        """Return when the job's events or its ranks' logs last changed, in seconds since 1970."""
        times = [self._last]
        for task in plan.ranks:
            with contextlib.suppress(OSError):
                times.append(os.stat(os.path.join(self._folder.path, task.log)).st_mtime)
        return max(times)
