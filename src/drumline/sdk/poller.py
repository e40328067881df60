"""The part of azure-core's LROPoller that scripts use."""

from __future__ import annotations

import time

from drumline.control.jobs import lookup, recovery
from drumline.control.jobs.waiting import wait_for_end
from drumline.sdk.operations import Operations


class Poller(Operations):
    """The end of one job."""

    def __init__(self, name: str) -> None:
        self._name = name

    def result(self, timeout: float | None = None) -> None:
        """Block until the job has ended, or for ``timeout`` seconds."""
        self.wait(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait, as ``result``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        wait_for_end(lookup.folder_of(self._name), deadline)

    def done(self) -> bool:
        return recovery.recover(lookup.folder_of(self._name)).is_final

    def status(self) -> str:
        """Return ``InProgress`` or ``Succeeded``."""
        return "Succeeded" if self.done() else "InProgress"
