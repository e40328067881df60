"""
Times of different nodes, made comparable: each agent's monotonic clock against this machine's.

A question and its answer bound the difference to half of what they took together; of the last few the quickest counts.
"""

from __future__ import annotations

import time
from collections import deque

_BEGIN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

SAMPLES = 5
AGAIN_S = 60.0
"""Clocks of two machines drift apart by some ten microseconds each second."""

TOLD_EVERY_S = 5.0


def wall_time() -> float:
    """
    Return the seconds since 1970, for what happens to a job.

    A machine's clock that is set meanwhile must not make an end come before its beginning. It goes on while the machine
    sleeps.
    """
    return _BEGIN + time.clock_gettime(time.CLOCK_BOOTTIME)


class Clocks:
    def __init__(self) -> None:
        self._asked: dict[int, float] = {}
        self._samples: dict[int, deque[tuple[float, float]]] = {}
        """By node: (round trip, its clock less ours), in seconds."""
        self._next = time.monotonic() + AGAIN_S
        self._is_new = False
        self._told = float("-inf")

    def ask(self, node: int) -> None:
        """Note that a question is sent to that node now."""
        self._asked[node] = time.monotonic()

    def take_answer(self, node: int, at: float) -> bool:
        """Take in what its clock said; whether to ask it again at once."""
        asked, now = self._asked.pop(node, None), time.monotonic()
        if asked is None:
            return False
        samples = self._samples.setdefault(node, deque(maxlen=SAMPLES))
        samples.append((now - asked, at - (asked + now) / 2))
        self._is_new = True
        return len(samples) < SAMPLES

    def take_new(self) -> dict[str, float] | None:
        """
        Return when the monotonic clock of each node was 0, in seconds since 1970 by this machine's clock; None: nothing
        new, or it was asked for just now.
        """
        if not self._is_new or time.monotonic() < self._told + TOLD_EVERY_S:
            return None
        self._is_new, self._told = False, time.monotonic()
        return {str(node): self.wall(node, 0.0) for node in sorted(self._samples)}

    def is_due(self) -> bool:
        """Return whether it is time to ask all nodes once more; True only once each time."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + AGAIN_S
        return True

    def wall(self, node: int, at: float) -> float:
        """Return the seconds since 1970, by this machine's clock, of a time on that node's monotonic clock."""
        samples = self._samples.get(node)
        ahead = min(samples)[1] if samples else 0.0
        return wall_time() - (time.monotonic() - (at - ahead))
