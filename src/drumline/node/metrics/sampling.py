"""
Samples what the node and its ranks use, for the agent: a line in ``contract.samples.path_of`` every few seconds.

The agent has exits to tell, so this does a little at a time: ``work`` takes some milliseconds at most and goes on where
it was at its next call. Nothing is raised: a disk that is full, or a folder that is read-only, costs samples and
nothing else. The use of a rank is that of its first process and of all that it has started.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract import samples
from drumline.contract.samples import NO_RANK, RankUse
from drumline.linux import descendants, process_usage
from drumline.node.metrics.log_files import INTERVAL_S, SampleLines
from drumline.node.metrics.machine_usage import NO_READING, MachineReader
from drumline.node.metrics.nvml import GpuReadings

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


# The use of each rank: its first process, and all that it has started, wherever that is by now.


_MAX_ENVIRONMENT_BYTES = 1 << 17
_NOTES = b"DRUMLINE_FAILURES="
_STRANGER = -2
_GONE = -3
"""Who had started it is, so that whose it is shows at the next look."""


class _KnownProcess:
    __slots__ = ("io", "own", "rank", "seen", "start", "waited")

    def __init__(self, rank: int, start: int) -> None:
        self.rank = rank
        self.start = start
        self.own = self.waited = self.seen = 0
        self.io = (0, 0, 0, 0)


class _RankTotal:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.cpu_s = 0.0
        self.memory = self.peak = self.processes = self.threads = 0
        self.io = [0, 0, 0, 0]
        self.is_io_known = False
        self.has_ended = False

    def add(self, total: _Sum) -> None:
        # What was waited for within the tree moves to the parent; what was not, such as a daemon, is lost.
        self.cpu_s += (total.own + max(0, total.waited)) / process_usage.TICKS_PER_S
        self.io = [before + max(0, more) for before, more in zip(self.io, total.io)]
        self.memory = total.private + total.shared
        self.peak = max(self.peak, self.memory)
        self.processes, self.threads = total.processes, total.threads


class _Sum:
    """The sums of one rank, while a look goes on."""

    def __init__(self) -> None:
        self.own = self.waited = self.private = self.shared = self.processes = self.threads = 0
        self.io = [0, 0, 0, 0]


class RankUsage:
    """The use of all that is below this process, by rank. ``spared``: a process below it that is left out; 0: none."""

    def __init__(self) -> None:
        self.spared = 0
        self._agent = os.getpid()
        self._ranks: dict[int, _RankTotal] = {}
        self._rank_of: dict[int, int] = {}
        """Of the first process of each, those that have ended too."""

        self._known: dict[int, _KnownProcess] = {}
        self._foreign: set[int] = set()
        """A process that was not below the agent will not be: nobody else's orphans come to it."""

        self._looks = 0

    def ranks(self, gpus: Mapping[int, Mapping[str, int]]) -> tuple[RankUse, ...]:
        """Return the use of each rank as of the last look. ``gpus``: by process id, how much it has of each."""
        memory: dict[int, dict[str, int]] = {}
        for pid, shares in gpus.items():
            process = self._known.get(pid)
            if process is not None:
                own = memory.setdefault(process.rank, {})
                for index, size in shares.items():
                    own[index] = own.get(index, 0) + size
        return tuple(
            RankUse(
                rank,
                one.pid,
                one.cpu_s,
                one.memory,
                one.peak,
                one.processes,
                one.threads,
                (one.io[0], one.io[1], one.io[2], one.io[3]) if one.is_io_known else None,
                memory.get(rank, {}),
                one.has_ended,
            )
            for rank, one in sorted(self._ranks.items())
        )

    def note_end(self, pid: int, cpu_s: float, peak: int) -> None:
        """
        Note that a first process was waited for, with the kernel's figures of it and of those that it had waited for.
        """
        rank = self._ranks.get(self._rank_of.get(pid, _STRANGER))
        if rank is not None:
            rank.has_ended = True
            rank.memory = rank.processes = rank.threads = 0
            rank.cpu_s = max(rank.cpu_s, cpu_s)
            rank.peak = max(rank.peak, peak)

    def begin(self, ranks: Mapping[int, int]) -> None:
        """Begin with ranks that have started, given by the process id of the first process of each."""
        for pid, rank in ranks.items():
            if pid not in self._rank_of:
                self._rank_of[pid] = rank
                self._ranks[rank] = _RankTotal(pid)

    def look(self) -> Iterator[None]:
        """Look once at all of them. It may be left alone for a while at each step."""
        self._looks += 1
        # Where a machine has many agents, each whose ranks have ended would read the processes of all others.
        has_all_ended = all(rank.has_ended for rank in self._ranks.values())
        may_find = bool(self._known) or not has_all_ended or descendants.has_children()
        present = [int(name) for name in os.listdir("/proc") if name.isdigit()] if may_find else []
        self._foreign.intersection_update(present)
        sums: dict[int, _Sum] = {}
        for pid in present:
            if pid not in self._foreign and pid not in (self._agent, self.spared):
                self._add(pid, sums)
                yield
        for pid in [pid for pid, process in self._known.items() if process.seen != self._looks]:
            process = self._known.pop(pid)
            _subtract_process(process, sums.setdefault(process.rank, _Sum()))
        for number, rank in self._ranks.items():
            rank.add(sums.get(number) or _Sum())

    def _add(self, pid: int, sums: dict[int, _Sum]) -> None:
        stat = process_usage.read_stat(pid)
        if stat is None:
            return
        process = self._known.get(pid)
        if process is None or process.start != stat.start:
            rank = self._find(pid, stat)
            if rank == _STRANGER:
                self._foreign.add(pid)
            if rank in (_STRANGER, _GONE):
                return
            if process is not None:
                _subtract_process(process, sums.setdefault(process.rank, _Sum()))
            process = self._known[pid] = _KnownProcess(rank, stat.start)
            if rank == NO_RANK and rank not in self._ranks:
                self._ranks[rank] = _RankTotal(pid)
        total = sums.setdefault(process.rank, _Sum())
        total.own += stat.own - process.own
        total.waited += stat.waited - process.waited
        process.own, process.waited, process.seen = stat.own, stat.waited, self._looks
        if stat.state not in "ZX":
            total.processes += 1
            total.threads += stat.threads
            resident, shared = process_usage.read_memory(pid)
            total.private += resident - shared
            total.shared = max(total.shared, shared)
            io = process_usage.read_io(pid)
            if io is not None:
                self._ranks[process.rank].is_io_known = True
                total.io = [sum_ + now - before for sum_, now, before in zip(total.io, io, process.io)]
                process.io = io

    def _find(self, pid: int, stat: process_usage.ProcessStat) -> int:
        """Return the rank of a process: its parent's, and so on up to the first process of a rank, or to the agent."""
        below: list[int] = []
        while pid not in self._rank_of:
            process = self._known.get(pid)
            if process is not None and process.start == stat.start:
                return process.rank
            below.append(pid)
            if stat.parent == self._agent:
                return self._find_orphan(pid, stat)
            if stat.parent in self._foreign or stat.parent == 0 or stat.parent in below:
                return _STRANGER
            pid = stat.parent
            above = process_usage.read_stat(pid)
            if above is None:
                return _GONE
            stat = above
        return self._rank_of[pid]

    def _find_orphan(self, pid: int, stat: process_usage.ProcessStat) -> int:
        """
        Return the rank of a process that the agent adopted, or started for none: by its session, or by its variables.
        """
        if stat.session in self._rank_of:
            return self._rank_of[stat.session]
        for variable in process_usage.read_bytes(f"/proc/{pid}/environ", _MAX_ENVIRONMENT_BYTES).split(b"\0"):
            if variable.startswith(_NOTES):
                number = variable.rpartition(b"failures-")[2].partition(b".")[0]
                if number.isdigit() and int(number) in self._ranks:
                    return int(number)
        return NO_RANK


def _subtract_process(process: _KnownProcess, total: _Sum) -> None:
    """Subtract a process that is gone: its use is its parent's now, as time of children that were waited for."""
    total.waited -= process.own + process.waited
    total.io = [before - own for before, own in zip(total.io, process.io)]
