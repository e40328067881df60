"""More ranks than the cores of their nodes can run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.plan import NodeShape

RANKS_A_CORE = 8
"""With more, ranks wait for each other's turn most of the time."""


def warnings(shapes: Sequence[NodeShape], rank_counts: Sequence[int], *, shares_machine: bool) -> list[str]:
    """
    Return a line where the ranks of a node, or of a machine that plays several, are too many for its cores.

    rank_counts: by node.
    """
    if shares_machine:
        cores = len({core for shape in shapes for core in shape.cores})
        return _line(sum(rank_counts), cores, "this machine")
    for node, (shape, ranks) in enumerate(zip(shapes, rank_counts, strict=True)):
        found = _line(ranks, shape.core_count, f"node {node}")
        if found:
            return found
    return []


def _line(ranks: int, cores: int, where: str) -> list[str]:
    if not cores or ranks <= RANKS_A_CORE * cores:
        return []
    counted = "core" if cores == 1 else "cores"
    return [f"distribution: {ranks} ranks share {cores} {counted} of {where}; expect them to be slow"]
