"""How busy the processors of this machine are."""

from __future__ import annotations

from drumline.node.metrics.machine_usage import MachineReader


class ProcessorUse:
    """Measures from ``begin`` on; ``begin`` may be called again."""

    def __init__(self) -> None:
        self._reader = MachineReader()
        self._first = self._read()

    def begin(self) -> None:
        self._first = self._read()

    def find_share(self) -> float | None:
        """Return the share of the processors' time that was used; None: not known."""
        busy_s, at = self._read()
        cores = self._reader.read().cores
        seconds = at - self._first[1]
        self._reader.close()
        return (busy_s - self._first[0]) / (seconds * cores) if seconds > 0 and cores else None

    def _read(self) -> tuple[float, float]:
        import time

        return self._reader.read().busy_s, time.monotonic()
