"""
The start of each attempt of a job: its phases, the one that took longest, and what each node and rank did;
for programs, as lanes of a drawing, and as a trace for Perfetto.

Events that a job's version did not write yet are phases that are not there.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import UsageError
from drumline.contract.folder import LONGEST_EVENT, open_plain
from drumline.contract.record import ABSENT, NamedTuple
from drumline.control.facts.ranks import read_attempt
from drumline.control.jobs.job_outcome import examine
from drumline.control.jobs.lookup import folder_of
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.record import Absent
    from drumline.control.facts.parts import ExperimentTimes

_MOST_LANES = 2000
ALL_RUNNING = "all running"
"""The name of a phase that is a moment."""


class Phase(NamedTuple):
    """
    Times are seconds since 1970; ``until`` None: it goes on. ``since``: of what happens to each node or rank, when they
    began to be waited for; ``begin`` and ``until`` are the first and the last of them then. ``missing``: how many of
    them it has not happened to. ``part_of``: another phase.
    """

    name: str
    begin: float
    until: float | None
    since: float | None = None
    note: str = ""
    last_rank: int | None = None
    missing: int = 0
    part_of: str = ""

    @property
    def wait_begin(self) -> float:
        """When it began to be waited for."""
        return self.begin if self.since is None else self.since

    @property
    def took_s(self) -> float | None:
        return None if self.until is None else round(self.until - min(self.wait_begin, self.begin), 6)


class Start:
    """The start of an attempt, from the job's submission or the end of the attempt before, in seconds since 1970."""

    def __init__(self, number: int, zero: float, cause: str = "") -> None:
        self.number = number
        self.zero = zero
        self.cause = cause
        """What ended the attempt before; empty for the first."""
        self.over: float | None = None
        """When all of the attempt before was gone."""
        self.waited: list[e.JobWaiting] = []
        self.preparing: float | None = None
        self.transfers: list[e.Transferred] = []
        self.environment: e.EnvironmentReady | None = None
        self.starting: float | None = None
        self.joined: dict[int, float] = {}
        self.asked: dict[int, float] = {}
        self.warm: dict[int, e.WarmStart] = {}
        self.declined: list[e.WarmDeclined] = []
        self.started: dict[int, e.RankStarted] = {}
        self.output: dict[int, e.FirstOutput] = {}
        self.grouped: dict[int, e.GroupFormed] = {}
        self.running: float | None = None
        self.trouble: float | None = None
        """When something went wrong first, or its end was asked for."""

    @property
    def is_over(self) -> bool:
        return self.trouble is not None

    @property
    def nodes(self) -> list[int]:
        return sorted({*self.joined, *self.warm})

    def at(self, when: float | None) -> float | None:
        """Return a time in seconds since its beginning."""
        return None if when is None else round(when - self.zero, 6)


_ENDS = (e.NodeLost, e.Preempted, e.CancelRequested, e.JobStopping, e.JobEnded)
_TROUBLES = (*_ENDS, e.RankExited, e.AttemptEnded)
KINDS = (
    *_TROUBLES,
    *(e.JobSubmitted, e.JobWaiting, e.JobPreparing, e.Transferred, e.EnvironmentReady, e.JobStarting),
    *(e.JobRunning, e.AgentJoined, e.WarmAsked, e.WarmStart, e.WarmDeclined, e.RankStarted, e.FirstOutput),
    e.GroupFormed,
)
"""Of the events that say something of a start."""


def read_starts(folder: RunFolder, number: int | None = None) -> list[Start]:
    """
    Return the starts of the attempts of a job; empty while nothing is known of them. One is whole, the latest for
    None; of the others it is known when and why they began: a job may have a million events.
    """
    try:
        with open_plain(folder.events) as file:
            return fold(_read_events(file, number))
    except FileNotFoundError:
        return []


def _read_events(file: BinaryIO, number: int | None) -> Iterator[e.Event]:
    """Yield the events of one attempt, and of the others those that say when and why they ended."""
    of_whole, of_ends = tuple(map(e.begin_of, KINDS)), tuple(map(e.begin_of, _TROUBLES))
    end = e.begin_of(e.AttemptEnded)
    if number is None:
        number = sum(line.startswith(end) and e.from_line(line) is not None for line in _read_lines(file))
        file.seek(0)
    at, in_trouble = 0, False
    for line in _read_lines(file):
        wanted: tuple[bytes, ...] = of_whole if at in (0, number) else (end,) if in_trouble else of_ends
        event = e.from_line(line) if line.startswith(wanted) else None
        if event is not None:
            yield event
            is_end = isinstance(event, e.AttemptEnded)
            at += is_end
            in_trouble = not is_end and (in_trouble or _is_trouble(event))


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    while (line := file.readline(LONGEST_EVENT)) and len(line) < LONGEST_EVENT:
        yield line


def fold(events: Iterable[e.Event]) -> list[Start]:
    """Return the starts of all attempts in order."""
    starts: list[Start] = []
    for event in events:
        if not starts:
            starts.append(Start(0, event.time))
        after = apply(starts[-1], event)
        if after is not starts[-1]:
            starts.append(after)
    return starts


def apply(start: Start, event: e.Event) -> Start:
    """Return the start after an event: the same, or that of the next attempt."""
    if isinstance(event, e.AttemptEnded):
        zero = event.time if start.trouble is None else min(start.trouble, event.time)
        following = Start(start.number + 1, zero, event.reason)
        following.over = event.time
        return following
    _apply(start, event)
    if start.trouble is None and _is_trouble(event):
        start.trouble = event.time
    return start


def _apply(start: Start, event: e.Event) -> None:
    if isinstance(event, e.JobWaiting):
        start.waited.append(event)
    elif isinstance(event, e.JobPreparing):
        start.preparing = start.preparing or event.time
    elif isinstance(event, e.Transferred):
        if start.starting is None:  # Later ones are those of outputs.
            start.transfers.append(event)
    elif isinstance(event, e.EnvironmentReady):
        start.environment = event
    elif isinstance(event, e.JobStarting):
        start.starting = start.starting or event.time
    elif isinstance(event, e.JobRunning):
        start.running = start.running or event.time
    else:
        _apply_node(start, event)


def _apply_node(start: Start, event: e.Event) -> None:
    if isinstance(event, e.AgentJoined):
        start.joined[event.node] = event.time
    elif isinstance(event, e.WarmAsked):
        start.asked[event.node] = event.time
    elif isinstance(event, e.WarmStart):
        start.warm[event.node] = event
    elif isinstance(event, e.WarmDeclined):
        start.declined.append(event)
    elif isinstance(event, e.RankStarted):
        start.started[event.rank] = event
    elif isinstance(event, e.FirstOutput):
        start.output.setdefault(event.rank, event)
    elif isinstance(event, e.GroupFormed):
        start.grouped.setdefault(event.rank, event)


def _is_trouble(event: e.Event) -> bool:
    return isinstance(event, _ENDS) or (isinstance(event, e.RankExited) and event.code != 0)


def list_phases(start: Start) -> list[Phase]:
    """Return the phases in the order of their end, parts after their phase."""
    found = [*_before_agents(start), *_of_nodes(start), *_of_ranks(start)]
    if start.running is not None:
        found.append(Phase(ALL_RUNNING, start.running, start.running))
    if start.trouble is not None:
        found = [
            phase
            if phase.until is not None
            else phase._replace(until=max(start.trouble, phase.begin), note=phase.note or "cut off")
            for phase in found
        ]
    ends = {one.name: one.until for one in found}
    return sorted(found, key=lambda one: (ends[one.part_of or one.name] or time.time(), one.part_of))


def _before_agents(start: Start) -> list[Phase]:
    began = start.over if start.over is not None else start.zero
    first_joined = min(start.joined.values(), default=None)
    # What follows each of these: the first that is known.
    after_line = _first(start.preparing, start.starting, first_joined)
    in_line = start.waited[0].time if start.waited else None
    found = []
    if start.over is not None:
        found.append(Phase("attempt ended", start.zero, start.over))
    if start.over is None or in_line is not None or start.preparing is not None:
        found.append(
            Phase("submitted" if start.over is None else "decided", began, _first(in_line, after_line))
        )
    if in_line is not None:
        found.append(Phase("in line", in_line, after_line, note=start.waited[-1].reason))
    if start.preparing is not None:
        found.append(Phase("preparing", start.preparing, _first(start.starting, first_joined)))
        found += _parts(start)
    return found


def _parts(start: Start) -> list[Phase]:
    """Return the phases of preparation, which may overlap."""
    found = []
    made = start.environment
    if made is not None:
        note = "reused" if made.reused else ""
        found.append(
            Phase("environment", made.time - made.seconds, made.time, note=note, part_of="preparing")
        )
    found += [
        Phase(one.name, one.time - one.seconds, one.time, note=one.note, part_of="preparing")
        for one in start.transfers
    ]
    return found


def _of_nodes(start: Start) -> list[Phase]:
    found = []
    if start.starting is not None or start.joined:
        times = sorted(start.joined.values())
        since = times[0] if start.starting is None else start.starting
        begin, until = (times[0], times[-1]) if times else (since, None)
        found.append(Phase("agents joined", begin, until, since))
    if start.warm:
        warm = list(start.warm.values())
        modules = ", ".join(dict.fromkeys(str(name) for one in warm for name in one.modules))
        kept = all(one.reused for one in warm)
        # When ranks could be forked: the interpreter's own start counts, not its imports alone.
        until = max(one.time for one in warm)
        note = f"{'kept from before' if kept else 'imported'}: {modules}" if modules else ""
        found.append(Phase("imports", min(one.began for one in warm), until, note=note))
    elif start.asked and not start.declined:
        found.append(Phase("imports", min(start.asked.values()), None))
    return found


def _of_ranks(start: Start) -> list[Phase]:
    # After which nothing keeps them from being started.
    joined = max((*start.joined.values(), *(one.time for one in start.warm.values())), default=None)
    if not start.started:
        waits = start.asked and not start.warm and not start.declined
        return [] if joined is None or waits else [Phase("ranks started", joined, None)]
    count, first = len(start.started), min(one.time for one in start.started.values())
    found = [_row("ranks started", start.started.values(), count, joined)]
    if start.output:
        found.append(_row("first output", start.output.values(), count, first))
    if start.grouped:
        backends = sorted({one.backend for one in start.grouped.values() if one.backend})
        row = _row("process group", start.grouped.values(), count, first)
        found.append(row._replace(note=", ".join(backends)))
    return found


def _row(
    name: str,
    happened: Iterable[e.RankStarted | e.FirstOutput | e.GroupFormed],
    count: int,
    since: float | None,
) -> Phase:
    ordered = sorted(happened, key=lambda one: one.time)
    last = ordered[-1]
    missing = max(0, count - len(ordered))
    return Phase(name, ordered[0].time, last.time, since, last_rank=last.rank, missing=missing)


def _first(*times: float | None) -> float | None:
    return next((one for one in times if one is not None), None)


class Longest(NamedTuple):
    phase: Phase
    seconds: float
    """By which it made the start longer; what went on beside another phase is not counted twice."""
    total_s: float


def longest(start: Start, found: Sequence[Phase]) -> Longest | None:
    """
    Return the phase that took longest; None where nothing has taken time.

    A phase that goes on counts until now, a first output that comes after the process group not at all.
    """
    now = time.time()
    ends = [(one.until or now, one) for one in found if not one.part_of and one.name != ALL_RUNNING]
    grouped = [until for until, one in ends if one.name == "process group"]
    reached, best = start.zero, None
    for until, one in sorted(ends, key=lambda end: end[0]):
        if one.name == "first output" and grouped and until > grouped[0]:
            continue
        seconds, reached = max(0.0, until - reached), max(reached, until)
        if best is None or seconds > best[1]:
            best = (one, seconds)
    return Longest(*best, reached - start.zero) if best is not None and best[1] > 0 else None


# for programs


class FoundStart(NamedTuple):
    """The start of one of a job's attempts. ``starts``: those of all of them, of which the others may not be whole."""

    folder: RunFolder
    outcome: Outcome
    start: Start
    starts: list[Start]


def read_start(name: str, attempt: int | None = None) -> FoundStart:
    """
    Return the start of an attempt, by default the latest.

    Raises NotFoundError, UsageError for a job without ranks or an attempt that there was not.
    """
    folder = folder_of(name)
    examined = examine(folder)
    kind = examined.outcome.kind
    if kind != "command":
        raise UsageError(
            f"job {name} is a {kind}: it has jobs, and those have timelines", f"drumline job show -n {name}"
        )
    starts = read_starts(folder, attempt)
    if not starts:
        raise UsageError(f"nothing is known yet of how job {name} started")
    number = len(starts) - 1 if attempt is None else attempt
    if not 0 <= number < len(starts):
        there = "attempt 0 alone" if len(starts) == 1 else f"attempts 0 to {len(starts) - 1}"
        raise UsageError(f"job {name} has no attempt {number}", f"it has {there}")
    if examined.end and number == len(starts) - 1:
        apply(starts[number], examined.end)
    return FoundStart(folder, examined.outcome, starts[number], starts)


class PhaseTimes(NamedTuple):
    """The times of a phase, in seconds since the start of the attempt; None: not yet."""

    phase: str
    since_s: float | None
    from_s: float | None
    to_s: float | None
    took_s: float | None
    note: str
    missing: int
    part_of: str | None


class WarmNode(NamedTuple):
    reused: bool
    began_s: float | None
    import_s: float
    modules: list[str]
    until: str


class NodeStart(NamedTuple):
    node: int
    joined_s: float | None
    warm: WarmNode | None


class ColdStart(NamedTuple):
    """Why a node, or a rank, was started without shared imports."""

    node: int
    rank: int | None
    reason: str
    asked: bool


class RankTimes(NamedTuple):
    rank: int
    node: int
    started_s: float | None
    first_output_s: float | None
    group_formed_s: float | None
    backend: str | None


class LongestPhase(NamedTuple):
    phase: str
    seconds: float
    rank: int | None


class DrillTimes(NamedTuple):
    drill: str
    attempt: int
    from_s: float | None
    to_s: float | None


class AttemptStart(NamedTuple):
    """
    The start of an attempt as programs read it. Times are seconds since ``zero``, which is in seconds since 1970.
    ``drills``: of this attempt, and of the one before, which they may have ended.
    """

    job: str
    attempt: int
    attempts: int
    zero: float
    since_submission_s: float
    cause: str
    phases: list[PhaseTimes]
    nodes: list[NodeStart]
    warm_declined: list[ColdStart]
    ranks: list[RankTimes]
    total_s: float | None
    longest: LongestPhase | None
    now_s: float | None
    drills: list[DrillTimes]
    experiments: list[ExperimentTimes] | Absent
    lanes: list[dict[str, Any]] | Absent = ABSENT


def describe_start(name: str, attempt: int | None = None) -> AttemptStart:
    """Describe the start of an attempt, by default the latest, for programs. Raises as ``read_start``."""
    return describe_attempt(read_start(name, attempt))


def describe_attempt(found: FoundStart) -> AttemptStart:
    """Describe a start for programs."""
    start, starts = found.start, found.starts
    phases = list_phases(start)
    most = longest(start, phases)
    at = start.at
    return AttemptStart(
        job=found.folder.name,
        attempt=start.number,
        attempts=len(starts),
        zero=start.zero,
        since_submission_s=round(start.zero - starts[0].zero, 6),
        cause=start.cause,
        phases=[
            PhaseTimes(
                phase.name,
                at(phase.wait_begin),
                at(phase.begin),
                at(phase.until),
                phase.took_s,
                phase.note,
                phase.missing,
                phase.part_of or None,
            )
            for phase in phases
        ],
        nodes=[
            NodeStart(node, at(start.joined.get(node)), _describe_warm(start, node)) for node in start.nodes
        ],
        warm_declined=[ColdStart(one.node, one.rank, one.reason, one.asked) for one in start.declined],
        ranks=[_describe_rank(start, rank) for rank in sorted(start.started)],
        total_s=round(most.total_s, 6) if most else None,
        longest=LongestPhase(most.phase.name, round(most.seconds, 6), most.phase.last_rank) if most else None,
        now_s=None if start.is_over or start.running is not None else at(time.time()),
        drills=_list_drills(found.outcome, start) if found.outcome.drills else [],
        experiments=_list_experiments(found) if found.outcome.experiments else ABSENT,
    )


def _list_drills(outcome: Outcome, start: Start) -> list[DrillTimes]:
    from drumline.control.jobs import drill_requests

    return [
        DrillTimes(
            drill_requests.describe_drill(drill), drill.attempt, start.at(drill.began), start.at(drill.ended)
        )
        for drill in outcome.drills.values()
        if drill.began is not None and drill.attempt in (start.number, start.number - 1)
    ]


def _list_experiments(found: FoundStart) -> list[ExperimentTimes]:
    from drumline.control.facts import parts

    start, later = found.start, found.starts[found.start.number + 1 :]
    return parts.list_times(found.outcome, start.zero, later[0].zero if later else math.inf)


def _describe_warm(start: Start, node: int) -> WarmNode | None:
    warm = start.warm.get(node)
    return warm and WarmNode(warm.reused, start.at(warm.began), warm.import_s, list(warm.modules), warm.until)


def _describe_rank(start: Start, rank: int) -> RankTimes:
    started, output, grouped = start.started[rank], start.output.get(rank), start.grouped.get(rank)
    return RankTimes(
        rank,
        started.node,
        start.at(started.time),
        start.at(output.time) if output else None,
        start.at(grouped.time) if grouped else None,
        grouped.backend if grouped else None,
    )


# lanes and traces


class Bar(NamedTuple):
    """A phase in a lane, in seconds since 1970; ``ended`` None: it goes on."""

    name: str
    began: float
    ended: float | None
    text: str = ""


class Lane(NamedTuple):
    """The bars of the job, of a node, or of a rank on its node."""

    node: int | None
    rank: int | None
    label: str
    bars: list[Bar]


def describe_timeline(name: str, attempt: int | None = None) -> AttemptStart:
    """
    Return what ``describe_start`` does, and ``lanes``: of the job, of each node and of each rank, with their phases.

    ``attempt``, counted from 0, None: the latest. Raises NotFoundError, UsageError.
    """
    found = read_start(name, attempt)
    lanes = [
        {
            "node": lane.node,
            "rank": lane.rank,
            "label": lane.label,
            "phases": [
                bar._asdict() | {"began": utc(bar.began), "ended": utc(bar.ended)} for bar in lane.bars
            ],
        }
        for lane in _list_lanes(found.start, read_attempt(found.folder, found.start.number).outcome)
    ]
    return describe_attempt(found)._replace(lanes=lanes)


def _list_lanes(start: Start, outcome: Outcome) -> list[Lane]:
    found = list_phases(start)
    lanes = [Lane(None, None, "job", [_to_bar(phase) for phase in found if not phase.part_of])]
    parts = [_to_bar(phase) for phase in found if phase.part_of]
    if parts:
        lanes.append(Lane(None, None, "preparing", parts))
    since = next((phase.wait_begin for phase in found if phase.name == "agents joined"), None)
    for node in start.nodes:
        label = outcome.hosts.get(node) or f"node {node}"
        lanes.append(Lane(node, None, label, list(_list_bars_of_node(start, node, since))))
    for rank in sorted(start.started)[: _MOST_LANES - len(lanes)]:
        node = start.started[rank].node
        lanes.append(Lane(node, rank, f"rank {rank}", list(_list_bars_of_rank(start, rank))))
    return lanes


def _to_bar(phase: Phase) -> Bar:
    return Bar(phase.name, min(phase.wait_begin, phase.begin), phase.until, phase.note)


def _list_bars_of_node(start: Start, node: int, since: float | None) -> Iterator[Bar]:
    joined, warm = start.joined.get(node), start.warm.get(node)
    if joined is not None and since is not None:
        yield Bar("agent joins", min(since, joined), joined)
    if warm is not None:
        text = "kept from before" if warm.reused else f"imported {', '.join(warm.modules)}"
        yield Bar("imports", warm.began, warm.began + (warm.import_s or 0.0), text)


def _list_bars_of_rank(start: Start, rank: int) -> Iterator[Bar]:
    """Yield what a rank did until its last phase began; the run would hide all else in a drawing."""
    steps = [(start.started[rank].time, "started", "")]
    if rank in start.output:
        steps.append((start.output[rank].time, "first output", ""))
    if rank in start.grouped:
        steps.append((start.grouped[rank].time, "process group", start.grouped[rank].backend or ""))
    steps.sort(key=lambda step: step[0])
    for (began, _, _), (until, name, text) in pairwise(steps):
        yield Bar(f"until {name}", began, until, text)
    if len(steps) == 1:
        yield Bar("started", steps[0][0], steps[0][0])


def make_trace(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Return the lanes as a trace that Perfetto and Chrome open. Raises as ``describe_timeline``.

    Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
    """
    from drumline.control.facts.history import read_marks

    folder, _, start, _ = read_start(name, attempt)
    outcome = read_attempt(folder, start.number).outcome
    now = time.time()

    def to_us(when: float) -> int:
        return round((when - start.zero) * 1e6)

    traced: list[dict[str, Any]] = []
    for place, lane in enumerate(_list_lanes(start, outcome)):
        process = 0 if lane.node is None else lane.node + 1
        thread = {"pid": process, "tid": place}
        group = "job" if lane.node is None else f"node {lane.node}"
        traced.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": group}})
        traced.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": lane.label}})
        run = _describe_run(lane, outcome.ranks.get(lane.rank)) if lane.rank is not None else ()
        traced += [
            {
                "ph": "X",
                "name": bar.name,
                "ts": to_us(bar.began),
                "dur": max(0, to_us(now if bar.ended is None else bar.ended) - to_us(bar.began)),
                **thread,
                "args": {"note": bar.text} if bar.text else {},
            }
            for bar in (*lane.bars, *run)
        ]
    traced += [
        {"ph": "i", "s": "g", "name": mark.text, "ts": to_us(mark.at), "pid": 0, "tid": 0}
        for mark in read_marks(folder)
        if mark.at >= start.zero
    ]
    return {"displayTimeUnit": "ms", "traceEvents": traced}


def _describe_run(lane: Lane, rank: RankOutcome | None) -> Iterator[Bar]:
    """Yield what a rank did after its start."""
    if rank is not None and lane.bars:
        began = lane.bars[-1].ended or lane.bars[-1].began
        ended = rank.lost if rank.ended is None else rank.ended
        yield Bar("running", began, None if ended is None else max(began, ended), rank.state)
