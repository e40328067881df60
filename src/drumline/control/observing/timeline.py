"""The start of an attempt of a job, for programs; ``timeline_text`` makes text of it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import examine
from drumline.control.observing.charts.attempt_starts import read_starts
from drumline.control.observing.timeline_phases import apply, longest, phases

if TYPE_CHECKING:
    from drumline.contract.outcome import Outcome
    from drumline.control.observing.timeline_phases import Phase, Start


def describe_start(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Describe the start of an attempt, by default the latest, for programs; ``timeline_text.render`` makes text of it.

    Raises NotFoundError, UsageError for a job without ranks or an attempt that there was not.
    """
    folder = folder_of(name)
    examined = examine(folder)
    kind = examined.outcome.kind
    if kind != "command":
        raise UsageError(
            f"job {name} is a {kind}: it has jobs, and those have timelines", f"drumline job show -n {name}"
        )
    starts = read_starts(folder)
    if not len(starts):
        raise UsageError(f"nothing is known yet of how job {name} started")
    number = len(starts) - 1 if attempt is None else attempt
    if not 0 <= number < len(starts):
        there = "attempt 0 alone" if len(starts) == 1 else f"attempts 0 to {len(starts) - 1}"
        raise UsageError(f"job {name} has no attempt {number}", f"it has {there}")
    start = starts.find(folder, number)
    if examined.end and number == len(starts) - 1:
        apply(start, examined.end)
    told = describe_attempt(start, len(starts), starts.find_zero(0))
    zero = start.zero
    until = starts.find_zero(number + 1) if number + 1 < len(starts) else math.inf
    return {
        "job": name,
        **told,
        "drills": _list_drills(examined.outcome, number, zero),
        **_list_experiments(examined.outcome, zero, until),
    }


def _list_experiments(outcome: Outcome, zero: float, until: float) -> dict[str, Any]:
    """List when the experiments of DeepSpeed's autotuner ran; nothing of a job without any."""
    if not outcome.experiments:
        return {}
    from drumline.control.observing.parts import experiments

    return {"experiments": experiments.describe_times(outcome, zero, until)}


def _list_drills(outcome: Outcome, attempt: int, zero: float) -> list[dict[str, Any]]:
    """List the failures that were made on purpose in an attempt, and in the one before, which may have ended it."""
    if not outcome.drills:
        return []
    from drumline.control.drills import request

    return [
        {
            "drill": request.describe_drill(one),
            "attempt": one.attempt,
            "from_s": round(one.began - zero, 6),
            "to_s": None if one.ended is None else round(one.ended - zero, 6),
        }
        for one in outcome.drills.values()
        if one.began is not None and one.attempt in (attempt, attempt - 1)
    ]


def describe_attempt(start: Start, count: int, submitted: float) -> dict[str, Any]:
    """Describe an attempt for programs. Times are seconds since ``zero``, which is in seconds since 1970."""
    found = phases(start)
    most = longest(start, found)

    def at(when: float | None) -> float | None:
        return None if when is None else round(when - start.zero, 6)

    return {
        "attempt": start.number,
        "attempts": count,
        "zero": start.zero,
        "since_submission_s": round(start.zero - submitted, 6),
        "cause": start.cause,
        "phases": [
            {
                "phase": one.name,
                "since_s": at(one.begin if one.since is None else one.since),
                "from_s": at(one.begin),
                "to_s": at(one.until),
                "took_s": None if one.until is None else round(one.until - _begin(one), 6),
                "note": one.note,
                "missing": one.missing,
                "part_of": one.part_of or None,
            }
            for one in found
        ],
        "nodes": [_node(start, node, at) for node in sorted({*start.joined, *start.warm})],
        "warm_declined": [
            {"node": one.node, "rank": one.rank, "reason": one.reason, "asked": one.asked}
            for one in start.declined
        ],
        "ranks": [_rank(start, rank, at) for rank in sorted(start.started)],
        "total_s": round(most.total_s, 6) if most else None,
        "longest": {
            "phase": most.phase.name,
            "seconds": round(most.seconds, 6),
            "rank": most.phase.last_rank,
        }
        if most
        else None,
        "now_s": None if start.is_over or start.running is not None else at(time.time()),
    }


def _begin(one: Phase) -> float:
    return one.begin if one.since is None else min(one.since, one.begin)


def _node(start: Start, node: int, at: Any) -> dict[str, Any]:
    warm = start.warm.get(node)
    return {
        "node": node,
        "joined_s": at(start.joined.get(node)),
        "warm": None
        if warm is None
        else {
            "reused": warm.reused,
            "began_s": at(warm.began),
            "import_s": warm.import_s,
            "modules": list(warm.modules),
            "until": warm.until,
        },
    }


def _rank(start: Start, rank: int, at: Any) -> dict[str, Any]:
    started, output, grouped = start.started[rank], start.output.get(rank), start.grouped.get(rank)
    return {
        "rank": rank,
        "node": started.node,
        "started_s": at(started.time),
        "first_output_s": at(output.time) if output else None,
        "group_formed_s": at(grouped.time) if grouped else None,
        "backend": grouped.backend if grouped else None,
    }
