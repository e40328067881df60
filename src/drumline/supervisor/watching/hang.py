"""
The detection of a job that hangs, and what its ranks wait for.

A job hangs when for a set time each rank has done next to nothing but wait. One rank that goes on is enough for a job
that does. A rank that alone computes for that time, while the others wait for it, is reported too. So is one whose
exception did not end it, while the others wait for it: it is known to be lost, and ends the job sooner.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.messages import Activity
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

_LEAST_SLEEP_S, _MOST_SLEEPS = 1.0, 30
"""A sleep that ends sooner may be of a loop that looks for something; one of so many ``hang_after`` is one for ever."""

_LOST_AFTER_S, _LOST_ENDS_AFTER_S = 10.0, 30.0
"""Without progress, from when a job with a lost rank is told of, and is ended, where it is not ended for any hang."""

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
    ``is_strict``: a rank that burns CPU waits only where a collective is known by its name, and has not returned; one
    that receives or sends ``idle_bytes``, writes anything or sleeps for a known time goes on; and each rank must have
    been seen to wait, unless its node stands still, while a report may leave out those whose node does not answer.
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
    ``is_runnable``: it runs, or waits for a processor.
    ``is_over``: its program has ended of an exception, and is kept from its end, as by ``MPI_Finalize``, which spins.
    """

    stack: str = ""
    spin_s: float = 0.0
    library: str = ""
    is_collective: bool = False
    went_on: bool | None = None
    recorded: str = ""
    is_over: bool = False
    is_runnable: bool = False


class RankSample(NamedTuple):
    """
    One look at a rank: how long its log is, the CPU time that it has used, and what it has read and written.

    ``look_cpu_s``, ``look_bytes``: what it took to be looked at, which the next look has to leave out. ``activity``: as
    of the last poll.
    """

    log_bytes: int
    cpu_s: float
    io_bytes: int = 0
    look_cpu_s: float = 0.0
    look_bytes: int = 0
    where: RankPlace = RankPlace()
    activity: Activity = Activity()


_UNSEEN = RankSample(0, 0.0)


class HangDetector:
    """
    Detects that a job hangs. ``hang_after_s``: 0 for never. Times are monotonic seconds.

    Each poll is ``add_samples`` with the running ranks, and with negative numbers for processes of no rank. In the
    second half of the silence it wants their stacks too: a rank that works moves somewhere in them. A rank whose node
    is late is compared with what was last seen of it, when the node answers again.
    """

    def __init__(self, hang_after_s: float, evidence: IdleLimits = REPORT) -> None:
        self.hang_after_s = hang_after_s
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

        self._lone: int | None = None
        """The rank that alone computes, of those that were seen to."""

        self._lone_since = 0.0
        self.is_hung = False

    @property
    def pause_s(self) -> float:
        """Return the seconds between two polls."""
        return min(30.0, self.hang_after_s / SAMPLES_PER_PERIOD)

    def leave_out(self, passed_s: float) -> None:
        """Leave out time in which nothing of the job could do anything."""
        if self._printed is not None:
            self._printed += passed_s
        self._lone_since += passed_s
        self._moved = {rank: moved + passed_s for rank, moved in self._moved.items()}
        self._looked = {rank: looked + passed_s for rank, looked in self._looked.items()}

    def wants_stacks(self, now: float) -> bool:
        return self._printed is not None and now - self._printed >= self.hang_after_s / 2

    @property
    def busy(self) -> int | None:
        """Return the rank that is reported because it alone computes; None: there is none, or nobody does."""
        return self._lone if self.is_hung else None

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
        has_progressed = self._printed is None or self._seen.keys() != before_all.keys()
        is_alone = sum(rank >= 0 for rank in self._seen) == 1
        counts_training = any(seen.activity.counted for seen in self._seen.values())
        computing: set[int] = set()
        judged = 0
        for rank, seen in ranks.items():
            before, looked = before_all.get(rank, _UNSEEN), self._looked.get(rank, now)
            passed_s = max(now - looked, 1e-3)
            progressed = self._has_progressed(before, seen, passed_s, counts_training=counts_training)
            works = self._works(before, seen, passed_s, is_alone=is_alone)
            if progressed or works or rank not in self._moved:
                self._moved[rank] = now
            self._looked[rank] = now
            # Before stacks are asked for, CPU time alone says nothing: who waits may spin.
            if self.wants_stacks(looked):
                if works:
                    computing.add(rank)
                if before.where.stack or not seen.where.stack:
                    self._waits.add(rank)
                    judged += 1
            has_progressed = has_progressed or progressed
        lone = min(computing) if len(computing) == 1 and not is_alone else -1
        if any(rank != lone and not self._may_wait(seen) for rank, seen in ranks.items()):
            lone = -1
        self._note_lone(lone, now, is_known=judged == len(ranks), has_progressed=has_progressed)
        if has_progressed or computing or not self._seen:
            was_hung, self.is_hung = self.is_hung, self._is_lone_for_long(now)
            self._printed = now
            self._waits.clear()
            self._seen = {rank: seen._replace(where=RankPlace()) for rank, seen in self._seen.items()}
            return self.is_hung and not was_hung
        assert self._printed is not None
        if self.is_hung or now - self._printed < self.hang_after_s or all(rank < 0 for rank in ranks):
            return False
        expected = {*self._seen, *late}.difference(stopped)
        if self._evidence.is_strict and not self._all_wait(expected, now):
            return False
        self._lone, self.is_hung = None, True
        return True

    def _note_lone(self, lone: int, now: float, *, is_known: bool, has_progressed: bool) -> None:
        """Note the rank that alone computes; negative: none. ``is_known``: whether that of all ranks is known now."""
        if has_progressed or (is_known and lone < 0):
            self._lone = None
        elif is_known and lone != self._lone:
            # The first that does so has done nothing else since a rank went on.
            self._lone_since = now if self._lone is not None or self._printed is None else self._printed
            self._lone = lone

    def _is_lone_for_long(self, now: float) -> bool:
        is_report = not self._evidence.is_strict
        return is_report and self._lone is not None and now - self._lone_since >= self.hang_after_s

    def _all_wait(self, expected: set[int], now: float) -> bool:
        """Return whether these ranks were all seen to wait, and a moment ago at most: one may work since it is late."""
        moment_s = max(_MOMENT_S, _MOMENT_POLLS * self.pause_s)
        return self._waits.issuperset(expected) and all(
            now - self._looked[rank] <= moment_s for rank in expected
        )

    def _has_progressed(
        self, before: RankSample, seen: RankSample, passed_s: float, *, counts_training: bool
    ) -> bool:
        """
        Return whether a rank has printed, read or written, or one of its counts has risen. ``counts_training``: counts
        are known of some rank, which say more than connections to a port.
        """
        moved_bytes = seen.io_bytes - before.io_bytes - before.look_bytes
        # The limit is of one poll.
        most_bytes = self._evidence.idle_bytes * max(1.0, passed_s / self.pause_s)
        now, then = seen.activity, before.activity
        return (
            seen.log_bytes != before.log_bytes
            or moved_bytes > most_bytes
            or now.counted != then.counted
            or (
                seen.where.recorded != before.where.recorded
                and "" not in (seen.where.recorded, before.where.recorded)
            )
            or (now.requests > then.requests and not counts_training)
            or (self._evidence.is_strict and self._is_at_work(then, now, most_bytes))
        )

    def _is_at_work(self, then: Activity, now: Activity, most_bytes: float) -> bool:
        """Return whether a rank does something that may be work, and is not sure to be."""
        return (
            now.net_bytes - then.net_bytes > most_bytes
            or now.written_bytes > then.written_bytes
            or self._sleeps(now)
        )

    def _may_wait(self, seen: RankSample) -> bool:
        """Return whether a rank may wait for another one: it has no sleep of its own, and no need of a processor."""
        where = seen.where
        return not self._sleeps(seen.activity) and (not where.is_runnable or self._may_spin(where))

    def _sleeps(self, activity: Activity) -> bool:
        """Return whether a rank sleeps for a known time, after which it goes on."""
        return _LEAST_SLEEP_S <= activity.sleep_s <= _MOST_SLEEPS * self.hang_after_s

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


class HangNews(NamedTuple):
    """
    The news that a job hangs, for ``after_s``. ``is_sure``: enough is known to end it. ``lost``: a rank whose exception
    did not end it; None: the cause is open. ``watch``: what has seen it.
    """

    after_s: float
    is_sure: bool
    lost: int | None
    watch: HangDetector


class JobWatches:
    """Watches a job. ``hang_after_s``: 0 for never. ``ends_when_hung``: whether a job that hangs is ended."""

    def __init__(self, hang_after_s: float, *, ends_when_hung: bool) -> None:
        self._hang_after_s = hang_after_s
        self._ends_when_hung = ends_when_hung
        self._open = _Pair(hang_after_s, hang_after_s)
        self._lost: _Pair | None = None
        """While a rank may outlive its exception."""

    @property
    def report(self) -> HangDetector:
        return self._open.report

    @property
    def pause_s(self) -> float:
        """Return the seconds between two polls."""
        return min(pair.report.pause_s for pair in self._pairs)

    @property
    def is_hung(self) -> bool:
        """Return whether the job is to be reported by now."""
        return any(pair.report.is_hung for pair in self._pairs)

    @property
    def _pairs(self) -> list[_Pair]:
        return [self._open, self._lost] if self._lost else [self._open]

    def note_exception(self) -> bool:
        """Note that a rank may outlive an exception; return whether polls are to come sooner for that."""
        if self._lost is not None:
            return False
        end_s = _LOST_AFTER_S if self._ends_when_hung else _LOST_ENDS_AFTER_S
        self._lost = _Pair(min(_LOST_AFTER_S, self._hang_after_s), end_s)
        return True

    def leave_out(self, passed_s: float) -> None:
        """Leave out time that passed, as HangDetector does."""
        for pair in self._pairs:
            pair.report.leave_out(passed_s)
            pair.end.leave_out(passed_s)

    def wants_stacks(self, now: float) -> bool:
        return any(pair.report.wants_stacks(now) or pair.end.wants_stacks(now) for pair in self._pairs)

    def add_samples(
        self,
        seen: Mapping[int, RankSample],
        now: float,
        late: Collection[int],
        stopped: Collection[int],
        *,
        has_stacks: bool,
    ) -> HangNews | None:
        """Add samples as HangDetector does; return what is new. ``has_stacks``: these tell where ranks are."""
        news = self._open.add_samples(seen, now, late, stopped, None)
        if self._lost is None:
            return news
        over = [rank for rank, one in seen.items() if one.where.is_over]
        is_waited_for = bool(over) and any(rank >= 0 for rank in seen.keys() - over)
        if has_stacks and not is_waited_for:
            self._lost = None
            return news
        of_lost = self._lost.add_samples(seen, now, late, stopped, min(over, default=None))
        return of_lost if of_lost and of_lost.lost is not None else news


class _Pair:
    """The detectors for a report, and for the end of the job."""

    def __init__(self, report_after_s: float, end_after_s: float) -> None:
        self.report = HangDetector(report_after_s)
        self.end = HangDetector(end_after_s, END)

    def add_samples(
        self,
        seen: Mapping[int, RankSample],
        now: float,
        late: Collection[int],
        stopped: Collection[int],
        lost: int | None,
    ) -> HangNews | None:
        hangs = self.report.add_samples(seen, now, late, stopped)
        surely = self.end.add_samples(seen, now, late, stopped)
        if not hangs and not surely:
            return None
        after_s = (self.end if surely else self.report).hang_after_s
        return HangNews(after_s, self.end.is_hung, lost, self.report)


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
        any(process.get("state") == "R" for process in processes),
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
    if process.get("is_done") and places:
        return [f"be done with the program but kept by a thread, {places[0].partition(' ')[2]}"]
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
    entered: Mapping[int, int] | None = None,
) -> str:
    """
    Explain a hang: ``ranks 0-2 wait in all_reduce (train.py:12, in step); rank 3 is in load_batch (data.py:31)``.

    Ranks at one place come together, the most first, so that the odd one is last. ``entered``: by rank, the collectives
    of all ranks that it has entered.
    """
    entered = entered or {}
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, processes in sorted(stacks.items()):
        activity = _describe_activity(processes, watch.quiet_s(rank, now))
        if rank == watch.busy:
            activity = [_add_busy(activity[0]), *activity[1:]]
        behind = max(entered.values(), default=0) - entered.get(rank, 0)
        if behind and not any(one.get("collective") or one.get("raised") for one in processes):
            activity.append(f"{'one collective' if behind == 1 else f'{behind} collectives'} behind")
        groups.setdefault(tuple(activity), []).append(rank)
    said = []
    for doing, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        who = exit_messages.list_ranks([labels[rank] for rank in ranks])
        parts = [_conjugate(part, len(ranks)) for part in doing]
        said.append(
            f"{who} {parts[0]}"
            + "".join(f", {part.removeprefix('is ').removeprefix('are ')}" for part in parts[1:])
        )
    return "; ".join(said) or "no rank has answered"


def _add_busy(doing: str) -> str:
    """Return the place of a rank that computes there, as ``be busy in step (train.py:5)``."""
    verb, _, place = doing.partition(" ")
    return f"be busy {place}" if verb == "be" and place.startswith("in ") else "be busy"


def _conjugate(doing: str, count: int) -> str:
    verb, _, rest = doing.partition(" ")
    if verb == "raised":
        return doing
    if verb == "be":
        return f"{'is' if count == 1 else 'are'} {rest}"
    if verb == "wait":
        return f"{'waits' if count == 1 else 'wait'} {rest}"
    return f"{'is' if count == 1 else 'are'} {doing}"


def describe_silence(seconds: float, busy: str = "") -> str:
    """Describe what was seen for so many seconds. ``busy``: the label of the rank that alone computes; or none."""
    if busy:
        return f"rank {busy} alone has computed for {seconds:g} s, and no rank has printed anything"
    return f"no rank has printed anything or gone on for {seconds:g} s"
