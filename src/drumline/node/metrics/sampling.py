"""
Samples what the node and its ranks use, for the agent: a line in ``contract.samples.path_of`` every few seconds.

The agent has exits to tell, so this does a little at a time: ``work`` takes some milliseconds at most and goes on where
it was at its next call. Nothing is raised: a disk that is full, or a folder that is read-only, costs samples and
nothing else.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract import samples
from drumline.node.metrics.machine_usage import NO_READING, MachineReader
from drumline.node.metrics.nvml import GpuReadings
from drumline.node.metrics.rank_usage import RankUsage
from drumline.node.metrics.sample_lines import INTERVAL_S, SampleLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FIRST_S = 1.0
MAX_CPU_SHARE = 0.004
"""Of a core. Where there are so many processes that a sample costs more, the next one is later."""

_ASK_AHEAD_S = 0.3
"""For the GPUs to answer in."""

_SLICE_S = 0.002


def _never_raise(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def call(self: Sampler, *arguments: Any) -> None:
        if self.is_broken:
            return
        try:
            method(self, *arguments)
        except Exception as error:  # noqa: BLE001 - ranks and agent go on without it
            self.is_broken = True
            print(f"system metrics: {error!r}; there are no more samples", file=sys.stderr)

    return call


class Sampler:
    """
    Samples the use of a node and its ranks. ``path``: the file. ``cores``: the processors of the node; empty: all.
    ``clock``: monotonic seconds, ``spent``: CPU seconds of this thread. Its samples count from now.
    """

    def __init__(
        self,
        path: str,
        attempt: int,
        cores: Sequence[int] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self.is_broken = False
        self._clock = clock
        self._spent = spent
        self._cost_s = 0.0
        """CPU time of the sample that is being taken."""

        self._interval_s = INTERVAL_S
        self._began = clock()
        self._attempt = attempt
        self._file = SampleLines(path)
        self._usage = RankUsage()
        self._cores = cores
        self._machine: Optional[MachineReader] = None
        self._before = NO_READING
        self._due = self._began + FIRST_S
        self._look: Optional[Iterator[None]] = None
        self._gpus = GpuReadings()

    def due_in_s(self) -> float:
        """Return in how many seconds ``work`` has something to do."""
        if self.is_broken:
            return float("inf")
        if self._look is not None:
            return 0.0
        due = self._due - (_ASK_AHEAD_S if self._gpus.is_to_be_asked else 0.0)
        return max(0.0, due - self._clock())

    @_never_raise
    def work(self, ranks: Mapping[int, int]) -> None:
        """
        Work, if it is time. ``ranks``: by the process id of the first process of each. First to be called at their
        start.
        """
        self._begin()
        if self.due_in_s() > 0.0:
            return
        before = self._spent()
        is_done = self._step(ranks)
        self._cost_s += self._spent() - before
        if is_done:
            self._interval_s = max(INTERVAL_S, self._cost_s / MAX_CPU_SHARE)
            self._due = self._clock() + self._interval_s
            self._cost_s = 0.0

    def _step(self, ranks: Mapping[int, int]) -> bool:
        """Take a step of a sample; return whether the sample is complete, and written."""
        if self._gpus.is_to_be_asked:
            self._gpus.ask()
            if self._clock() < self._due:
                return False
        if self._look is None:
            self._usage.begin(ranks)
            self._look = self._usage.look()
        until = time.monotonic() + _SLICE_S
        for _ in self._look:
            if time.monotonic() >= until:
                return False
        if time.monotonic() >= until - _SLICE_S / 2:
            # All is looked at; to write it is for the next call.
            self._look = iter(())
            return False
        self._look = None
        self._write()
        # After the first sample: to start the library can take seconds of somebody's time.
        self._gpus.start()
        self._usage.spared = self._gpus.helper_pid
        return True

    @_never_raise
    def note_exit(self, pid: int, rank: int, cpu_s: float, peak: int) -> None:
        """
        Note that a rank's first process was waited for, with the kernel's figures of what it used. ``peak``: bytes.
        """
        self._usage.begin({pid: rank})
        self._usage.note_end(pid, cpu_s, peak)

    @_never_raise
    def finish(self) -> None:
        """Write the last line, with what each rank has used in all: all ranks have ended."""
        self._write()
        self._file.close()
        if self._machine:
            self._machine.close()
        self.is_broken = True

    @property
    def helper_pid(self) -> int:
        """Return the process that asks the GPUs; 0: there is none."""
        return self._gpus.helper_pid

    @_never_raise
    def forget_gpus(self) -> None:
        """End all that this has started. To be called before ``finish``."""
        self._gpus.end()
        self._usage.spared = 0

    def _begin(self) -> MachineReader:
        if self._machine is None:
            self._machine = MachineReader(self._cores)
            self._before = self._machine.read()
        return self._machine

    def _write(self) -> None:
        now = self._clock()
        gpus = self._gpus.read(now, 2 * self._interval_s)
        self._usage.spared = self._gpus.helper_pid
        self._file.add(samples.to_line(self._sample(now, gpus)), now)

    def _sample(self, now: float, gpus: list[dict[str, Any]]) -> samples.Sample:
        reading, before = self._begin().read(), self._before
        memory: dict[int, dict[str, int]] = {}
        for gpu in gpus:
            for pid, size in gpu.get("pids", ()):
                memory.setdefault(pid, {})[str(gpu["i"])] = size
        return samples.Sample(
            time=time.time(),
            attempt=self._attempt,
            elapsed_s=now - self._began,
            busy_s=reading.busy_s - before.busy_s,
            cores=reading.cores,
            memory=reading.memory,
            limit=reading.limit,
            swap=reading.swap,
            network=_subtract(reading.network, before.network),
            disk=_subtract(reading.disk, before.disk),
            load=reading.load,
            ranks=self._usage.ranks(memory),
            gpus=samples.gpus_from(gpus),
        )


def _subtract(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])
