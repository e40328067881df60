"""The starts of two jobs, phase by phase."""

from __future__ import annotations

from typing import Any

from drumline.contract.errors import UsageError
from drumline.control.observing.timeline import describe_start


def compare_phases(a: str, b: str) -> list[dict[str, Any]]:
    """
    Return how long each phase of the latest start of both jobs took, in seconds, None for one that a job lacks.

    A job without ranks has no phases. Raises NotFoundError.
    """
    sides = [_list_phases(name) for name in (a, b)]
    return [
        {"phase": phase, "a": sides[0].get(phase), "b": sides[1].get(phase)}
        for phase in dict.fromkeys((*sides[0], *sides[1]))
    ]


def _list_phases(name: str) -> dict[str, float | None]:
    try:
        told = describe_start(name)
    except UsageError:
        return {}
    # The last one is a moment.
    return {one["phase"]: one["took_s"] for one in told["phases"] if one["phase"] != "all running"}
