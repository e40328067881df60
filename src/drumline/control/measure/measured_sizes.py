"""The figures of a job at one size, reduced from the steps of its ranks."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.control.facts.steps import LatestRank


class RankSteps(NamedTuple):
    """
    The measured steps of one rank, in seconds; the same index is the same step on every rank.

    ``reduce_s``: from the begin of the first all-reduce of a step to the end of its last. ``overlap_s``: the part of
    it before the end of backward's computing. Empty: not known.
    """

    rank: int
    node: int
    step_s: tuple[float, ...]
    input_s: tuple[float, ...] = ()
    forward_s: tuple[float, ...] = ()
    backward_s: tuple[float, ...] = ()
    reduce_s: tuple[float, ...] = ()
    overlap_s: tuple[float, ...] = ()

    def list_exposed_s(self) -> tuple[float, ...]:
        """Return of each step the part in which the rank only waited for an all-reduce."""
        if not self.reduce_s:
            return (0.0,) * len(self.step_s)
        pairs = zip(self.reduce_s, self.overlap_s or (0.0,) * len(self.reduce_s), strict=False)
        return tuple(max(0.0, reduce_s - overlap_s) for reduce_s, overlap_s in pairs)

    def list_own_s(self) -> tuple[float, ...]:
        """Return of each step the part in which the rank did not wait for others."""
        waits = self.list_exposed_s()
        return tuple(max(0.0, step - wait) for step, wait in zip(self.step_s, waits, strict=False))


class NodePair(NamedTuple):
    """The link from a node to another, as the checks before the job have measured it. ``round_trip_s`` 0: not known."""

    source: int
    target: int
    bytes_per_s: float
    round_trip_s: float = 0.0


class SizeRun(NamedTuple):
    """
    A job at one size. ``job``: its name; empty if it was not run. ``cpu_share``: how busy the processors of the machine
    were meanwhile, if its nodes share this machine, else None. ``hang``: the sentence of a hang. ``why_not``: the
    reason for which it was not measured. ``latest``: the rank that comes last to most collectives, where that is known.
    """

    nodes: int
    ranks: int
    job: str
    steps: tuple[RankSteps, ...] = ()
    bucket_bytes: tuple[int, ...] = ()
    pairs: tuple[NodePair, ...] = ()
    cpu_share: float | None = None
    source: str = ""
    hang: str = ""
    why_not: str = ""
    latest: LatestRank | None = None


class SizeFacts(NamedTuple):
    """
    What the steps of one size say: medians, or means, in seconds.

    ``band_s``: 5 and 95 %, wide enough for ``step_s``. ``own_s``: of the slowest rank of each step, without waiting.
    ``exposed_s``: the part of the all-reduce that nothing hides. ``late_s``: for which most ranks wait until the last
    one comes to it. ``reduce_s``: of the all-reduce alone, as the last rank to come sees it, ``overlap_s``
    and ``exposed_s``. ``noise_s``: how much a rank's own time lies beyond that of the others, one figure for each rank
    and step.
    """

    nodes: int
    ranks: int
    steps: int
    step_s: float
    band_s: tuple[float, float]
    own_s: float
    exposed_s: float
    late_s: float
    reduce_s: float | None
    overlap_s: float
    input_s: float
    forward_s: float
    backward_s: float
    bucket_bytes: tuple[int, ...]
    noise_s: tuple[float, ...]

    @property
    def size_bytes(self) -> int:
        """Return how many bytes a step reduces; 0: not known, or none."""
        return sum(self.bucket_bytes)

    @property
    def other_s(self) -> float:
        """Return what the known phases leave of a step."""
        known = self.input_s + self.forward_s + self.backward_s + self.exposed_s + self.late_s
        return max(0.0, self.step_s - known)


def find_unevenness(run: SizeRun) -> float:
    """
    Return by which share the mean of the steps is off their median: checkpoints, groups of slow steps of a loader, or
    of fast ones with little in their batches, which no median shows. One single slow step counts as an accident.
    """
    steps = _list_steps(run)
    return abs(find_mean(steps) / max(statistics.median(steps), 1e-9) - 1.0)


def reduce_run(run: SizeRun, *, by_mean: bool = False) -> SizeFacts:
    """
    Reduce the steps of all ranks, of which there is at least one with a step, to the figures of their size.

    ``by_mean``: means without the slowest step, in the place of medians.
    """
    middle = find_mean if by_mean else statistics.median
    ranks = [one for one in run.steps if one.step_s]
    own_s = [one.list_own_s() for one in ranks]
    steps = _list_steps(run)
    step_s = middle(steps)
    reduces = _list_reduces([one for one in ranks if one.reduce_s])
    exposed_s = min(step_s, middle([one.exposed_s for one in reduces])) if reduces else 0.0
    overlap_s = middle([one.overlap_s for one in reduces]) if reduces else 0.0
    return SizeFacts(
        run.nodes,
        run.ranks,
        len(steps),
        step_s,
        (min(step_s, find_quantile(steps, 0.05)), max(step_s, find_quantile(steps, 0.95))),
        middle([max(values) for values in zip(*own_s, strict=False)]),
        exposed_s,
        middle([one.late_s for one in reduces]) if reduces else 0.0,
        overlap_s + exposed_s if reduces else None,
        overlap_s,
        _take_middle([one.input_s for one in ranks], middle),
        _take_middle([one.forward_s for one in ranks], middle),
        _take_middle([one.backward_s for one in ranks], middle),
        run.bucket_bytes,
        tuple(sorted(_list_noise(own_s))),
    )


class _StepReduce(NamedTuple):
    """The all-reduce of a step as the last rank to come to it sees it. ``late_s``: for which most waited for it."""

    exposed_s: float
    overlap_s: float
    late_s: float


def _list_reduces(ranks: Sequence[RankSteps]) -> list[_StepReduce]:
    waits = zip(*(one.list_exposed_s() for one in ranks), strict=False)
    overlaps = zip(*(one.overlap_s or (0.0,) * len(one.reduce_s) for one in ranks), strict=False)
    return [
        _StepReduce(
            min(exposed), overlap[exposed.index(min(exposed))], statistics.median(exposed) - min(exposed)
        )
        for exposed, overlap in zip(waits, overlaps, strict=False)
    ]


def _list_steps(run: SizeRun) -> list[float]:
    """Return what each step took most ranks."""
    columns = [one.step_s for one in run.steps if one.step_s]
    return [statistics.median(values) for values in zip(*columns, strict=False)]


def _list_noise(own_s: Sequence[Sequence[float]]) -> list[float]:
    """
    Return by how much each rank's own time of each step lies beyond its median, without what all ranks have in common
    in that step: a pause of all ranks is as long with more of them.
    """
    if len(own_s) < 2:
        return []
    beyond = [_subtract_median(values) for values in own_s]
    # Of few ranks, their middle has a part of each one's own noise.
    factor = math.sqrt(len(own_s) / (len(own_s) - 1))
    return [factor * noise for values in zip(*beyond, strict=False) for noise in _subtract_median(values)]


def _take_middle(columns: Sequence[Sequence[float]], middle: Callable[[Sequence[float]], float]) -> float:
    """Return the median over ranks of their ``middle``; 0.0 without any."""
    known = [middle(column) for column in columns if column]
    return statistics.median(known) if known else 0.0


def _subtract_median(values: Sequence[float]) -> list[float]:
    middle = statistics.median(values)
    return [value - middle for value in values]


def find_mean(values: Sequence[float]) -> float:
    """
    Return the mean without the largest value, if there are others.

    >>> find_mean([1.0, 2.0, 60.0]), find_mean([5.0])
    (1.5, 5.0)
    """
    ordered = sorted(values)
    return statistics.fmean(ordered[:-1] or ordered)


def find_quantile(values: Sequence[float], share: float) -> float:
    """
    Return the value below which that share of the values lies, between two of them by their distance.

    >>> find_quantile([3.0, 1.0, 2.0], 0.5), find_quantile([1.0, 2.0], 0.25), find_quantile([5.0], 0.9)
    (2.0, 1.25, 5.0)
    """
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
