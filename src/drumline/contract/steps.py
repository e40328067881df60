"""
The steps of the training loops of a node's ranks: ``<run folder>/steps/attempt-<a>-node-<n>.jsonl``, written by the
node's agent, a JSON object a line, oldest first::

    t         seconds since 1970, by the node's clock; m: the same moment by its monotonic clock
    ranks     for each rank that made a step since the line before
      k, p      its number, the process that made the steps
      d, n      optimizer steps so far in this attempt, and how many this line is about
      step, input, forward, backward, comm, overlap, other
                seconds of a step: [median, 5 %, 95 %] of these n; what is not known is left out: all of a program's
                first step. comm and overlap, where of none of these n: as they were last known
      bytes     sizes of the buckets that are reduced in a step
      at        [[q, time], ...]: when the rank entered collective number q, in seconds since 1970 by the node's clock
      calls     [[n, time, [us, ...]], ...]: when the rank entered the collectives of step n: the first of them as in
                "at", each in microseconds after the first; where DistributedDataParallel's all-reduces are not known
      src       where the figures come from: optimizer, ddp, ...
      of        [total, before, where from]: steps of the whole training and before this attempt, where known
      pass      steps of each whole pass over the training's data, where known
      every     with DRUMLINE_STEPS_DETAIL=1 in the rank's variables: the same names, a value for each of the n steps,
                null where it is not known
    looks     [[k, p, input, communication, idle, computing], ...]: for each rank whose stack was looked at since the
              line before, how many looks found it where; none for ranks of which a hook follows the steps

``looks`` are of programs of other frameworks, about three a second (``node/hook/looks.py``). ``idle`` is a wait for
other threads or processes of the rank.

``forward`` is from the last input to the begin of backward, ``backward`` the computing in it, ``comm`` from the first
all-reduce of a step to the end of the last, and ``overlap`` the part of it that is hidden behind backward's computing,
so that a step is input + forward + backward + (comm - overlap) + other.

Sizes are bytes. The agent writes a line each second, and keeps fewer of them the longer a job runs; the last two are
always its newest. Lines that are no whole object are to be left out: the last ones are written over in place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.record import NamedTuple
from drumline.contract.samples import read_real, read_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DETAIL = "DRUMLINE_STEPS_DETAIL"
PHASES = ("step", "input", "forward", "backward", "comm", "overlap", "other")
OPTIMIZER, DDP, COLLECTIVES = "optimizer", "ddp", "collectives"
METRICS, LOG, STACKS = "metrics", "log", "stacks"
PLACES = ("input", "communication", "idle", "computing")

MOST_CALLS = 32
"""Collectives of a step that are noted: of more, every second one, every third one and so on."""

_MOST_ENTRIES = 8192
_MOST_STEPS_WITH_CALLS = 64
_MOST_LOOKS = 1 << 16


class Spread(NamedTuple):
    """The median of some seconds, and the bounds between which 90 % of them are."""

    median: float
    low: float
    high: float


class Total(NamedTuple):
    """The number of steps of a whole training. ``before``: those made before this attempt. ``source``: who said so."""

    steps: int
    before: int
    source: str


class StepCalls(NamedTuple):
    """The times at which a rank entered the collectives of a step, in order, in seconds since 1970."""

    number: int
    times: tuple[float, ...]


class Window(NamedTuple):
    """
    The steps that a rank made within about a second. ``done``: in this attempt so far; ``made``: in this window.

    ``entries``: number and time of collectives that it entered. ``every``: seconds of each step, by phase.
    """

    time: float
    monotonic: float
    rank: int
    pid: int
    done: int
    made: int
    seconds: Mapping[str, Spread]
    bucket_bytes: tuple[int, ...] = ()
    entries: tuple[tuple[int, float], ...] = ()
    sources: tuple[str, ...] = (OPTIMIZER,)
    total: Optional[Total] = None
    every: Mapping[str, Sequence[Optional[float]]] = {}
    pass_steps: int = 0
    """Of each whole pass over the training's data; 0: not known."""

    calls: tuple[StepCalls, ...] = ()


class Looks(NamedTuple):
    """Looks at the stack of a rank within about a second. ``counts``: as many as ``PLACES`` has names."""

    time: float
    monotonic: float
    rank: int
    pid: int
    counts: tuple[int, ...]


def to_line(windows: Sequence[Window], looks: Sequence[Looks] = ()) -> bytes:
    """Return the line of windows and looks, at least one, that end at the same time."""
    first = windows[0] if windows else looks[0]
    data: dict[str, Any] = {
        "t": round(first.time, 6),
        "m": round(first.monotonic, 6),
        "ranks": [_describe_window(one) for one in windows],
    }
    if looks:
        data["looks"] = [(one.rank, one.pid, *one.counts) for one in looks]
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _describe_window(window: Window) -> dict[str, Any]:
    data: dict[str, Any] = {"k": window.rank, "p": window.pid, "d": window.done, "n": window.made}
    for name, spread in window.seconds.items():
        data[name] = [round(value, 6) for value in spread]
    if window.bucket_bytes:
        data["bytes"] = window.bucket_bytes
    if window.entries:
        data["at"] = [(number, round(at, 6)) for number, at in window.entries]
    if window.calls:
        data["calls"] = [
            (
                calls.number,
                round(calls.times[0], 6),
                [round(1e6 * (at - calls.times[0])) for at in calls.times],
            )
            for calls in window.calls
        ]
    data["src"] = window.sources
    if window.total:
        data["of"] = tuple(window.total)
    if window.pass_steps:
        data["pass"] = window.pass_steps
    if window.every:
        data["every"] = {
            name: [None if one is None else round(one, 6) for one in values]
            for name, values in window.every.items()
        }
    return data


def from_line(line: bytes) -> tuple[Window, ...]:
    """Return the windows of a line; none for what is no whole line, or a line that the job itself has written."""
    try:
        data = json.loads(line)
        at, monotonic = read_real(data["t"]), read_real(data["m"])
        return tuple(_read_window(at, monotonic, one) for one in data["ranks"])
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return ()


def read_looks(line: bytes) -> tuple[Looks, ...]:
    """Return the looks of a line; none as ``from_line``."""
    if b'"looks"' not in line:
        return ()
    try:
        data = json.loads(line)
        at, monotonic = read_real(data["t"]), read_real(data["m"])
        return tuple(_read_look(at, monotonic, *one) for one in data["looks"])
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return ()


def _read_look(at: float, monotonic: float, rank: Any, pid: Any, *counts: Any) -> Looks:
    whole = tuple(map(read_whole, counts))
    if len(whole) != len(PLACES) or max(whole) > _MOST_LOOKS:
        raise ValueError(counts)
    return Looks(at, monotonic, read_whole(rank), read_whole(pid), whole)


def _read_window(at: float, monotonic: float, data: Mapping[str, Any]) -> Window:
    total = data.get("of")
    return Window(
        at,
        monotonic,
        read_whole(data["k"]),
        read_whole(data["p"]),
        read_whole(data["d"]),
        read_whole(data["n"]),
        {name: Spread(*map(read_real, data[name])) for name in PHASES if name in data},
        tuple(read_whole(one) for one in data.get("bytes", ())),
        tuple((read_whole(number), read_real(when)) for number, when in data.get("at", ())[:_MOST_ENTRIES]),
        tuple(str(one)[:100] for one in data["src"]),
        Total(read_whole(total[0]), read_whole(total[1]), str(total[2])[:200]) if total else None,
        {
            name: tuple(None if value is None else read_real(value) for value in values)
            for name, values in data.get("every", {}).items()
            if name in PHASES
        },
        read_whole(data.get("pass", 0)),
        tuple(_read_calls(*one) for one in data.get("calls", ())[:_MOST_STEPS_WITH_CALLS]),
    )


def _read_calls(number: Any, first: Any, after_us: Sequence[Any]) -> StepCalls:
    begin = read_real(first)
    return StepCalls(read_whole(number), tuple(begin + read_real(one) / 1e6 for one in after_us[:MOST_CALLS]))
