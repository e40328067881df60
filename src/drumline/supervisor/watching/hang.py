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
from drumline.contract.record import NamedTuple, compile_late
from drumline.contract.words import format_seconds, name_several
from drumline.node.diagnostics.failures import LIBRARY_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Literal

    _Doing = Literal["progressed", "computed", "may have computed", "waited", "unknown"]

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
    ``has_children``: other processes of the rank keep it then, and may still work.
    """

    stack: str = ""
    spin_s: float = 0.0
    library: str = ""
    is_collective: bool = False
    went_on: bool | None = None
    recorded: str = ""
    is_over: bool = False
    has_children: bool = False
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


class Poll(NamedTuple):
    """
    One look at all ranks, and with negative numbers at processes of no rank. ``now``: monotonic seconds. ``late``:
    those of which nothing is known this time, since their node has not answered. ``stopped``: those of them whose node
    stands still, and which do so too. ``has_stacks``: the samples tell where ranks are.
    """

    samples: Mapping[int, RankSample]
    now: float
    late: Collection[int] = frozenset()
    stopped: Collection[int] = frozenset()
    has_stacks: bool = True


class _LastSeen(NamedTuple):
    """
    A rank as it was last seen. ``active_at``: when it last did something, as far as is known. ``has_waited``: it was
    seen to wait, with its stacks, since the silence began.
    """

    sample: RankSample
    seen_at: float
    active_at: float
    has_waited: bool


class _Change(NamedTuple):
    """
    Two looks at a rank, ``passed_s`` apart. ``is_alone``: the job has no other. ``trains``: counts are known of some
    rank, which say more than connections to a port.
    """

    before: RankSample
    now: RankSample
    passed_s: float
    is_alone: bool
    trains: bool


class HangDetector:
    """
    Detects that a job hangs. ``hang_after_s``: 0 for never. Times are monotonic seconds.

    In the second half of the silence it wants the ranks' stacks too: a rank that works moves somewhere in them. A rank
    whose node is late is compared with what was last seen of it, when the node answers again. Each poll says of a rank
    that it

    - ``progressed``: it printed, read, wrote, or counted on. The silence begins anew.
    - ``computed``: it used CPU time outside of a wait. The silence begins anew; one that alone does so is noted.
    - ``waited``: neither, by its stacks. A job hangs when all do so for long enough.
    - ``may have computed`` or ``unknown``: without stacks before, which may be any of these.
    """

    def __init__(self, hang_after_s: float, evidence: IdleLimits = REPORT) -> None:
        self.hang_after_s = hang_after_s
        self._evidence = evidence
        self._ranks: dict[int, _LastSeen] = {}
        self._silent_since: float | None = None
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
        if self._silent_since is not None:
            self._silent_since += passed_s
        self._lone_since += passed_s
        self._ranks = {
            rank: last._replace(seen_at=last.seen_at + passed_s, active_at=last.active_at + passed_s)
            for rank, last in self._ranks.items()
        }

    def wants_stacks(self, now: float) -> bool:
        return self._silent_since is not None and now - self._silent_since >= self.hang_after_s / 2

    @property
    def busy(self) -> int | None:
        """Return the rank that is reported because it alone computes; None: there is none, or nobody does."""
        return self._lone if self.is_hung else None

    def quiet_s(self, rank: int, now: float) -> float:
        """Return for how many seconds a rank has done nothing."""
        return now - self._ranks[rank].active_at if rank in self._ranks else 0.0

    def add(self, poll: Poll) -> bool:
        """Add a poll; True when the job hangs, once for each time that it does."""
        before, now = self._ranks, poll.now
        late = {rank: before[rank] for rank in poll.late if rank in before}
        samples = {**{rank: last.sample for rank, last in late.items()}, **poll.samples}
        is_alone = sum(rank >= 0 for rank in samples) == 1
        trains = any(sample.activity.counted for sample in samples.values())
        doings: dict[int, _Doing] = dict.fromkeys(poll.samples, "progressed")
        self._ranks = dict(late)
        for rank, sample in poll.samples.items():
            last = before.get(rank, _LastSeen(sample, now, now, has_waited=False))
            if rank in before:
                change = _Change(last.sample, sample, max(now - last.seen_at, 1e-3), is_alone, trains)
                doings[rank] = self._judge(change, had_stacks=self.wants_stacks(last.seen_at))
            active_at = last.active_at if doings[rank] in ("waited", "unknown") else now
            has_waited = last.has_waited or doings[rank] == "waited"
            self._ranks[rank] = _LastSeen(sample, now, active_at, has_waited)
        has_progressed = "progressed" in doings.values() or samples.keys() != before.keys()
        self._note_lone(poll, doings, has_progressed=has_progressed or is_alone)
        if has_progressed or "computed" in doings.values() or self._silent_since is None:
            return self._begin_anew(now)
        if self.is_hung or now - self._silent_since < self.hang_after_s or all(rank < 0 for rank in doings):
            return False
        if self._evidence.is_strict and not self._all_wait(poll):
            return False
        self._lone, self.is_hung = None, True
        return True

    def _judge(self, change: _Change, *, had_stacks: bool) -> _Doing:
        """Judge what a rank has done between two looks. ``had_stacks``: the first was to tell where it is."""
        if self._has_progressed(change):
            return "progressed"
        has_computed = self._has_computed(change)
        if not had_stacks:
            # CPU time alone says nothing: a rank that waits may spin.
            return "may have computed" if has_computed else "unknown"
        if has_computed:
            return "computed"
        return "waited" if change.before.where.stack or not change.now.where.stack else "unknown"

    def _note_lone(self, poll: Poll, doings: Mapping[int, _Doing], *, has_progressed: bool) -> None:
        """Note the rank that alone computes while all others may wait for it."""
        computing = [rank for rank, doing in doings.items() if doing == "computed"]
        others = [sample for rank, sample in poll.samples.items() if rank not in computing]
        lone = computing[0] if len(computing) == 1 and all(map(self._may_wait, others)) else -1
        is_known = all(doing in ("computed", "waited") for doing in doings.values())
        if has_progressed or (is_known and lone < 0):
            self._lone = None
        elif is_known and lone != self._lone:
            # The first that does so has done nothing else since a rank went on.
            assert self._silent_since is not None
            self._lone_since = self._silent_since if self._lone is None else poll.now
            self._lone = lone

    def _begin_anew(self, now: float) -> bool:
        """Begin the silence anew; return whether a rank that computes alone is now reported for it."""
        is_lone = self._lone is not None and now - self._lone_since >= self.hang_after_s
        was_hung, self.is_hung = self.is_hung, is_lone and not self._evidence.is_strict
        self._silent_since = now
        self._ranks = {
            rank: last._replace(sample=last.sample._replace(where=RankPlace()), has_waited=False)
            for rank, last in self._ranks.items()
        }
        return self.is_hung and not was_hung

    def _all_wait(self, poll: Poll) -> bool:
        """Return whether all ranks were seen to wait, a moment ago at most: one may work since it is late."""
        moment_s = max(_MOMENT_S, _MOMENT_POLLS * self.pause_s)
        expected = [self._ranks.get(rank) for rank in {*poll.samples, *poll.late}.difference(poll.stopped)]
        return all(last and last.has_waited and poll.now - last.seen_at <= moment_s for last in expected)

    def _has_progressed(self, change: _Change) -> bool:
        """Return whether a rank has printed, read or written, or one of its counts has risen."""
        before, now = change.before, change.now
        transferred_bytes = now.io_bytes - before.io_bytes - before.look_bytes
        # The limit is of one poll.
        most_bytes = self._evidence.idle_bytes * max(1.0, change.passed_s / self.pause_s)
        has_written = now.activity.written_bytes > before.activity.written_bytes
        net_bytes = now.activity.net_bytes - before.activity.net_bytes
        recorded = (before.where.recorded, now.where.recorded)
        return (
            now.log_bytes != before.log_bytes
            or transferred_bytes > most_bytes
            or now.activity.counted != before.activity.counted
            or (recorded[0] != recorded[1] and "" not in recorded)
            or (now.activity.requests > before.activity.requests and not change.trains)
            or (
                self._evidence.is_strict
                and (net_bytes > most_bytes or has_written or self._sleeps(now.activity))
            )
        )

    def _may_wait(self, seen: RankSample) -> bool:
        """Return whether a rank may wait for another one: it has no sleep of its own, and no need of a processor."""
        where = seen.where
        return not self._sleeps(seen.activity) and (not where.is_runnable or self._may_spin(where))

    def _sleeps(self, activity: Activity) -> bool:
        """Return whether a rank sleeps for a known time, after which it goes on."""
        return _LEAST_SLEEP_S <= activity.sleep_s <= _MOST_SLEEPS * self.hang_after_s

    def _has_computed(self, change: _Change) -> bool:
        """Return whether a rank has computed, as far as CPU time and stacks tell."""
        before, now = change.before, change.now
        used_s = now.cpu_s - before.cpu_s - before.look_cpu_s
        least_s = max(self._evidence.idle_share * change.passed_s, _NOISE_S)
        where, was = now.where, before.where
        if where.is_over and not change.is_alone and not (self._evidence.is_strict and where.has_children):
            return False
        if not where.stack or change.is_alone:
            # Alone it waits for nobody. A rank that does not even answer may wait for a processor.
            return used_s > least_s or (where.is_runnable and not where.stack)
        if not was.stack:
            return False
        if where.stack != was.stack:
            return used_s > _MOVING_SHARE * change.passed_s
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
    The news that a job hangs. ``watch``: what has seen it. ``ends``: the job is to be ended for it. ``lost``: a rank
    whose exception did not end it; None: the cause is open.
    """

    watch: HangDetector
    ends: bool
    lost: int | None


class JobWatches:
    """Watches a job. ``hang_after_s``: 0 for never. ``ends_when_hung``: whether a job that hangs is ended."""

    def __init__(self, hang_after_s: float, *, ends_when_hung: bool) -> None:
        self._hang_after_s = hang_after_s
        self._ends_when_hung = ends_when_hung
        self.report = HangDetector(hang_after_s)
        self._open = _Pair(self.report, HangDetector(hang_after_s, END))
        self._lost: _Pair | None = None
        """While a rank may outlive its exception."""

    @property
    def pause_s(self) -> float:
        """Return the seconds between two polls."""
        return min(watch.pause_s for watch in self._detectors)

    @property
    def is_hung(self) -> bool:
        """Return whether the job is to be reported by now."""
        return any(watch.is_hung for watch in self._detectors)

    @property
    def _detectors(self) -> list[HangDetector]:
        return [*self._open, *(self._lost or ())]

    def note_exception(self) -> bool:
        """Note that a rank may outlive an exception; return whether polls are to come sooner for that."""
        if self._lost is not None:
            return False
        end_s = _LOST_AFTER_S if self._ends_when_hung else _LOST_ENDS_AFTER_S
        report_s = min(_LOST_AFTER_S, self._hang_after_s)
        self._lost = _Pair(HangDetector(report_s), HangDetector(end_s, END))
        return True

    def leave_out(self, passed_s: float) -> None:
        """Leave out time that passed, as HangDetector does."""
        for watch in self._detectors:
            watch.leave_out(passed_s)

    def wants_stacks(self, now: float) -> bool:
        return any(watch.wants_stacks(now) for watch in self._detectors)

    def add(self, poll: Poll) -> HangNews | None:
        """Add a poll; return what is new."""
        over = {rank for rank, sample in poll.samples.items() if sample.where.is_over}
        is_waited_for = bool(over) and any(rank >= 0 for rank in poll.samples.keys() - over)
        lost = min(over, default=None)
        seen_by = self._open.add(poll)
        if self._lost and poll.has_stacks and not is_waited_for:
            self._lost = None
        if self._lost and (lost_seen_by := self._lost.add(poll)) and lost is not None:
            return HangNews(lost_seen_by, self._lost.end.is_hung, lost)
        ends = self._ends_when_hung and self._open.end.is_hung
        return HangNews(seen_by, ends, lost) if seen_by else None


class _Pair(NamedTuple):
    """The detectors for a report, and for the end of the job."""

    report: HangDetector
    end: HangDetector

    def add(self, poll: Poll) -> HangDetector | None:
        """Return which of them says for the first time that the job hangs, the surer one first; None: neither."""
        reports, ends = self.report.add(poll), self.end.add(poll)
        return self.end if ends else self.report if reports else None


def locate_rank(processes: Sequence[Mapping[str, Any]]) -> RankPlace:
    """Locate a rank by what the agent says of its processes; nowhere when one has no stack, for it may be anywhere."""
    frames = [process["frames"] for process in processes]
    is_over = bool(processes) and processes[0].get("raised") is not None
    has_children = is_over and len(processes) > 1
    is_runnable = any(process.get("state") == "R" for process in processes)
    if not frames or not all(frames):
        return RankPlace(is_over=is_over, has_children=has_children, is_runnable=is_runnable)
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
        has_children,
        is_runnable,
    )


def _is_collective(process: Mapping[str, Any]) -> bool:
    """Return whether a process waits for other ranks, by its stack, PyTorch's flight recorder, or its line."""
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
    process = processes[0] if processes else {}
    kept = [f"kept by {_describe_keeper(processes)}"] if process.get("is_done") else []
    for raised in filter(None, (one.get("raised") for one in processes)):
        return [f"raised {_describe_exception(raised)} but did not end", *kept]
    places = list_places(processes)
    if kept and places:
        return [f"be done with the program but {kept[0]}"]
    state = process.get("state")
    if state == "D":
        return [*places, f"waiting on the disk for {format_seconds(quiet_s)}"]
    if state in ("T", "t"):
        return [*places, "stopped by a signal"]
    if places:
        handled = process.get("handled") if _is_collective(process) else None
        return [*places, f"handling {_describe_exception(handled)}"] if handled else places
    where = process.get("waits_in") or ""
    return [
        f"be asleep in the kernel ({where})" if where not in ("", "0") else "be at a place that is not known"
    ]


def _describe_keeper(processes: Sequence[Mapping[str, Any]]) -> str:
    """Describe what keeps a process whose program has ended: ``a thread, in poll (monitor.py:11)``."""
    by = "a child process" if len(processes) > 1 else "a thread"
    places = [place.partition(" ")[2] for place in list_places(processes[1:] or processes)]
    return ", ".join([by, *(place for place in places if place.startswith("in "))])


def _describe_exception(raised: Mapping[str, Any]) -> str:
    message = f": {raised['message']}" if raised["message"] else ""
    where = f" ({raised['file']}:{raised['line']})" if raised["file"] else ""
    return f"{raised['type']}{message}{where}"


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
            activity[0] = "be busy" + (
                activity[0].removeprefix("be") if activity[0].startswith("be in ") else ""
            )
        behind = max(entered.values(), default=0) - entered.get(rank, 0)
        if behind and not any(one.get("collective") or one.get("raised") for one in processes):
            activity.append(f"{'one collective' if behind == 1 else f'{behind} collectives'} behind")
        groups.setdefault(tuple(activity), []).append(rank)
    said = []
    for doing, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        who = name_several("rank", [labels[rank] for rank in ranks])
        parts = [_conjugate(part, len(ranks)) for part in doing]
        said.append(
            f"{who} {parts[0]}"
            + "".join(f", {part.removeprefix('is ').removeprefix('are ')}" for part in parts[1:])
        )
    return "; ".join(said) or "no rank has answered"


def _conjugate(doing: str, count: int) -> str:
    if doing.startswith("raised "):
        return doing
    if doing.startswith("wait "):
        return doing if count > 1 else f"waits {doing.removeprefix('wait ')}"
    return f"{'is' if count == 1 else 'are'} {doing.removeprefix('be ')}"


def describe_silence(watch: HangDetector, labels: Mapping[int, str]) -> str:
    """Describe what a watch has seen of a job that hangs."""
    if watch.busy is not None:
        return f"rank {labels[watch.busy]} alone computes, and no rank has printed anything"
    return f"no rank has printed anything or gone on for {format_seconds(watch.hang_after_s)}"
