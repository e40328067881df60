"""
Whatever holds all others up: a rank or node that computes slowly, waits for its input or hangs, or has a slow link.

The four classes are those of C4 (arXiv 2406.04594) in words of a job. A rank is late by what it does itself, which is
the time of its steps without the waiting for others; no clocks are compared. Where that waiting is not known, as with
FSDP, it is late by when it comes to collectives. What it costs is answered as in
arXiv 2505.05713: how fast the job would be if that rank took as long as the others.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.control.measure.measured_sizes import NodePair, RankSteps, SizeRun
    from drumline.control.measure.scale_prediction import StepModel

COMPUTE, LINK, INPUT, HANG = "compute", "link", "input", "hang"

_LEAST_GAIN = 0.03
"""A job that would be less than this faster has no straggler."""

_LEAST_LATE_S = 0.002
_LEAST_SHARE = 0.6
"""Of the steps in which a rank must be the last one."""

_SLOW_SHARE = 0.6
"""Of the rate of the other links, below which one is slow; as in the checks before a job."""

_NOISE_FACTOR = 3.0
"""A rank is late by more than this times what it differs from step to step."""


class Straggler(NamedTuple):
    """
    One straggler at one size. ``rank`` None: it is the whole node. ``late_s``: by how much it holds up a step.
    ``share``: of steps in which it was the last; 1.0 for links. ``gain``: the share by which the job would be faster
    without it.
    """

    kind: str
    nodes: int
    node: int | None
    rank: int | None
    late_s: float
    share: float
    gain: float
    text: str = ""
    """Of a hang, the sentence that says where it is."""


def find_stragglers(run: SizeRun, model: StepModel | None) -> list[Straggler]:
    """Find the stragglers of a run, those that cost most first."""
    if run.hang:
        return [Straggler(HANG, run.nodes, None, None, 0.0, 1.0, 0.0, run.hang)]
    found = [one for one in (_find_late(run), _find_slow_link(run, model)) if one is not None]
    return sorted(found, key=lambda one: -one.gain)


def measure_slowness(run: SizeRun) -> float:
    """Return how many times as long as all others a late one computes, and so handles messages; 1.0: there is none."""
    late = _find_late(run)
    if late is None or late.kind != COMPUTE:
        return 1.0
    slow: list[float] = []
    others = [1e-9]
    for one in run.steps:
        if one.step_s:
            is_late = one.node == late.node if late.rank is None else one.rank == late.rank
            (slow if is_late else others).append(statistics.median(one.list_own_s()))
    return max(slow) / max(others)


class _Group(NamedTuple):
    """Ranks that are compared with all others together: a single one, or those of a node."""

    node: int
    rank: int | None
    ranks: tuple[RankSteps, ...]

    def list_own_s(self, count: int) -> list[float]:
        """Return of each step what the slowest of them did by itself."""
        return [max(values) for values in zip(*(one.list_own_s()[:count] for one in self.ranks), strict=True)]


def _find_late(run: SizeRun) -> Straggler | None:
    """Find the rank that holds up all others, or the node whose ranks do that together."""
    ranks = [one for one in run.steps if one.step_s]
    if len(ranks) < 2:
        return None
    if not any(one.reduce_s for one in ranks):
        return _find_late_by_collectives(run, ranks)
    alone = [_Group(one.node, one.rank, (one,)) for one in ranks]
    nodes = sorted({one.node for one in ranks})
    together = [_Group(node, None, tuple(one for one in ranks if one.node == node)) for node in nodes]
    found = _find_late_group(run, alone)
    if found is None and 1 < len(nodes) < len(ranks):
        found = _find_late_group(run, together)
    return found


def _find_late_group(run: SizeRun, groups: Sequence[_Group]) -> Straggler | None:
    """Find the group that is the last one in most steps, and by more than they vary."""
    ranks = [rank for group in groups for rank in group.ranks]
    count = min(len(one.step_s) for one in ranks)
    own = [group.list_own_s(count) for group in groups]
    late = max(range(len(groups)), key=lambda at: statistics.median(own[at]))
    lead = [values[late] - max(values[:late] + values[late + 1 :]) for values in zip(*own, strict=True)]
    share = sum(one > 0 for one in lead) / count
    late_s = statistics.median(lead)
    spread = statistics.median(abs(one - late_s) for one in lead)
    if late_s <= _NOISE_FACTOR * spread / count**0.5:
        return None
    return _describe_late(run, groups[late], late_s, share)


def _find_late_by_collectives(run: SizeRun, ranks: Sequence[RankSteps]) -> Straggler | None:
    """Find the rank that comes last to collectives, where the waiting in them is not known."""
    latest = run.latest
    late = next((one for one in ranks if latest is not None and one.rank == latest.rank), None)
    if latest is None or late is None:
        return None
    return _describe_late(run, _Group(late.node, late.rank, (late,)), latest.late_s, latest.share)


def _describe_late(run: SizeRun, late: _Group, late_s: float, share: float) -> Straggler | None:
    """Return the straggler that this group is; None where it is late too seldom, or costs too little."""
    step_s = statistics.median(one for rank in run.steps for one in rank.step_s)
    gain = late_s / max(step_s - late_s, 1e-9)
    if share < _LEAST_SHARE or gain < _LEAST_GAIN or late_s <= _LEAST_LATE_S:
        return None
    others = [one for one in run.steps if one.step_s and one not in late.ranks]
    more_s = max(_find_more_input_s(one, others) for one in late.ranks)
    kind = INPUT if more_s > late_s / 2 else COMPUTE
    return Straggler(kind, run.nodes, late.node, late.rank, late_s, share, gain)


def _find_more_input_s(late: RankSteps, others: Sequence[RankSteps]) -> float:
    """Return how much longer than the others the late rank waits for its input."""
    if not late.input_s:
        return 0.0
    known = [statistics.median(one.input_s) for one in others if one.input_s]
    return statistics.median(late.input_s) - (statistics.median(known) if known else 0.0)


def _find_slow_link(run: SizeRun, model: StepModel | None) -> Straggler | None:
    """Find the node whose link is slower than all others, among three nodes at least."""
    slow = find_slow_node(run.pairs)
    if slow is None or model is None:
        return None
    node, share = slow
    step_s = model.predict_s(run.ranks)
    faster = model.link._replace(bytes_per_s=model.link.bytes_per_s / share)
    late_s = step_s - model._replace(link=faster).predict_s(run.ranks)
    gain = late_s / max(step_s - late_s, 1e-9)
    return None if gain < _LEAST_GAIN else Straggler(LINK, run.nodes, node, None, late_s, 1.0, gain)


def find_slow_node(pairs: Sequence[NodePair]) -> tuple[int, float] | None:
    """Return the node with a slow link, in any direction, and its share of the others' rate; None: there is none."""
    nodes = {one.source for one in pairs} | {one.target for one in pairs}
    if len(nodes) < 3:
        return None
    shares = {}
    for node in nodes:
        others = [one.bytes_per_s for one in pairs if node not in (one.source, one.target)]
        ways = (
            [one.bytes_per_s for one in pairs if one.source == node],
            [one.bytes_per_s for one in pairs if one.target == node],
        )
        best = [max(way) for way in ways if way]
        if others and best:
            shares[node] = min(best) / statistics.median(others)
    slowest = min(shares, key=lambda node: shares[node], default=None)
    if slowest is None or shares[slowest] >= _SLOW_SHARE:
        return None
    return slowest, shares[slowest]
