"""The timers that the policy sets, and the wait until one of them is due, or anything else happens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from drumline.supervisor.deciding.happenings import Timer

_LONGEST_WAIT_S = 1.0
"""Between two looks for a request to cancel, when no signal tells of it."""

_SUSPENDED_S = 5.0
"""More than a busy machine lets a process wait."""


class Timed(Protocol):
    """A part of an attempt that has something to do at certain times."""

    def list_times(self) -> Iterable[float]:
        """List those times, in monotonic seconds."""


class Postponed(Timed, Protocol):
    """A part whose times are put off while the job is suspended."""

    def leave_out(self, passed_s: float) -> None: ...


class Timers:
    """
    The moments at which timers are due, in monotonic seconds. ``wait`` returns the descriptors that can be heard, after
    as many seconds at the latest. ``postponed`` and ``others``: who else has something to do at certain times.
    """

    def __init__(
        self, wait: Callable[[float], list[int]], postponed: Iterable[Postponed], others: Iterable[Timed]
    ) -> None:
        self._wait = wait
        self._postponed = tuple(postponed)
        self._others = tuple(others)
        self._due: dict[Timer, float] = {}

    def set(self, timer: Timer, seconds: float) -> None:
        due = time.monotonic() + seconds
        # A grace period that has begun may become shorter.
        before = self._due.get(timer, due) if timer == "grace" else due
        self._due[timer] = min(due, before)

    def wait(self) -> list[int]:
        """
        Wait until something is due or a descriptor is ready, and return those that are. Time in which this process was
        suspended does not count.
        """
        now = time.monotonic()
        others = (moment for one in (*self._postponed, *self._others) for moment in one.list_times())
        due = min((*self._due.values(), *others), default=now + _LONGEST_WAIT_S)
        patience_s = max(0.0, min(_LONGEST_WAIT_S, due - now))
        before = time.monotonic()
        ready = self._wait(patience_s)
        suspended_s = time.monotonic() - before - patience_s
        if suspended_s > _SUSPENDED_S:
            # The engine has suspended the whole job.
            self._postpone(suspended_s)
        return ready

    def _postpone(self, passed_s: float) -> None:
        self._due = {timer: due + passed_s for timer, due in self._due.items()}
        for one in self._postponed:
            one.leave_out(passed_s)

    def take_due(self) -> Iterator[Timer]:
        """Yield and remove the timers that are due now."""
        now = time.monotonic()
        for timer in [timer for timer, due in self._due.items() if due <= now]:
            del self._due[timer]
            yield timer
