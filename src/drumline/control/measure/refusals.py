"""Reasons not to trust figures: too few steps, a machine that is the limit or too small, a model that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count, format_link, format_ms, format_size
from drumline.control.facts.usage import list_totals
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.measure.scale_prediction import compare_s, is_hidden, predict_measured_s
from drumline.node.metrics.machine_usage import MachineReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.control.measure.measured_sizes import SizeFacts, SizeRun
    from drumline.control.measure.scale_prediction import StepModel


FEWEST_STEPS = 30
"""Measured after the warm-up; fewer say nothing of a median."""

MOST_RESIDUAL = 0.1
"""Of a measured step of several nodes, by which the model may be wrong there."""

_MOST_RESIDUAL_ALONE = 0.3
"""Of that of one node, where there is no link, and ranks do not do what it takes to reduce over one."""

_BUSY = 0.9
"""Of a machine's processors, from which on they are the limit."""

_MOST_LINK_SHARE = 0.4
"""Of what a machine carries without limits, that emulated links together may carry."""

_LEAST_LINK_SHARE = 0.75
"""Of an emulated link's rate, below which all-reduces show that something else is the limit."""

NO_PREDICTION = "nothing is predicted: "
"""Before the reason."""

GUESS_FACTOR = 16
"""Beyond so many times the largest measured size a prediction is a guess."""


class Emulation(NamedTuple):
    """
    Nodes that this machine plays. ``link_bytes_per_s``: of the emulated link of each; 0: no limit.
    ``capacity_bytes_per_s``: of all links together without limits; 0: not measured.
    """

    link_bytes_per_s: float = 0.0
    capacity_bytes_per_s: float = 0.0


def refuse_size(run: SizeRun, emulation: Emulation | None) -> str:
    """Return why the figures of a size are not to be trusted; empty if they are. ``emulation`` None: real machines."""
    name = format_count(run.nodes, "node")
    if run.hang:
        return f"{name}: the job hung"
    if run.why_not:
        return f"{name}: {run.why_not}"
    if 0 < len(run.steps) < run.ranks:
        return f"{name}: only {len(run.steps)} of {run.ranks} ranks made steps"
    count = min((len(one.step_s) for one in run.steps), default=0)
    if count < FEWEST_STEPS:
        return f"{name}: too few steps were measured, {count} of at least {FEWEST_STEPS}"
    if run.cpu_share is not None and run.cpu_share >= _BUSY and run.ranks > 1:
        return (
            f"{name}: the processors of this machine were {100 * run.cpu_share:.0f} % busy, by this job and all other "
            "programs, so they are the limit; run it when less else runs, or with fewer ranks"
        )
    return _refuse_links(run, emulation)


def _refuse_links(run: SizeRun, emulation: Emulation | None) -> str:
    if emulation is None or run.nodes < 2 or not emulation.link_bytes_per_s:
        return ""
    together = run.nodes * emulation.link_bytes_per_s
    capacity = emulation.capacity_bytes_per_s
    if capacity and together > _MOST_LINK_SHARE * capacity:
        return (
            f"{format_count(run.nodes, 'node')}: their emulated links carry {format_link(together)} together, "
            f"and this machine {format_link(capacity)} without limits, so it is the limit and not the link"
        )
    return ""


def refuse_slowed_links(
    one: SizeFacts, rate: float, emulation: Emulation | None, slowness: float = 1.0
) -> str:
    """
    Return why an all-reduce over emulated links is not to be trusted. ``rate``: that it reached, bytes a second.
    ``slowness``: of the slowest node, at whose pace all go, as a factor.
    """
    if (
        emulation is None
        or not emulation.link_bytes_per_s
        or rate * slowness >= _LEAST_LINK_SHARE * emulation.link_bytes_per_s
    ):
        return ""
    return (
        f"{format_count(one.nodes, 'node')}: all-reduces reach {format_link(rate)} of the emulated "
        f"{format_link(emulation.link_bytes_per_s)}, so this machine is the limit and not the link"
    )


def refuse_model(model: StepModel | None, sizes: Sequence[SizeFacts]) -> str:
    """Return why nothing is predicted; empty if it can be."""
    if len({one.ranks for one in sizes}) < 2:
        return NO_PREDICTION + "that needs two sizes whose figures can be trusted"
    if model is None:
        return NO_PREDICTION + "no size of several nodes has an all-reduce that was measured"
    if is_hidden(model.link.bytes_per_s):
        return NO_PREDICTION + "backward hides all of the all-reduce, so the rate of the link is not known"
    for one in sorted(sizes, key=lambda one: -one.ranks):
        said_s = predict_measured_s(model, one)
        error = compare_s(said_s, one.step_s)
        if abs(error) > (MOST_RESIDUAL if one.nodes > 1 else _MOST_RESIDUAL_ALONE):
            return (
                f"{NO_PREDICTION}the model does not fit; at {format_count(one.nodes, 'node')} it says "
                f"{format_ms(said_s)} a step, and {format_ms(one.step_s)} were measured"
            )
    return ""


# the machine


_SHARED = 4
"""Times by which ranks may need more than is free: pages that they share are counted for each of them."""


class ProcessorUse:
    """Measures from ``begin`` on; ``begin`` may be called again."""

    def __init__(self) -> None:
        self._reader = MachineReader()
        self._first = self._read()

    def begin(self) -> None:
        self._first = self._read()

    def find_share(self) -> float | None:
        """Return the share of the processors' time that was used; None: not known."""
        busy_s, at = self._read()
        cores = self._reader.read().cores
        seconds = at - self._first[1]
        return (busy_s - self._first[0]) / (seconds * cores) if seconds > 0 and cores else None

    def close(self) -> None:
        self._reader.close()

    def _read(self) -> tuple[float, float]:
        import time

        return self._reader.read().busy_s, time.monotonic()


class MemoryUse:
    """The most memory that a rank of the jobs before has had, and what this machine has left for the next one."""

    def __init__(self) -> None:
        self._peak = 0

    def add(self, folder: RunFolder) -> None:
        """Read the samples of a job that has ended."""
        totals = list_totals(folder, read_outcome(folder))
        self._peak = max([self._peak, *(rank.peak_memory_bytes for rank in totals)])

    def explain_lack(self, ranks: int) -> str:
        """Return why so many ranks find no room; empty where they do, or nothing is known."""
        reader = MachineReader()
        reading = reader.read()
        reader.close()
        free = min(total - used for used, total in (reading.memory, reading.limit or reading.memory))
        return describe_lack(ranks, self._peak, free)


def describe_lack(ranks: int, peak: int, free: int) -> str:
    """
    Return a sentence where ranks of ``peak`` bytes need far more than is free.

    >>> describe_lack(1000, 160 << 20, 22 << 30)
    'not run: 1,000 ranks of 160 MiB, as at the sizes before, need 156 GiB of memory, and this machine has 22 GiB left'
    >>> describe_lack(4, 160 << 20, 22 << 30)
    ''
    """
    if ranks * peak <= _SHARED * free:
        return ""
    return (
        f"not run: {format_count(ranks, 'rank')} of {format_size(peak)}, as at the sizes before, "
        f"need {format_size(ranks * peak)} of memory, and this machine has {format_size(free)} left"
    )
