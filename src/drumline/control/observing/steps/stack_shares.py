"""
Shares of the time of a job whose steps no hook follows: of the looks at its ranks' stacks in the last minute. Those of
fewer than a few seconds say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import steps
from drumline.control.observing.steps.history import RECENT_S, read_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder

FEWEST_LOOKS = 20
"""At a rank: those of about six seconds."""

_NOTHING_SAID: Mapping[str, Any] = {
    "done": None,
    "total": None,
    "total_source": None,
    "told_by": None,
    "rate": None,
    "step_s": None,
    "looks": None,
    "latest": None,
    "sources": [],
}


def add_shares(folder: RunFolder, attempt: int, said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """
    Return what a job says of its steps, if anything, with the shares of the looks at its stacks in that attempt; None:
    neither is known.
    """
    counts = count_recent(read_steps(folder.path, attempt, is_recent=True).looks)
    if not counts:
        return dict(said) if said else None
    described = dict(said or _NOTHING_SAID)
    total = sum(counts.values())
    return described | {
        "phases": {name: round(count / total, 4) for name, count in counts.items()},
        "looks": total,
        "sources": [*described["sources"], steps.STACKS],
    }


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
