"""The figures of one run, out of what its agents and its checks have written."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from drumline.control.observing.steps.history import read_steps
from drumline.control.scaling.facts import NodePair, RankSteps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.control.observing.steps.history import StepHistory

_PHASES = ("step", "input", "forward", "backward", "comm", "overlap")


def read_history(folder: RunFolder, outcome: Outcome) -> StepHistory:
    """Return the steps of the job's newest attempt."""
    return read_steps(folder.path, len(outcome.attempts))


def count_steps(history: StepHistory, ranks: int) -> int:
    """Return how many steps are known of each rank that makes some; 0 while those are fewer than ``ranks``."""
    counts = [len(history.list_seconds(rank, "step")) for rank in history.ranks]
    return min(counts, default=0) if len(counts) >= ranks else 0


def list_ranks(history: StepHistory, first: int, count: int) -> list[RankSteps]:
    """Return up to ``count`` steps of each rank, after the ``first`` ones."""
    found = []
    for rank in history.ranks:
        columns = [_fill(history.list_seconds(rank, phase)[first : first + count]) for phase in _PHASES]
        if columns[0]:
            found.append(RankSteps(rank, history.nodes[rank], *columns))
    return found


def _fill(values: Sequence[float | None]) -> tuple[float, ...]:
    """Return the values, with the median in the place of those that are not known; empty where most are not."""
    known = [one for one in values if one is not None]
    if 2 * len(known) < len(values) or not known:
        return ()
    middle = statistics.median(known)
    return tuple(middle if one is None else one for one in values)


def name_sources(history: StepHistory) -> str:
    """Return where the figures come from, in a few words."""
    found = [source for windows in history.ranks.values() for one in windows for source in one.sources]
    return ", ".join(dict.fromkeys(found))


def list_pairs(outcome: Outcome) -> list[NodePair]:
    """List the links that the checks before the job have measured."""
    links = outcome.preflight.detail.get("links") or () if outcome.preflight else ()
    return [
        NodePair(one["from"], one["to"], float(one["bytes_per_s"]), float(one.get("seconds") or 0.0))
        for one in links
    ]
