"""
A model of a step, fitted to a few sizes, for sizes that were not measured.

A step is what the slowest rank does by itself, and the part of the all-reduce that no computing hides. The all-reduce
is a ring: ``2 (n - 1)`` messages one after the other, each with the latency of a link, and ``2 (n - 1) / n`` of the
bytes over the slowest link. Buckets are reduced one after the other, each when backward has filled it; so the last one
is never hidden.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control.measure.measured_sizes import find_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.control.measure.measured_sizes import SizeFacts

USUAL_LATENCY_S = 1e-4
"""Of a message between two ranks, where the checks before the job measured none."""

_LATENCY_RANGE = 3.0
"""A fitted latency is at most so many times more or less than the measured one: few sizes say little of it."""

_LATENCY_TRIES = 15
_HALVINGS = 40
_FASTEST, _SLOWEST = 1e13, 1e2
"""Bytes a second, between which a link is looked for."""

_LEAST_DOUBT = 0.03
"""Of the time of an all-reduce, however well the model fits."""

_LONE_DOUBT = 0.06
"""The same where the model has as many figures as it was fitted to."""

_FAR_DOUBT = 0.25
"""By which doubt grows with each doubling beyond the largest measured size."""

ENOUGH = 0.8
"""The efficiency whose end is looked for."""


class RingLink(NamedTuple):
    """The slowest link of a ring of ranks."""

    latency_s: float
    bytes_per_s: float


class StepModel(NamedTuple):
    """
    A fitted model. ``own_s`` is of the size ``ranks``, the largest measured one; of it ``shared_s`` is divided among
    ranks when the batch is (strong scaling), else 0. ``doubt``: the share by which an all-reduce may be wrong.
    """

    ranks: int
    own_s: float
    shared_s: float
    overlap_s: float
    bucket_bytes: tuple[int, ...]
    link: RingLink
    noise_s: tuple[float, ...]
    doubt: float
    own_doubt: float
    rest_s: float = 0.0
    """What the model lacks at that size; it is taken for the same at all others."""

    def predict_s(self, ranks: int) -> float:
        """Return the seconds of a step with so many ranks."""
        # What a rank computes longer or shorter moves its buckets; what it is held up by does not.
        overlap_s = self.overlap_s * (self._find_even_s(ranks) / self.own_s if self.own_s else 1.0)
        exposed_s = find_exposed_s(ranks, self.bucket_bytes, overlap_s, self.link)
        return max(0.0, self.find_own_s(ranks) + exposed_s + self.rest_s)

    def find_own_s(self, ranks: int) -> float:
        """Return what the slowest of so many ranks does by itself: the more draws, the slower the slowest."""
        more = self._find_slowest_s(ranks) - self._find_slowest_s(self.ranks)
        return max(0.0, self._find_even_s(ranks) + more)

    def _find_even_s(self, ranks: int) -> float:
        return self.own_s - self.shared_s + self.shared_s * self.ranks / ranks

    def _find_slowest_s(self, ranks: int) -> float:
        return find_quantile(self.noise_s, 0.5 ** (1 / ranks)) if self.noise_s else 0.0

    def find_band_s(self, ranks: int) -> tuple[float, float]:
        """Return the seconds between which a step with so many ranks is expected."""
        far = 1 + _FAR_DOUBT * max(0.0, math.log2(ranks / self.ranks))
        doubt, own_doubt = min(0.9, self.doubt * far), min(0.9, self.own_doubt * far)
        low = self._replace(link=_scale(self.link, 1 - doubt)).predict_s(ranks)
        high = self._replace(link=_scale(self.link, 1 + doubt)).predict_s(ranks)
        own_s = self.find_own_s(ranks)
        return max(0.0, low - own_doubt * own_s), high + own_doubt * own_s


def _scale(link: RingLink, factor: float) -> RingLink:
    """Return a link on which everything takes so many times as long."""
    return RingLink(link.latency_s * factor, link.bytes_per_s / factor)


def find_reduce_s(ranks: int, size_bytes: float, link: RingLink) -> float:
    """
    Return the seconds of an all-reduce of so many bytes.

    >>> round(find_reduce_s(4, 4194304, RingLink(1e-4, 23.8e6)), 4), find_reduce_s(1, 4194304, RingLink(1e-4, 23.8e6))
    (0.2649, 0.0)
    """
    if ranks < 2:
        return 0.0
    return 2 * (ranks - 1) * link.latency_s + 2 * (ranks - 1) / ranks * size_bytes / link.bytes_per_s


def find_span_s(ranks: int, bucket_bytes: Sequence[int], overlap_s: float, link: RingLink) -> float:
    """
    Return the seconds from the first all-reduce of a step to the end of its last. ``overlap_s``: from the first until
    the end of backward, when the last bucket is full; those between them are filled in proportion to their bytes.

    >>> link = RingLink(0.0, 1e6)
    >>> find_span_s(2, (100_000, 100_000), 0.05, link), find_span_s(2, (100_000, 100_000), 0.3, link)
    (0.2, 0.4)
    """
    end = filled = 0.0
    after_first = sum(bucket_bytes) - bucket_bytes[0] if bucket_bytes else 0
    for number, size in enumerate(bucket_bytes):
        filled += size if number else 0
        ready = overlap_s * filled / after_first if after_first else 0.0
        end = max(end, ready) + find_reduce_s(ranks, size, link)
    return max(end, overlap_s)


def find_exposed_s(ranks: int, bucket_bytes: Sequence[int], overlap_s: float, link: RingLink) -> float:
    """Return the part of the all-reduce after the end of backward."""
    if ranks < 2 or not bucket_bytes:
        return 0.0
    return max(0.0, find_span_s(ranks, bucket_bytes, overlap_s, link) - overlap_s)


def fit_model(sizes: Sequence[SizeFacts], *, strong: bool, latency_s: float = 0.0) -> StepModel | None:
    """
    Fit the model to measured sizes, of which one at least has an all-reduce over several nodes; None without it.

    ``latency_s``: of a message, as the checks before the job have measured it; 0: not known.
    """
    far = [one for one in sizes if one.nodes > 1 and one.reduce_s and one.size_bytes]
    if not far:
        return None
    last = max(far, key=lambda one: one.ranks)
    shared_s = _find_shared_s(sizes, last) if strong else 0.0
    link = _fit_link(far, latency_s or USUAL_LATENCY_S)
    errors = [abs(compare_s(_predict_span_s(one, link), one.reduce_s or 0.0)) for one in far]
    least = _LEAST_DOUBT if len(far) > 1 else _LONE_DOUBT
    own_doubt = max(0.01, (last.band_s[1] - last.band_s[0]) / last.step_s / math.sqrt(last.steps))
    model = StepModel(
        last.ranks,
        last.own_s,
        shared_s,
        last.overlap_s,
        last.bucket_bytes,
        link,
        last.noise_s,
        max(least, *errors),
        own_doubt,
    )
    return model._replace(rest_s=last.step_s - model.predict_s(last.ranks))


def predict_measured_s(model: StepModel, one: SizeFacts) -> float:
    """
    Return what the model by itself says of a measured size; ranks of a single node reduce over no link between nodes.
    """
    alone = model._replace(rest_s=0.0)
    return alone.predict_s(one.ranks) if one.nodes > 1 else alone.find_own_s(one.ranks) + one.exposed_s


def compare_s(predicted_s: float, measured_s: float) -> float:
    """Return by which share of the measured time a predicted one is too long."""
    return (predicted_s - measured_s) / measured_s if measured_s else 0.0


def _predict_span_s(one: SizeFacts, link: RingLink) -> float:
    return find_span_s(one.ranks, one.bucket_bytes, one.overlap_s, link)


def _find_shared_s(sizes: Sequence[SizeFacts], last: SizeFacts) -> float:
    """Return which part of the own time at the last size is divided among ranks: a line through 1 / ranks."""
    points = [(1 / one.ranks, one.own_s) for one in sizes]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return min(last.own_s, max(0.0, slope / last.ranks))


def _fit_link(sizes: Sequence[SizeFacts], latency_s: float) -> RingLink:
    """Return the link with which the all-reduces of these sizes take as long as they did."""
    # A message of an all-reduce may cost less than one of the checks did; not all of it is latency in any case.
    most_s = min(_find_most_latency_s(one) for one in sizes)
    if latency_s > _LATENCY_RANGE * most_s:
        latency_s = most_s / _LATENCY_RANGE
    if len(sizes) == 1:
        return RingLink(latency_s, find_rate(sizes, latency_s))
    tries = [
        latency_s * _LATENCY_RANGE ** (2 * number / (_LATENCY_TRIES - 1) - 1)
        for number in range(_LATENCY_TRIES)
    ]
    links = [RingLink(one, find_rate(sizes, one)) for one in tries]
    return min(links, key=lambda link: sum(_measure_error(one, link) ** 2 for one in sizes))


def _find_most_latency_s(one: SizeFacts) -> float:
    """Return the latency with which the messages of a step alone take as long as its all-reduces did."""
    return (one.reduce_s or 0.0) / (len(one.bucket_bytes) * find_reduce_s(one.ranks, 0.0, RingLink(1.0, 1.0)))


def _measure_error(one: SizeFacts, link: RingLink) -> float:
    return math.log(_predict_span_s(one, link) / (one.reduce_s or 1.0))


def find_rate(sizes: Sequence[SizeFacts], latency_s: float) -> float:
    """Return the bytes a second with which these all-reduces take, in the mean, as long as they did."""

    def is_too_slow(rate: float) -> bool:
        return sum(_measure_error(one, RingLink(latency_s, rate)) for one in sizes) > 0

    return _halve(is_too_slow, _SLOWEST, _FASTEST)


def is_hidden(rate: float) -> bool:
    """Return whether ``find_rate`` found no rate: backward hides the all-reduces whatever the link carries."""
    return rate > 0.5 * _FASTEST


def _halve(is_too_low: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_too_low(middle) else (low, middle)
    return math.sqrt(low * high)


def find_efficiency(
    step_s: float, ranks: int, first_step_s: float, first_ranks: int, *, strong: bool
) -> float:
    """
    Return what a size makes of its ranks, compared with the first size.

    >>> find_efficiency(0.2, 4, 0.1, 1, strong=False), find_efficiency(0.05, 4, 0.1, 1, strong=True)
    (0.5, 0.5)
    """
    if not step_s:
        return 0.0
    return first_step_s / step_s * (first_ranks / ranks if strong else 1.0)


def find_last_efficient(find: Callable[[int], float], most: int) -> int:
    """Return the largest number up to ``most`` for which ``find``, which falls, is still enough; 0: not for 1."""
    if find(1) < ENOUGH:
        return 0
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if find(middle) >= ENOUGH else (low, middle - 1)
    return low


def find_rate_for(model: StepModel, ranks: int, wanted_s: float) -> float | None:
    """Return the bytes a second with which a step of that size takes ``wanted_s``; None: no link is enough."""

    def is_too_slow(rate: float) -> bool:
        link = model.link._replace(bytes_per_s=rate)
        return model._replace(link=link).predict_s(ranks) > wanted_s

    if is_too_slow(_FASTEST):
        return None
    return _halve(is_too_slow, _SLOWEST, _FASTEST)
