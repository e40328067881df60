"""
The guard of a job's world: ranks that were to train one model, and never connected to each other, train several.

It looks once in an attempt, when every rank has trained for a while, as far as can be seen: it has made an optimizer of
PyTorch, or joined a process group. Ranks that are connected through others are one world.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract.words import name_several

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.plan import Plan

SWITCH = "DRUMLINE_WORLD_GUARD"
"""The variable with the seconds of training after which it looks; 0: never."""

_USUAL_AFTER_S = 60.0

_COUNT = "WORLD_SIZE"


class WorldGuard:
    """Knows which ranks train, and when to ask how they are connected."""

    def __init__(self, plan: Plan) -> None:
        self._labels = {task.rank: task.label for task in plan.ranks}
        self._left = set(self._labels)
        """Ranks that do not train yet."""

        is_promised = all(_COUNT in {**plan.env, **task.env} for task in plan.ranks)
        self._after_s = _read_seconds(plan) if is_promised and len(plan.ranks) > 1 else 0.0
        self._due: float | None = None
        self._ends: dict[int, list[list[str]]] = {}
        self._awaited: set[int] | None = None

    def note_training(self, rank: int) -> None:
        """Note that a rank trains; its time begins when all of them do."""
        if self._after_s and self._left:
            self._left.discard(rank)
            if not self._left:
                self._due = time.monotonic() + self._after_s

    def end(self) -> None:
        """End the guard: a rank has ended, or is told to, and those that are left tell nothing."""
        self._due, self._awaited, self._after_s = None, None, 0.0

    def list_times(self) -> list[float]:
        return [] if self._due is None else [self._due]

    def is_due(self) -> bool:
        """Return whether the nodes are to be asked now, once."""
        if self._due is None or time.monotonic() < self._due:
            return False
        self._due, self._awaited = None, set(self._labels)
        return True

    def take_in(self, ends: Mapping[int, list[list[str]] | None]) -> str:
        """Take in the connections of some ranks; return the sentence when all are there and it is wrong, else empty."""
        if self._awaited is None:
            return ""
        for rank, own in ends.items():
            if own is None:
                self.end()
                return ""
            self._ends[rank] = own
            self._awaited.discard(rank)
        if self._awaited:
            return ""
        worlds = find_worlds(self._ends)
        self.end()
        return describe_worlds(worlds, self._labels) if len(worlds) > 1 else ""


def _read_seconds(plan: Plan) -> float:
    text = plan.user_env.get(SWITCH) or os.environ.get(SWITCH) or ""
    try:
        return max(0.0, float(text))
    except ValueError:
        return _USUAL_AFTER_S


def find_worlds(ends: Mapping[int, Sequence[Sequence[str]]]) -> list[list[int]]:
    """
    Return the groups of ranks that are connected. ``ends``: by rank, this end and the other of each connection.

    >>> find_worlds({0: [["a:1", "b:2"]], 1: [["b:2", "a:1"]], 2: [["a:3", "c:4"]]})
    [[0, 1], [2]]
    """
    holders = {(own, other): rank for rank, both in ends.items() for own, other in both}
    parent = {rank: rank for rank in ends}
    for (own, other), rank in holders.items():
        peer = holders.get((other, own))
        if peer is not None:
            parent[_find_root(parent, rank)] = _find_root(parent, peer)
    worlds: dict[int, list[int]] = {}
    for rank in sorted(ends):
        worlds.setdefault(_find_root(parent, rank), []).append(rank)
    return list(worlds.values())


def _find_root(parent: dict[int, int], rank: int) -> int:
    """Return the rank that stands for all that are connected to one, and shorten the way to it."""
    while parent[rank] != rank:
        parent[rank] = parent[parent[rank]]
        rank = parent[rank]
    return rank


def describe_worlds(worlds: Sequence[Sequence[int]], labels: Mapping[int, str]) -> str:
    """Return the sentence about ranks that train several models."""
    count = sum(map(len, worlds))
    said = f"these {count} processes train {len(worlds)} separate models: WORLD_SIZE was {count}, "
    if len(worlds) == count:
        return said + "no rank connected to another"
    parts = [name_several("rank", [labels[rank] for rank in ranks]) for ranks in worlds]
    return said + f"{parts[0]} connected to none of {parts[1]}" + (" and others" if len(parts) > 2 else "")
