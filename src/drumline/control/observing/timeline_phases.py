"""
The start of each attempt of a job, phase by phase, and the phase that took longest.

One fold over the events, apart from that of the outcome, because only who asks for it has to pay for it. Events that a
job's version did not write yet are phases that are not there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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


_ENDS = (e.NodeLost, e.Preempted, e.CancelRequested, e.JobStopping, e.JobEnded)
TROUBLES = (*_ENDS, e.RankExited, e.AttemptEnded)
"""Of the events that say when an attempt was over, and why."""

KINDS = (
    *TROUBLES,
    *(e.JobSubmitted, e.JobWaiting, e.JobPreparing, e.Transferred, e.EnvironmentReady, e.JobStarting),
    *(e.JobRunning, e.AgentJoined, e.WarmAsked, e.WarmStart, e.WarmDeclined, e.RankStarted, e.FirstOutput),
    e.GroupFormed,
)
"""Of the events that say something of a start, but for the first of all, which says when the job began."""


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
    _apply_end(start, event)
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


def _apply_end(start: Start, event: e.Event) -> None:
    ends = isinstance(event, _ENDS)
    if start.trouble is None and (ends or (isinstance(event, e.RankExited) and event.code != 0)):
        start.trouble = event.time


def phases(start: Start) -> list[Phase]:
    """Return the phases in the order of their end, parts after their phase."""
    found = [*_before_agents(start), *_of_nodes(start), *_of_ranks(start)]
    if start.running is not None:
        found.append(Phase("all running", start.running, start.running))
    if start.trouble is not None:
        found = [one if one.until is not None else _cut_off(one, start.trouble) for one in found]
    ends = {one.name: one.until for one in found}
    return sorted(found, key=lambda one: (ends[one.part_of or one.name] or time.time(), one.part_of))


def _cut_off(phase: Phase, at: float) -> Phase:
    return phase._replace(until=max(at, phase.begin), note=phase.note or "cut off")


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
    ends = [(one.until or now, one) for one in found if not one.part_of and one.name != "all running"]
    grouped = [until for until, one in ends if one.name == "process group"]
    reached, best = start.zero, None
    for until, one in sorted(ends, key=lambda end: end[0]):
        if one.name == "first output" and grouped and until > grouped[0]:
            continue
        seconds, reached = max(0.0, until - reached), max(reached, until)
        if best is None or seconds > best[1]:
            best = (one, seconds)
    return Longest(*best, reached - start.zero) if best is not None and best[1] > 0 else None
