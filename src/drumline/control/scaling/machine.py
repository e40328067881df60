"""How busy the processors of this machine are, and how many ranks its memory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.words import format_count, format_size
from drumline.control.jobs.outcome import read_outcome
from drumline.control.observing.usage import summarize_usage
from drumline.node.metrics.machine_usage import MachineReader

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

_SHARED = 4
"""Times by which ranks may need more than is free: pages that they share are counted for each of them."""


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
        return (busy_s - self._first[0]) / (seconds * cores) if seconds > 0 and cores else None

    def close(self) -> None:
        self._reader.close()

    def _read(self) -> tuple[float, float]:
        import time

        return self._reader.read().busy_s, time.monotonic()


class MemoryUse:
    """The most memory that a rank of the jobs before has had, and what this machine has left for the next one."""

    def __init__(self) -> None:
        self._peak = 0

    def add(self, folder: RunFolder) -> None:
        """Read the samples of a job that has ended."""
        found = summarize_usage(folder, read_outcome(folder)) or {"ranks": []}
        self._peak = max([self._peak, *(one["peak_memory_bytes"] for one in found["ranks"])])

    def explain_lack(self, ranks: int) -> str:
        """Return why so many ranks find no room; empty where they do, or nothing is known."""
        reader = MachineReader()
        reading = reader.read()
        reader.close()
        free = min(total - used for used, total in (reading.memory, reading.limit or reading.memory))
        return describe_lack(ranks, self._peak, free)


def describe_lack(ranks: int, peak: int, free: int) -> str:
    """
    Return a sentence where ranks of ``peak`` bytes need far more than is free.

    >>> describe_lack(1000, 160 << 20, 22 << 30)
    'not run: 1,000 ranks of 160 MiB, as at the sizes before, need 156 GiB of memory, and this machine has 22 GiB left'
    >>> describe_lack(4, 160 << 20, 22 << 30)
    ''
    """
    if ranks * peak <= _SHARED * free:
        return ""
    return (
        f"not run: {format_count(ranks, 'rank')} of {format_size(peak)}, as at the sizes before, "
        f"need {format_size(ranks * peak)} of memory, and this machine has {format_size(free)} left"
    )
