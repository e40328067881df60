"""
The detection of a job that hangs, and what its ranks wait for.

A job hangs when for a set time each rank has done next to nothing but wait. One rank that goes on is enough for a job
that does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.patterns import compile_late
from drumline.contract.record import NamedTuple
from drumline.node.diagnostics.failures import LIBRARY_FILE
from drumline.supervisor.explaining import exit_messages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

SAMPLES_PER_PERIOD = 10

_MOVING_SHARE = 0.02
"""Of a core: a rank whose stack changes goes on with so little; one that waits wakes up now and then."""

_NOISE_S = 0.03
"""CPU times are told in hundredths of a second, and rounded for the process and for its threads."""

_MOMENT_S, _MOMENT_POLLS = 15.0, 3
"""For which what was seen of a rank on a node that is late since still says that it waits."""

_COLLECTIVES = compile_late(
    r"^(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|reduce|scatter|gather|send|recv"
    r"|isend|irecv|monitored_barrier|synchronize)(_\w+)?$",
    re.IGNORECASE,
)
_DISTRIBUTED = compile_late(
    r"torch/distributed/|horovod/|mpi4py|tensorflow/python/distribute|jax/.*multihost"
)


class IdleLimits(NamedTuple):
    """
    Limits below which a rank counts as one that waits.

    ``idle_share``: of a core, outside a wait. ``idle_bytes``: read and written between two polls.
    ``is_strict``: a rank that burns CPU waits only where a collective is known by its name, and has not returned; and
    each rank must have been seen to wait, unless its node stands still, while a report may leave out those whose node
    does not answer.
    """

    idle_share: float
    idle_bytes: int
    is_strict: bool


REPORT = IdleLimits(0.1, 1 << 20, False)
"""A report may be wrong now and then. A busy program of MPI or of a GPU that stays at one place may spin there."""

END = IdleLimits(0.02, 1 << 16, True)
"""For a job that is to be ended."""


class RankPlace(NamedTuple):
    """
    The place of a rank. ``stack``: of all its processes, to be compared; empty: it may be anywhere.

    ``spin_s``: CPU time so far of the threads that may spin there. ``library``: one that spins is in use.
    ``is_collective``: that is where it is. ``went_on``: it has run Python since it was last asked; None: not known.
    ``recorded``: what PyTorch's flight recorder says of its collectives; empty where that is not known.
    ``is_over``: its program has ended of an exception, and is kept from its end, as by ``MPI_Finalize``, which spins.
    """

    stack: str = ""
    spin_s: float = 0.0
    library: str = ""
    is_collective: bool = False
    went_on: bool | None = None
    recorded: str = ""
    is_over: bool = False


class RankSample(NamedTuple):
    """
    One look at a rank: how long its log is, the CPU time that it has used, and what it has read and written.

    ``look_cpu_s``, ``look_bytes``: what it took to be looked at, which the next look has to leave out.
    """

    log_bytes: int
    cpu_s: float
    io_bytes: int = 0
    look_cpu_s: float = 0.0
    look_bytes: int = 0
    where: RankPlace = RankPlace()


_UNSEEN = RankSample(0, 0.0)


class HangDetector:
    """
    Detects that a job hangs. ``hang_after_s``: 0 for never. Times are monotonic seconds.

    Each poll is ``add_samples`` with the running ranks, and with negative numbers for processes of no rank. In the
    second half of the silence it wants their stacks too: a rank that works moves somewhere in them. A rank whose node
    is late is compared with what was last seen of it, when the node answers again.
    """

    def __init__(self, hang_after_s: float, evidence: IdleLimits = REPORT) -> None:
        self._hang_after_s = hang_after_s
        self._evidence = evidence
        self._seen: dict[int, RankSample] = {}
        self._moved: dict[int, float] = {}
        """When each rank did last do something, as far as is known."""

        self._printed: float | None = None
        """When the last rank printed, or went on otherwise."""

        self._looked: dict[int, float] = {}
        """When each rank was last seen."""

        self._waits: set[int] = set()
        """Ranks that were seen to wait, with their stacks, since ``_printed``."""

        self.is_hung = False

    @property
    def pause_s(self) -> float:
        """Return the seconds between two polls."""
        return min(30.0, self._hang_after_s / SAMPLES_PER_PERIOD)

    def leave_out(self, passed_s: float) -> None:
        """Leave out time in which nothing of the job could do anything."""
        if self._printed is not None:
            self._printed += passed_s
        self._moved = {rank: moved + passed_s for rank, moved in self._moved.items()}
        self._looked = {rank: looked + passed_s for rank, looked in self._looked.items()}

    def wants_stacks(self, now: float) -> bool:
        return self._printed is not None and now - self._printed >= self._hang_after_s / 2

    def quiet_s(self, rank: int, now: float) -> float:
        """Return for how many seconds a rank has done nothing."""
        return now - self._moved.get(rank, now)

    def add_samples(
        self,
        ranks: Mapping[int, RankSample],
        now: float,
        late: Collection[int] = frozenset(),
        stopped: Collection[int] = frozenset(),
    ) -> bool:
        """
        Add samples of the ranks; True when the job hangs, once for each time that it does. ``late``: those of which
        nothing is known this time, since their node has not answered. ``stopped``: those of them whose node stands
        still, and which do so too.
        """
        before_all = self._seen
        self._seen = {**{rank: before_all[rank] for rank in late if rank in before_all}, **ranks}
        went_on = self._printed is None or self._seen.keys() != before_all.keys()
        is_alone = sum(rank >= 0 for rank in self._seen) == 1
        for rank, seen in ranks.items():
            before, looked = before_all.get(rank, _UNSEEN), self._looked.get(rank, now)
            passed_s = max(now - looked, 1e-3)
            printed = self._has_printed(before, seen, passed_s)
            works = self._works(before, seen, passed_s, is_alone=is_alone)
            if printed or works or rank not in self._moved:
                self._moved[rank] = now
            self._looked[rank] = now
            # Before stacks are asked for, CPU time alone says nothing: who waits may spin.
            if self.wants_stacks(looked):
                went_on = went_on or works
                if before.where.stack or not seen.where.stack:
                    self._waits.add(rank)
            went_on = went_on or printed
        if went_on or not self._seen:
            self._printed, self.is_hung = now, False
            self._waits.clear()
            self._seen = {rank: seen._replace(where=RankPlace()) for rank, seen in self._seen.items()}
            return False
        assert self._printed is not None
        if self.is_hung or now - self._printed < self._hang_after_s or all(rank < 0 for rank in ranks):
            return False
        expected = {*self._seen, *late}.difference(stopped)
        if self._evidence.is_strict and not self._all_wait(expected, now):
            return False
        self.is_hung = True
        return True

    def _all_wait(self, expected: set[int], now: float) -> bool:
        """Return whether these ranks were all seen to wait, and a moment ago at most: one may work since it is late."""
        moment_s = max(_MOMENT_S, _MOMENT_POLLS * self.pause_s)
        return self._waits.issuperset(expected) and all(
            now - self._looked[rank] <= moment_s for rank in expected
        )

    def _has_printed(self, before: RankSample, seen: RankSample, passed_s: float) -> bool:
        moved_bytes = seen.io_bytes - before.io_bytes - before.look_bytes
        # The limit is of one poll.
        most_bytes = self._evidence.idle_bytes * max(1.0, passed_s / self.pause_s)
        return seen.log_bytes != before.log_bytes or moved_bytes > most_bytes

    def _works(self, before: RankSample, seen: RankSample, passed_s: float, *, is_alone: bool) -> bool:
        """Return whether a rank has computed since, as far as CPU time and stacks tell."""
        used_s = seen.cpu_s - before.cpu_s - before.look_cpu_s
        least_s = max(self._evidence.idle_share * passed_s, _NOISE_S)
        where, was = seen.where, before.where
        if where.is_over and not is_alone:
            return False
        if not where.stack or is_alone:
            # Alone it waits for nobody.
            return used_s > least_s
        if not was.stack:
            return False
        if where.recorded != was.recorded and where.recorded and was.recorded:
            return True
        if where.stack != was.stack:
            return used_s > _MOVING_SHARE * passed_s
        spun_s = where.spin_s - was.spin_s
        if used_s - spun_s > least_s:
            # Other threads and processes than those that may wait there.
            return True
        if self._evidence.is_strict and where.is_collective and where.went_on:
            # Another one, at the same line: gloo uses little CPU time on a slow network.
            return True
        return spun_s > least_s and not self._may_spin(where)

    def _may_spin(self, where: RankPlace) -> bool:
        if self._evidence.is_strict:
            return where.is_collective and where.went_on is False
        return where.is_collective or (bool(where.library) and not where.went_on)


def locate_rank(processes: Sequence[Mapping[str, Any]]) -> RankPlace:
    """Locate a rank by what the agent says of its processes; nowhere when one has no stack, for it may be anywhere."""
    frames = [process["frames"] for process in processes]
    is_over = bool(processes) and all(process.get("raised") for process in processes)
    if not frames or not all(frames):
        return RankPlace(is_over=is_over)
    collectives = [process.get("collective") for process in processes]
    known = [process.get("spin") or {} for process in processes]
    went_on = {process.get("went_on") for process in processes}
    return RankPlace(
        repr(frames),
        sum(spin.get("cpu_s", 0.0) for spin in known),
        next((spin["library"] for spin in known if spin.get("library")), ""),
        all(_is_collective(process) for process in processes),
        True if True in went_on else None if None in went_on else False,
        repr(collectives) if any(collectives) else "",
        is_over,
    )


def _is_collective(process: Mapping[str, Any]) -> bool:
    """
    Return whether a process waits for other ranks, by its stack, PyTorch's flight recorder, or its line of the program.
    """
    recorded = process.get("collective") or {}
    called = (process.get("spin") or {}).get("call")
    return bool(called or recorded.get("is_waiting") or _find_collective(process["frames"]))


def list_places(processes: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the places of a rank by the Python frames of its processes; none where none are known."""
    places = (
        _add_collective(_describe_place(process["frames"]), process.get("collective"))
        for process in processes
    )
    return list(dict.fromkeys(place for place in places if place))


def _add_collective(place: str, collective: Mapping[str, Any] | None) -> str:
    """Add the number of the collective, where PyTorch's flight recorder knows it."""
    if not collective or not place:
        return place
    seq = f"seq {collective['seq']}" + (f" of {collective['group']}" if collective["group"] else "")
    if not collective["is_waiting"]:
        return f"{place}, its last collective was {collective['name']}, {seq}"
    if place.startswith("wait in "):
        what, _, where = place.partition(" (")
        return f"{what} ({seq}, {where}"
    return f"{place}, waiting in {collective['name']}, {seq}"


def _describe_place(frames: list[list[Any]]) -> str:
    """Describe a place: ``wait in all_reduce (train.py:210, in step)``, ``be in load_batch (data.py:31)``."""
    frames = [frame for frame in frames if frame[0] != _OURS]
    own = next((frame for frame in frames if not LIBRARY_FILE.search(frame[0])), None)
    if own is None:
        return _describe_library_place(frames)
    inner = frames[: frames.index(own)]
    function = _find_collective(inner)
    if function:
        return f"wait in {function} ({own[0]}:{own[1]}, in {own[2]})"
    called = next((frame[2] for frame in reversed(inner) if not _WRAPPER.fullmatch(frame[2])), "")
    if called:
        return f"be in {called} ({own[0]}:{own[1]}, in {own[2]})"
    return f"be in {own[2]} ({own[0]}:{own[1]})"


_OURS = "<drumline>"
"""The file of functions of the hook that stand in the place of a library's."""

_WRAPPER = compile_late(r"\w*wrap\w*|_call_impl|__call__|_fn|inner|decorate_context|_?decorat\w*")
"""Functions of libraries that only call another."""


def _describe_library_place(frames: list[list[Any]]) -> str:
    """Describe the place of a program of which no line is there: it is at its end, or an installed package."""
    if not frames:
        return ""
    if any(frame[2] == "_shutdown" and frame[0].endswith("/threading.py") for frame in frames):
        return "be at the end of its program, where it waits for its threads"
    file, line, function = next((frame for frame in frames if "-packages/" in frame[0]), frames[0])
    packaged = file.rpartition("-packages/")[2]
    return f"be in {function}" + ("" if packaged.startswith("/") else f" ({packaged}:{line})")


def _find_collective(frames: list[list[Any]]) -> str:
    """Find, from the program inwards, the first function that a library for several ranks has; empty: there is none."""
    for file, _, function in reversed(frames):
        if _DISTRIBUTED.search(file) and _COLLECTIVES.match(function):
            return str(function)
    return ""


def _describe_activity(processes: Sequence[Mapping[str, Any]], quiet_s: float) -> list[str]:
    """Describe what ended a rank's program, or its places and, where the kernel holds it, what for."""
    for one in processes:
        if raised := one.get("raised"):
            message = f": {raised['message']}" if raised["message"] else ""
            where = f" ({raised['file']}:{raised['line']})" if raised["file"] else ""
            return [f"raised {raised['type']}{message}{where} but did not end"]
    places = list_places(processes)
    process = processes[0] if processes else {}
    state = process.get("state")
    if state == "D":
        return [*places, f"waiting on the disk for {quiet_s:.0f} s"]
    if state in ("T", "t"):
        return [*places, "stopped by a signal"]
    if places:
        return places
    where = process.get("waits_in") or ""
    return [
        f"be asleep in the kernel ({where})" if where not in ("", "0") else "be at a place that is not known"
    ]


def explain_hang(
    stacks: Mapping[int, Sequence[Mapping[str, Any]]],
    labels: Mapping[int, str],
    watch: HangDetector,
    now: float,
) -> str:
    """
    Explain a hang: ``ranks 0-2 wait in all_reduce (train.py:12, in step); rank 3 is in load_batch (data.py:31)``.

    Ranks at one place come together, the most first, so that the odd one is last.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, processes in sorted(stacks.items()):
        groups.setdefault(tuple(_describe_activity(processes, watch.quiet_s(rank, now))), []).append(rank)
    said = []
    for doing, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        who = exit_messages.list_ranks([labels[rank] for rank in ranks])
        parts = [_conjugate(part, len(ranks)) for part in doing]
        said.append(
            f"{who} {parts[0]}"
            + "".join(f", {part.removeprefix('is ').removeprefix('are ')}" for part in parts[1:])
        )
    return "; ".join(said) or "no rank has answered"


def _conjugate(doing: str, count: int) -> str:
    verb, _, rest = doing.partition(" ")
    if verb == "raised":
        return doing
    if verb == "be":
        return f"{'is' if count == 1 else 'are'} {rest}"
    if verb == "wait":
        return f"{'waits' if count == 1 else 'wait'} {rest}"
    return f"{'is' if count == 1 else 'are'} {doing}"


def describe_silence(seconds: float) -> str:
    return f"no rank has printed anything or gone on for {seconds:g} s"
