"""
The steps of a job's training loops: what its agents noted (``contract/steps.py``), what that adds up to, and the words
for it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from drumline.contract import steps
from drumline.contract.folder import RunFolder, read_plain
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_age, format_number, read_count, round_rate
from drumline.control.jobs.lookup import find_plan, read_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.outcome import Outcome


_MOST_BYTES, _RECENT_BYTES = 256 << 20, 4 << 20
"""Of the files of all nodes together: an agent's is below 10 MB."""

_FEWEST_OF_FILE, _MOST_OF_FILE = 64 << 10, 16 << 20
RECENT_S = 60.0
"""What is told of a job's steps is of its last minute, or of all of them if there were none in it."""

_SELDOM_S = 600.0
"""Which rank is late, if that minute has too few collectives: PyTorch notes few of a GPU's."""

_FEWEST_COMPARED = 5

_OWN_PHASES = ("input", "forward", "backward", "other")
_MOST_OF_IT = 0.5
"""Of a rank's lateness, which a part of its steps must explain to be named."""


class LatestRank(NamedTuple):
    """The rank that enters most collectives last. ``late_s``: median, after the median of the others."""

    rank: int
    late_s: float
    share: float


class LateRank(NamedTuple):
    """The rank that the others wait for, in rounded figures; ``phase``: which takes it ``more_ms`` than the others."""

    rank: int
    late_ms: float
    share: float
    phase: str | None
    more_ms: float | None


class TrainingFacts(NamedTuple):
    """What ``show -o json`` says of the steps; None: not known. ``looks``: at stacks, of which the phases are."""

    done: int | None = None
    total: int | None = None
    total_source: str | None = None
    told_by: str | None = None
    rate: float | None = None
    step_s: float | None = None
    phases: Mapping[str, float] = {}
    looks: int | None = None
    latest: LateRank | None = None
    sources: Sequence[str] = ()


class Pace(NamedTuple):
    """The median step of a rank, and by how much it comes later than the median of the others; None: not known."""

    step_s: float | None
    late_s: float | None


class StepHistory(NamedTuple):
    """
    The windows of each rank of one attempt, oldest first. ``nodes``: the node of each rank. ``looks``: those at stacks
    of ranks of which there may be no windows.
    """

    ranks: Mapping[int, tuple[steps.Window, ...]]
    nodes: Mapping[int, int]
    looks: Mapping[int, tuple[steps.Looks, ...]] = {}

    def list_seconds(self, rank: int, phase: str) -> tuple[float | None, ...]:
        """Return the seconds of each step of a rank, where the job kept them (``DRUMLINE_STEPS_DETAIL``)."""
        return tuple(one for window in self.ranks.get(rank, ()) for one in window.every.get(phase, ()))

    def find_bucket_bytes(self) -> tuple[int, ...]:
        """Return the sizes of the buckets that are reduced in a step, as the last window of any rank has them."""
        known = [window.bucket_bytes for windows in self.ranks.values() for window in windows[-1:]]
        return next((sizes for sizes in known if sizes), ())

    def count_pass(self) -> int:
        """Return how many steps a pass over the training's data makes; 0: not known, or not the same on all ranks."""
        counts = {windows[-1].pass_steps for windows in self.ranks.values()}
        return counts.pop() if len(counts) == 1 else 0

    def keep_recent(self, span_s: float = RECENT_S) -> StepHistory:
        """Return the windows of so many seconds before the newest, of the last minute."""
        newest = self.find_newest()
        kept = {
            rank: tuple(one for one in windows if one.time >= newest - span_s)
            for rank, windows in self.ranks.items()
        }
        return StepHistory({rank: windows for rank, windows in kept.items() if windows}, self.nodes)

    def find_newest(self) -> float:
        """Return when the newest step was noted, in seconds since 1970; 0.0: there was none."""
        return max((windows[-1].time for windows in self.ranks.values()), default=0.0)

    def find_lateness(self) -> dict[int, dict[int, float]]:
        """
        Return how late each rank entered which collective, by its number and rank: seconds after the first rank.
        Left out are collectives of which not all these ranks noted the time.
        """
        found = {}
        for number, times in self.list_entries().items():
            first = min(times.values())
            found[number] = {rank: at - first for rank, at in times.items()}
        return found

    def list_entries(self) -> dict[int, dict[int, float]]:
        """
        Return when each rank entered which collective; left out are those that not all of several ranks noted.

        Without DistributedDataParallel they are by step, and of its collectives the one at which ranks were furthest
        apart: a slow rank may be on time for those right after another.
        """
        entered: dict[int, dict[int, float]] = {}
        called: dict[int, dict[int, tuple[float, ...]]] = {}
        for rank, windows in self.ranks.items():
            for window in windows:
                for number, at in window.entries:
                    entered.setdefault(number, {})[rank] = at
                for one in window.calls:
                    called.setdefault(one.number, {})[rank] = one.times
        if len(self.ranks) < 2:
            return {}
        if not any(len(times) == len(self.ranks) for times in entered.values()):
            entered = {number: _find_furthest(times) for number, times in called.items()}
        return {number: times for number, times in sorted(entered.items()) if len(times) == len(self.ranks)}

    def find_latest_rank(self) -> LatestRank | None:
        """Return the rank that the others wait for most; None where that cannot be told."""
        late = self.find_lateness()
        if len(late) < _FEWEST_COMPARED:
            return None
        last = Counter(max(times, key=lambda rank: times[rank]) for times in late.values())
        found = [
            LatestRank(rank, late_s, last[rank] / len(late))
            for rank, late_s in _find_late(late.values()).items()
        ]
        return max(found, key=lambda one: (one.late_s, one.share))

    def find_paces(self) -> dict[int, Pace]:
        """Return the pace of each rank."""
        late = _find_late(self.find_lateness().values())
        return {rank: Pace(self.find_median(rank, "step"), late.get(rank)) for rank in self.ranks}

    def find_median(self, rank: int, phase: str) -> float | None:
        """Return the seconds that a part of a step takes a rank; None: not known."""
        known = [window.seconds[phase].median for window in self.ranks[rank] if phase in window.seconds]
        return statistics.median(known) if known else None

    def find_shares(self) -> dict[str, float]:
        """
        Return the shares of a step: input, forward, backward, waiting, exchange and other; only what is known.

        ``waiting``: for ranks that come later to an all-reduce; ``exchange``: the rest of it that is not hidden.
        """
        sums = dict.fromkeys(("step", "input", "forward", "backward", "exposed"), 0.0)
        for windows in self.ranks.values():
            for window in windows:
                for name in sums:
                    sums[name] += window.made * _read_median(window, name)
        if not sums["step"]:
            return {}
        shares = {name: value / sums["step"] for name, value in sums.items() if name != "step" and value}
        exposed = shares.pop("exposed", 0.0)
        if exposed:
            step_s = self.find_step_s()
            shares["waiting"] = min(exposed, self._find_wait_s() / step_s) if step_s else 0.0
            shares["exchange"] = exposed - shares["waiting"]
        known = sum(shares.values())
        # Medians of parts may add up to more than the median of the whole.
        shares = {name: share / max(1.0, known) for name, share in shares.items()}
        return {**shares, "other": max(0.0, 1.0 - known)}

    def find_rate(self) -> float | None:
        """Return the steps per second, pauses included; None: not known."""
        rates = []
        for windows in self.ranks.values():
            first, last = windows[0], windows[-1]
            if last.time > first.time and last.done > first.done:
                rates.append((last.done - first.done) / (last.time - first.time))
            elif last.seconds.get("step"):
                rates.append(1.0 / max(1e-9, last.seconds["step"].median))
        return statistics.median(rates) if rates else None

    def summarize(self) -> TrainingFacts | None:
        """Return the facts of the steps; None: there were none."""
        if not self.ranks:
            return None
        recent = self.keep_recent()
        newest = [windows[-1] for windows in self.ranks.values()]
        told = [(window.total, window.done) for window in newest if window.total]
        before = told[0][0].before if told else 0
        # A program is asked anew now and then, so what it has said may be surpassed for a while.
        totals = [total for total, done in told if total.steps >= total.before + done]
        latest = recent.find_latest_rank() or self.keep_recent(_SELDOM_S).find_latest_rank()
        return TrainingFacts(
            done=before + max(window.done for window in newest),
            total=totals[0].steps if totals else None,
            total_source=totals[0].source if totals else None,
            rate=round_rate(recent.find_rate()),
            step_s=round(step_s, 6) if (step_s := recent.find_step_s()) else None,
            phases={name: round(share, 4) for name, share in recent.find_shares().items()},
            latest=latest and recent._describe_latest(latest),
            sources=sorted(
                {source for windows in self.ranks.values() for one in windows for source in one.sources}
            ),
        )

    def _describe_latest(self, latest: LatestRank) -> LateRank:
        phase, more_s = self._find_excess(latest.rank)
        late_ms, share = round(latest.late_s * 1000, 3), round(latest.share, 3)
        if more_s >= _MOST_OF_IT * latest.late_s > 0.0:
            return LateRank(latest.rank, late_ms, share, phase, round(more_s * 1000, 3))
        return LateRank(latest.rank, late_ms, share, None, None)

    def _find_excess(self, rank: int) -> tuple[str, float]:
        """Return the part of a step that takes a rank more time than the others, and by how many seconds."""
        found = []
        for phase in _OWN_PHASES:
            own = self.find_median(rank, phase) if rank in self.ranks else None
            known = [self.find_median(one, phase) for one in self.ranks if one != rank]
            others = [one for one in known if one is not None]
            found.append((phase, own - statistics.median(others) if own is not None and others else 0.0))
        return max(found, key=lambda one: one[1])

    def find_step_s(self) -> float:
        """Return the median of what steps take; 0.0 without any."""
        # A window of the first step alone does not know what that took.
        found = [
            window.seconds["step"].median
            for windows in self.ranks.values()
            for window in windows
            if "step" in window.seconds
        ]
        return statistics.median(found) if found else 0.0

    def _find_wait_s(self) -> float:
        """Return the mean seconds in a step that a rank waits for the last one to enter an all-reduce."""
        waits = [
            statistics.mean(max(times.values()) - one for one in times.values())
            for times in self.find_lateness().values()
        ]
        return statistics.median(waits) if waits else 0.0


def _find_furthest(called: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """
    Return when each rank entered the collective at which they were furthest apart; empty where not all have as many.

    >>> _find_furthest({0: (1.0, 2.0, 3.0), 1: (1.0, 2.5, 3.0)}), _find_furthest({0: (1.0,), 1: ()})
    ({0: 2.0, 1: 2.5}, {})
    """
    if len({len(times) for times in called.values()}) != 1:
        return {}
    rows = list(zip(*called.values(), strict=True))
    furthest = max(rows, key=lambda row: max(row) - min(row), default=())
    return dict(zip(called, furthest, strict=False))


def find_behind(times: Mapping[int, float]) -> dict[int, float]:
    """
    Return by how much the time of each of several ranks is after the median of the others.

    >>> find_behind({0: 5.0, 1: 5.0, 2: 5.25})
    {0: -0.125, 1: -0.125, 2: 0.25}
    """
    ranks = sorted(times, key=lambda rank: times[rank])
    ordered = [times[rank] for rank in ranks]
    low, high = (len(ranks) - 2) // 2, (len(ranks) - 1) // 2
    # Without the one itself, those after it are one place further.
    return {
        rank: ordered[at] - (ordered[low + (at <= low)] + ordered[high + (at <= high)]) / 2
        for at, rank in enumerate(ranks)
    }


def _find_late(collectives: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return by how much each rank usually comes later than the median of the others."""
    behind: dict[int, list[float]] = {}
    for times in collectives:
        for rank, late_s in find_behind(times).items():
            behind.setdefault(rank, []).append(late_s)
    return {rank: statistics.median(late) for rank, late in behind.items()}


def read_steps(run_folder: str, attempt: int, *, is_recent: bool = False) -> StepHistory:
    """
    Return the steps of an attempt; without ranks where none has made a step, or where they are not followed.

    Files hold what jobs write, too: only those of the plan's nodes are read, and of each no rank but the plan's.
    ``is_recent``: only so much of the end of each as the newest windows of a job with few nodes take.
    """
    folder = RunFolder(run_folder)
    ranks: dict[int, list[steps.Window]] = {}
    looks: dict[int, list[steps.Looks]] = {}
    places = _read_places(folder)
    nodes = sorted(set(places.values()))
    most = (_RECENT_BYTES if is_recent else _MOST_BYTES) // max(1, len(nodes))
    begins = _read_clocks(folder, attempt)
    for node in nodes:
        size = max(_FEWEST_OF_FILE, min(_MOST_OF_FILE, most))
        data = read_plain(folder.steps_path(attempt, node), size, from_end=True)
        for line in data.split(b"\n"):
            for window in steps.from_line(line) if line else ():
                if places.get(window.rank) == node:
                    ranks.setdefault(window.rank, []).append(_correct(window, begins.get(node)))
            for look in steps.read_looks(line):
                if places.get(look.rank) == node:
                    looks.setdefault(look.rank, []).append(look)
    found = {rank: tuple(ranks[rank]) for rank in sorted(ranks)}
    return StepHistory(
        found,
        {rank: places[rank] for rank in found},
        {rank: tuple(looks[rank]) for rank in sorted(looks)},
    )


def read_last_attempt(run_folder: str, attempts: Iterable[int], *, is_recent: bool = False) -> StepHistory:
    """Return the steps of the last of these attempts that made any."""
    for attempt in sorted(attempts, reverse=True):
        history = read_steps(run_folder, attempt, is_recent=is_recent)
        if history.ranks:
            return history
    return StepHistory({}, {})


def _read_places(folder: RunFolder) -> dict[int, int]:
    """Return the node of each rank; empty where the plan cannot be read."""
    plan = find_plan(folder)
    return {task.rank: node.node for node in plan.nodes for task in node.ranks} if plan else {}


def _read_clocks(folder: RunFolder, attempt: int) -> dict[int, float]:
    """Return when the monotonic clock of each node was 0, by the supervisor's clock; none for nodes of one machine."""
    data = folder.read_json(folder.clocks) or {}
    nodes = data.get("nodes")
    if data.get("attempt") != attempt or not isinstance(nodes, dict):
        return {}
    return {
        number: float(begin)
        for node, begin in nodes.items()
        if (number := read_count(node)) is not None and isinstance(begin, (int, float)) and 0.0 < begin < 1e12
    }


def _correct(window: steps.Window, begin: float | None) -> steps.Window:
    """Return the window with times by the supervisor's clock. ``begin``: as ``_read_clocks``."""
    if begin is None:
        return window
    behind = begin + window.monotonic - window.time
    entries = tuple((number, at + behind) for number, at in window.entries)
    calls = tuple(steps.StepCalls(one.number, tuple(at + behind for at in one.times)) for one in window.calls)
    return window._replace(time=window.time + behind, entries=entries, calls=calls)


def _read_median(window: steps.Window, name: str) -> float:
    if name == "exposed":
        return max(0.0, _read_median(window, "comm") - _read_median(window, "overlap"))
    spread = window.seconds.get(name)
    return spread.median if spread else 0.0


# descriptions


_TOTALS = ("max_steps", "steps", "num_steps", "total_steps", "train_steps", "max_train_steps")
"""Inputs that say how many steps a training makes, by names that are in use."""

_EPOCHS = ("num_train_epochs", "num_epochs", "n_epochs", "max_epochs", "train_epochs", "epochs")
"""Inputs that say how many passes over its data a training makes."""

_SHARE_OF_CORE = 0.1
_PAUSE_S, _PAUSE_STEPS = 120.0, 5
"""Without a step, after which what a job has made says nothing of its speed: clocks of machines may differ by some."""


def describe_steps(folder: RunFolder, outcome: Outcome) -> TrainingFacts | None:
    """
    Describe the steps of the latest attempt that made any; where no hook has seen a step, what the job says itself, and
    the looks at its stacks. None: nothing is known.
    """
    if outcome.kind != "command":
        return None
    attempt = len(outcome.attempts)
    if may_have_steps(folder):
        history = read_last_attempt(folder.path, range(attempt + 1), is_recent=True)
        if history.ranks:
            return summarize_steps(folder, history, is_first=not outcome.attempts, is_over=outcome.is_final)
    return describe_without_hook(folder, attempt)


def describe_without_hook(folder: RunFolder, attempt: int) -> TrainingFacts | None:
    """Describe the steps of an attempt, the latest one, in which no hook has seen a step; None: nothing is known."""
    from drumline.control.facts.metrics import find_sign

    sign = find_sign(folder, attempt)
    said = sign and TrainingFacts(
        done=sign.done,
        total=sign.total,
        total_source=sign.told_by if sign.total else None,
        told_by=sign.told_by,
        rate=round_rate(sign.rate),
        step_s=round(1 / sign.rate, 6) if sign.rate else None,
        sources=[sign.source],
    )
    if not may_have_steps(folder):
        return said
    counts = count_recent(read_steps(folder.path, attempt, is_recent=True).looks)
    if not counts:
        return said
    described, total = said or TrainingFacts(), sum(counts.values())
    return described._replace(
        phases={name: round(count / total, 4) for name, count in counts.items()},
        looks=total,
        sources=[*described.sources, steps.STACKS],
    )


def summarize_steps(
    folder: RunFolder, history: StepHistory, *, is_first: bool, is_over: bool
) -> TrainingFacts | None:
    """
    Return what ``summarize`` does, with the total that an input of the job says. ``is_first``: of the attempts. A job
    that is not over, and makes no steps, has no rate.
    """
    summary = history.summarize()
    if summary and not is_over:
        idle_s = time.time() - history.find_newest()
        if idle_s > max(_PAUSE_S, _PAUSE_STEPS * (summary.step_s or 0.0)):
            summary = summary._replace(rate=None)
    # An attempt after another may have gone on from a checkpoint: an input says nothing of what was left to do.
    if summary and summary.total is None and is_first:
        name, total = find_total(read_spec(folder).get("inputs"), history.count_pass())
        if total and total >= (summary.done or 0):
            summary = summary._replace(total=total, total_source=f"input {name}")
    return summary


def may_have_steps(folder: RunFolder) -> bool:
    """Return whether an agent has noted steps of the job, or looks at its stacks."""
    return os.path.isdir(os.path.dirname(folder.steps_path(0, 0)))


def find_total(inputs: Any, pass_steps: int = 0) -> tuple[str, int]:
    """
    Return the input that says how many steps there are, or how many passes of so many steps, and the number of steps;
    0: none does.

    >>> find_total({"lr": 0.1, "max_steps": {"type": "integer", "value": "200"}})
    ('max_steps', 200)
    >>> find_total({"epochs": 8}, pass_steps=11)
    ('epochs', 88)
    """
    given: Mapping[str, Any] = inputs if isinstance(inputs, dict) else {}
    for names, factor in ((_TOTALS, 1), (_EPOCHS, pass_steps)):
        for name in names:
            value = given.get(name)
            count = read_count(value.get("value") if isinstance(value, dict) else value)
            if count is not None and 0 < count * factor < 1 << 53:
                return name, count * factor
    return "", 0


class StepsLine:
    """The line about the steps of a job that runs, read again at most once in ``interval_s``."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._next = 0.0
        self._text = ""

    def read(self, folder: RunFolder) -> str:
        """Return the line; empty: no rank has made a step."""
        began = time.monotonic()
        if began >= self._next:
            described = describe_steps(folder, fold(folder.read_events()))
            self._text = "; ".join(list_parts(described)) if described else ""
            took = time.monotonic() - began
            self._next = began + max(self._interval_s, took / _SHARE_OF_CORE)
        return self._text


# looks at stacks, which tell where the time of a job goes whose steps no hook follows


FEWEST_LOOKS = 20
"""At a rank: those of about six seconds."""


def count_recent(looks: Mapping[int, Sequence[steps.Looks]]) -> dict[str, int]:
    """
    Return how many looks of the last minute found the ranks where; empty: too few looks.

    >>> count_recent({0: [steps.Looks(9.0, 9.0, 0, 7, (2, 4, 0, 14))], 1: [steps.Looks(9.0, 9.0, 1, 8, (0, 4, 0, 0))]})
    {'input': 2, 'communication': 8, 'idle': 0, 'computing': 14}
    """
    newest = max((one.time for found in looks.values() for one in found), default=0.0)
    recent = [[one.counts for one in found if one.time >= newest - RECENT_S] for found in looks.values()]
    by_rank = [[sum(column) for column in zip(*counts, strict=True)] for counts in recent if counts]
    if max(map(sum, by_rank), default=0) < FEWEST_LOOKS:
        return {}
    return dict(zip(steps.PLACES, map(sum, zip(*by_rank, strict=True)), strict=True))


# words


_PHASES = {
    "input": "input",
    "forward": "forward",
    "backward": "backward",
    "exchange": "all-reduce",
    "waiting": "waiting for others",
    "other": "other",
    "communication": "communication",
    "idle": "waiting for threads or processes",
    "computing": "computing",
}
_LEAST_SHARE = 0.005
_LATE_SHARE = 0.6
"""Of the steps, in which a rank is the last one: less is chance."""

_LATE_S, _LATE_OF_STEP = 0.001, 0.02


def list_parts(steps: TrainingFacts, *, is_over: bool = False) -> list[str]:
    """
    List what ``StepHistory.summarize`` says: how far and how fast, where the time goes, which rank is late.

    >>> known = TrainingFacts(4812, 10000, "max_steps", rate=3.1, step_s=0.3, phases={"input": 0.04, "other": 0.96})
    >>> list_parts(known)
    ['step 4,812 of 10,000 (max_steps), 3.1 steps/s, 27m left', 'input 4 %, other 96 %']
    """
    shares = ", ".join(f"{word} {100 * share:.0f} %" for _, word, share in list_phases(steps))
    if shares and steps.looks:
        shares += f" (by {steps.looks:,} looks at stacks)"
    progress = describe_progress(steps, is_over=is_over)
    latest = _describe_latest(steps.latest) if steps.latest and stands_out(steps) else ""
    return [part for part in (progress, shares, latest) if part]


def list_phases(steps: TrainingFacts) -> list[tuple[str, str, float]]:
    """List the parts of a step in their order: key, words and share."""
    return [
        (name, word, share)
        for name, word in _PHASES.items()
        if (share := steps.phases.get(name, 0.0)) >= _LEAST_SHARE
    ]


def stands_out(steps: TrainingFacts) -> bool:
    """Return whether the others wait for one rank in so many steps, and for so long, that it is no chance."""
    late = steps.latest
    if not late:
        return False
    least_ms = 1000 * max(_LATE_S, _LATE_OF_STEP * (steps.step_s or 0.0))
    return bool(late.share >= _LATE_SHARE and late.late_ms >= least_ms)


def _describe_latest(late: LateRank) -> str:
    by = f"{format_number(late.late_ms)} ms"
    said = f"latest rank: {late.rank}, by {by} in {100 * late.share:.0f} % of steps"
    if late.phase is None:
        return said
    part = "time between steps" if late.phase == "other" else _PHASES[late.phase]
    return f"{said}; its {part} takes {format_number(late.more_ms)} ms longer"


def describe_progress(steps: TrainingFacts, *, is_over: bool) -> str:
    """Say how far the job is and how fast; empty: that is not known."""
    done, total, rate = steps.done, steps.total, steps.rate
    if done is None:
        return ""
    told = f"step {done:,}"
    if total:
        told += f" of {total:,} ({steps.total_source})"
    elif steps.told_by:
        told += f" ({steps.told_by})"
    listed = [told]
    if rate:
        listed.append(f"{format_number(rate)} steps/s" if rate >= 1 else f"{format_number(1 / rate)} s/step")
    if rate and total and total > done and not is_over:
        listed.append(f"{format_age((total - done) / rate)} left")
    return ", ".join(listed)
