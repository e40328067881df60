"""The report of how far a job scales: a table of measured and predicted sizes, and what they mean, in values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.contract.steps import COLLECTIVES, DDP
from drumline.control.measure import refusals
from drumline.control.measure import scale_prediction as models
from drumline.control.measure.measured_sizes import find_unevenness, reduce_run
from drumline.control.measure.stragglers import find_slow_node, find_stragglers, measure_slowness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.control.measure.measured_sizes import NodePair, SizeFacts, SizeRun
    from drumline.control.measure.refusals import Emulation
    from drumline.control.measure.scale_prediction import StepModel
    from drumline.control.measure.stragglers import Straggler

_ASSUMED_BYTES = 1_000_000
"""Of a step whose bytes are not known; the rate that follows means nothing, and is not shown."""

_ASSUMED_DOUBT = 0.15

_UNEVEN = 0.05
"""Of a step, by which the mean of a size may be off its median; beyond, all sizes are told by their means."""


class MeasuredSize(NamedTuple):
    """
    One row of the table. ``refused``: why its figures are not to be trusted. ``bytes_per_s``: that its all-reduces
    reached over a link.
    """

    run: SizeRun
    facts: SizeFacts | None
    refused: str = ""
    speed_up: float | None = None
    efficiency: float | None = None
    model_s: float | None = None
    bytes_per_s: float | None = None
    stragglers: tuple[Straggler, ...] = ()


class PredictedSize(NamedTuple):
    """One size that was not run. ``is_guess``: it is too far from the largest measured one to be more."""

    nodes: int
    ranks: int
    step_s: float
    low_s: float
    high_s: float
    speed_up: float
    efficiency: float
    is_guess: bool


class Limit(NamedTuple):
    """
    Where 80 % efficiency ends: the last ``nodes`` with it, of at most ``most`` that were looked at; 0: none above the
    first. ``rate``: bytes a second with which ``wanted`` nodes reach it; None: no link is enough, or nothing is known
    of links.
    """

    nodes: int
    most: int
    wanted: int
    rate: float | None


class ScaleReport(NamedTuple):
    title: str
    strong: bool
    measured: tuple[MeasuredSize, ...]
    predicted: tuple[PredictedSize, ...]
    model: StepModel | None
    is_assumed: bool
    """Whether bytes and all-reduces are not known, but only what is left of longer steps."""

    limit: Limit | None
    slowest_pair: NodePair | None
    refused: tuple[str, ...]
    by_mean: bool = False
    """Whether steps are so uneven that figures are means, in the place of medians."""

    is_loopback: bool = False
    """Whether the nodes share this machine with no link between them that is like a network."""

    is_separate: bool = False
    """Whether no exchange between ranks was seen at the largest size."""

    at: float | None = None
    """When it was made, in seconds since 1970."""

    @property
    def knows_link(self) -> bool:
        """Return whether there is a link between nodes of which all-reduces tell something."""
        return not self.is_assumed and not self.is_loopback

    @property
    def reliable(self) -> list[MeasuredSize]:
        return [one for one in self.measured if one.facts and not one.refused]

    @property
    def stragglers(self) -> list[Straggler]:
        """Return those of the largest size that has some."""
        found = [one.stragglers for one in self.measured if one.stragglers]
        return list(found[-1]) if found else []


def build_report(
    title: str,
    runs: Sequence[SizeRun],
    *,
    to: int,
    strong: bool = False,
    emulation: Emulation | None = None,
) -> ScaleReport:
    """Build the report of the runs of a job, smallest first. ``to``: the largest number of nodes to predict."""
    # Processors are looked at where several nodes are played by this machine.
    is_played = any(run.cpu_share is not None for run in runs)
    is_loopback = is_played and not (emulation and emulation.link_bytes_per_s)
    by_mean = any(find_unevenness(run) > _UNEVEN for run in runs if _has_steps(run))
    rows = [_judge_run(run, emulation, by_mean=by_mean) for run in runs]
    trusted = [one.facts for one in rows if one.facts is not None and not one.refused]
    is_assumed = not any(one.reduce_s and one.size_bytes for one in trusted)
    if is_assumed:
        trusted = assume_reduces(trusted, strong=strong)
    pairs = [pair for run in runs for pair in run.pairs]
    model = models.fit_model(trusted, strong=strong, latency_s=find_latency_s(pairs))
    if model is not None and is_assumed:
        model = model._replace(doubt=max(model.doubt, _ASSUMED_DOUBT))
    refused = [one.refused for one in rows if one.refused]
    why_not = refusals.refuse_model(model, trusted)
    usable = None if why_not else model
    first = trusted[0] if trusted else None
    rows = [_complete(row, first, model, strong=strong) for row in rows]
    refused += [why_not] if why_not else []
    return ScaleReport(
        title,
        strong,
        tuple(rows),
        tuple(_predict(usable, trusted, to, strong=strong)) if usable else (),
        model,
        is_assumed,
        _find_limit(usable, trusted, to, strong=strong, knows_link=not is_assumed and not is_loopback)
        if usable
        else None,
        min(pairs, key=lambda pair: pair.bytes_per_s, default=None),
        tuple(refused),
        by_mean,
        is_loopback,
        _is_separate(runs),
    )


def _is_separate(runs: Sequence[SizeRun]) -> bool:
    made = [run for run in runs if run.ranks > 1 and _has_steps(run)]
    return bool(made) and not {DDP, COLLECTIVES} & set(made[-1].source.split(", "))


def _has_steps(run: SizeRun) -> bool:
    return any(one.step_s for one in run.steps)


def find_latency_s(pairs: Sequence[NodePair]) -> float:
    """Return the latency of a message over the slowest pair; 0.0: not known."""
    return max((pair.round_trip_s / 2 for pair in pairs), default=0.0)


def _judge_run(run: SizeRun, emulation: Emulation | None, *, by_mean: bool) -> MeasuredSize:
    why_not = refusals.refuse_size(run, emulation)
    facts = reduce_run(run, by_mean=by_mean) if _has_steps(run) else None
    rate = None
    if facts is not None and facts.nodes > 1 and facts.reduce_s and facts.size_bytes:
        rate = models.find_rate([facts], find_latency_s(run.pairs) or models.USUAL_LATENCY_S)
        if models.is_hidden(rate):
            return MeasuredSize(run, facts, why_not)
        if not why_not and find_slow_node(run.pairs) is None:
            why_not = refusals.refuse_slowed_links(facts, rate, emulation, measure_slowness(run))
    return MeasuredSize(run, facts, why_not, bytes_per_s=rate)


def assume_reduces(sizes: Sequence[SizeFacts], *, strong: bool) -> list[SizeFacts]:
    """Take what steps of several nodes last longer than those of the first size for their all-reduce."""
    return [one if one.nodes == sizes[0].nodes else _assume_reduce(one, sizes[0], strong) for one in sizes]


def _assume_reduce(one: SizeFacts, first: SizeFacts, strong: bool) -> SizeFacts:
    alone_s = first.own_s * (first.ranks / one.ranks if strong else 1.0)
    wait_s = max(one.step_s - alone_s, 1e-6)
    return one._replace(
        own_s=max(0.0, one.step_s - wait_s),
        exposed_s=wait_s,
        reduce_s=wait_s,
        overlap_s=0.0,
        bucket_bytes=(_ASSUMED_BYTES,),
    )


def _complete(
    row: MeasuredSize, first: SizeFacts | None, model: StepModel | None, *, strong: bool
) -> MeasuredSize:
    """Return a row with its stragglers, and with what is to be said beside the first size and the model."""
    facts = row.facts
    row = row._replace(stragglers=tuple(find_stragglers(row.run, _fit_alone(row))))
    if facts is None or first is None or row.refused:
        return row
    efficiency = models.find_efficiency(facts.step_s, facts.ranks, first.step_s, first.ranks, strong=strong)
    return row._replace(
        speed_up=efficiency * facts.ranks / first.ranks,
        efficiency=efficiency,
        model_s=models.predict_measured_s(model, facts) if model else None,
    )


def _fit_alone(row: MeasuredSize) -> StepModel | None:
    """Fit the model to the all-reduces of one size, which need not be trusted; None: it has none that is known."""
    if row.facts is None:
        return None
    return models.fit_model([row.facts], strong=False, latency_s=find_latency_s(row.run.pairs))


def list_sizes(largest: int, to: int) -> list[int]:
    """
    List the numbers of nodes to predict: doublings of the largest measured one, and the last one.

    >>> list_sizes(4, 64), list_sizes(2, 12), list_sizes(4, 4)
    ([8, 16, 32, 64], [4, 8, 12], [])
    """
    found = []
    nodes = 2 * largest
    while nodes < to:
        found.append(nodes)
        nodes *= 2
    return [*found, to] if to > largest else []


def _predict(model: StepModel, sizes: Sequence[SizeFacts], to: int, *, strong: bool) -> list[PredictedSize]:
    first, last = sizes[0], sizes[-1]
    found = []
    for nodes in list_sizes(last.nodes, to):
        ranks = nodes * last.ranks // last.nodes
        step_s = model.predict_s(ranks)
        efficiency = models.find_efficiency(step_s, ranks, first.step_s, first.ranks, strong=strong)
        is_guess = nodes > refusals.GUESS_FACTOR * last.nodes
        speed_up = efficiency * ranks / first.ranks
        found.append(
            PredictedSize(nodes, ranks, step_s, *model.find_band_s(ranks), speed_up, efficiency, is_guess)
        )
    return found


def _find_limit(
    model: StepModel, sizes: Sequence[SizeFacts], to: int, *, strong: bool, knows_link: bool
) -> Limit:
    first, last = sizes[0], sizes[-1]
    each = last.ranks // last.nodes
    most = max(to, refusals.GUESS_FACTOR * last.nodes)

    def compare(step_s: float, ranks: int) -> float:
        return models.find_efficiency(step_s, ranks, first.step_s, first.ranks, strong=strong)

    def find(nodes: int) -> float:
        return 1.0 if nodes <= first.nodes else compare(model.predict_s(nodes * each), nodes * each)

    # What was measured counts, whatever the model says of it.
    enough = max(one.nodes for one in sizes if compare(one.step_s, one.ranks) >= models.ENOUGH)
    lacking = [
        one.nodes for one in sizes if one.nodes > enough and compare(one.step_s, one.ranks) < models.ENOUGH
    ]
    said = models.find_last_efficient(find, most)
    nodes = max(enough, min([said, *(one - 1 for one in lacking)]))
    wanted = last.nodes if nodes < last.nodes else min(2 * nodes, most)
    ranks = wanted * each
    share = first.ranks / ranks if strong else 1.0
    wanted_s = first.step_s * share / models.ENOUGH
    rate = models.find_rate_for(model, ranks, wanted_s) if knows_link else None
    return Limit(nodes, most, wanted, rate)
