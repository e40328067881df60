"""The timers that the policy sets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drumline.supervisor.deciding.happenings import Timer


class Timers:
    """The moments at which timers are due, in monotonic seconds."""

    def __init__(self) -> None:
        self._due: dict[Timer, float] = {}

    def set(self, timer: Timer, seconds: float) -> None:
        due = time.monotonic() + seconds
        # A grace period that has begun may become shorter.
        before = self._due.get(timer, due) if timer == "grace" else due
        self._due[timer] = min(due, before)

    def is_set(self, timer: Timer) -> bool:
        return timer in self._due

    def list_times(self) -> Iterable[float]:
        return self._due.values()

    def take_due(self) -> Iterator[Timer]:
        """Yield and remove the timers that are due now."""
        now = time.monotonic()
        for timer in [timer for timer, due in self._due.items() if due <= now]:
            del self._due[timer]
            yield timer

    def leave_out(self, passed_s: float) -> None:
        """Postpone all timers by time in which the job was suspended."""
        self._due = {timer: due + passed_s for timer, due in self._due.items()}
