"""The latest numbers of the GPUs of a node, which a helper process asks its driver for."""

from __future__ import annotations

from typing import Any, Optional

from drumline.node.metrics import nvml


class GpuReadings:
    """There are none until ``start``, and none after ``end``."""

    def __init__(self) -> None:
        self._watcher: Optional[nvml.GpuWatcher] = None
        self._has_asked = False
        self._latest: list[dict[str, Any]] = []
        self._latest_at = float("-inf")

    @property
    def helper_pid(self) -> int:
        """Return the process that asks the GPUs; 0: there is none."""
        return self._watcher.pid if self._watcher else 0

    @property
    def is_to_be_asked(self) -> bool:
        """Return whether there are GPUs that have not been asked for the next sample."""
        return self._watcher is not None and not self._has_asked

    def start(self) -> None:
        """Look for a driver, the first time only; this may start a process."""
        if self._watcher is not None or self._latest_at >= 0:
            return
        self._latest_at = 0.0
        path = nvml.find_library()
        if path:
            self._watcher = nvml.GpuWatcher(path)
            self._watcher.ask()

    def ask(self) -> None:
        """Ask for the next sample; does not wait for the answer."""
        if self._watcher:
            self._watcher.ask()
        self._has_asked = True

    def read(self, now: float, max_age_s: float) -> list[dict[str, Any]]:
        """Return the newest answer that is not older than that, for one sample. ``now``: monotonic seconds."""
        self._has_asked = False
        answer = self._watcher.answer() if self._watcher else None
        if answer is not None:
            self._latest, self._latest_at = answer, now
        elif now - self._latest_at > max_age_s:
            self._latest = []
        if self._watcher and self._watcher.is_gone:
            self.end()
        return self._latest

    def end(self) -> None:
        """End the helper process. The latest numbers stay until they are too old."""
        if self._watcher:
            self._watcher.end()
            self._watcher = None
