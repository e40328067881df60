"""Steps of work that a few threads take, one after the other."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Step = Callable[[], None]

_POSTPONED_PAUSE_S = 0.05


class StepQueue:
    """
    Three queues: urgent steps go first, so that few objects are under way at once; postponed ones are tried again,
    after a pause, when nothing else is left.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The first that a step raised; no further step begins then."""

        self._urgent: deque[Step] = deque()
        self._waiting: deque[Step] = deque()
        self._postponed: deque[Step] = deque()
        self._running = 0
        self._change = threading.Condition()

    def run(self, steps: Iterable[Step], thread_count: int) -> None:
        """Run these steps, and those that they add, until none is left or one has failed. Blocks; raises nothing."""
        self._waiting.extend(steps)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(thread_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def add_urgent(self, steps: Iterable[Step]) -> None:
        """Add steps that the next free threads take."""
        with self._change:
            self._urgent.extend(steps)
            self._change.notify_all()

    def postpone(self, step: Step) -> None:
        """Add a step that cannot be done yet."""
        with self._change:
            self._postponed.append(step)

    def _work(self) -> None:
        while (step := self._take_step()) is not None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - whoever called ``run`` raises it
                self.error = self.error or error
            with self._change:
                self._running -= 1
                self._change.notify_all()

    def _take_step(self) -> Step | None:
        """Wait for the next step; None when there is nothing left to do."""
        with self._change:
            while self.error is None:
                if self._urgent or self._waiting:
                    self._running += 1
                    return (self._urgent or self._waiting).popleft()
                if self._postponed:
                    self._change.wait(_POSTPONED_PAUSE_S)
                    self._waiting.extend(self._postponed)
                    self._postponed.clear()
                elif self._running:
                    self._change.wait()
                else:
                    break
            return None
