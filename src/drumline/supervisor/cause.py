"""
Who began, where every failure so far is a consequence: some rank is gone or late, and has not failed itself.

The ranks that are left are looked at before they are told to end, and given a moment: one may end well while others
still wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.supervisor import cut_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.events import RankExited

SETTLE_S = 1.0
"""From the first rank that was cut off until the others are told to end, if nothing explains it sooner."""

_SAME_S = 0.5
"""Between an end and a lost connection that it explains, where that connection may have been to somebody else."""


def is_unexplained(exits: Iterable[RankExited]) -> bool:
    """Whether ranks have failed, and all of them because another was gone or late."""
    failed = [one for one in exits if one.code != 0]
    return bool(failed) and all(cut_off.by(one) for one in failed)


def ended_early(exits: Mapping[int, RankExited], first: RankExited) -> RankExited | None:
    """
    Whom the cut off ranks missed, though it ended well: the last to do so before the first of them failed, else the
    next. Its connections close before its end is seen, and much before that where it has destroyed its process group.
    """
    # Who ended is not there any more; "refused" is said of one that never was.
    if "refused" in cut_off.by(first).lower():
        return None
    failed_at = time_of(first)
    done = [one for one in exits.values() if one.code == 0 and not _was_told(one)]
    before = [one for one in done if time_of(one) <= failed_at]
    if before:
        return max(before, key=time_of)
    if cut_off.is_any_connection(first):
        done = [one for one in done if time_of(one) <= failed_at + _SAME_S]
    return min(done, key=time_of) if done else None


def time_of(exit_: RankExited) -> float:
    """When it raised or left, else when its process had ended, which may be long after."""
    evidence = exit_.evidence or {}
    failure = evidence.get("failure")
    return float(failure["time"] if failure else evidence.get("left", exit_.time))


def _was_told(exit_: RankExited) -> bool:
    """Whether it was told to end before it did."""
    told = (exit_.evidence or {}).get("told")
    return told is not None and time_of(exit_) > told
