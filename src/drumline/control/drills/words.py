"""Sentences about drills, which stand next to what happened to a job, and never in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.drills import NOTE, name_drill
from drumline.contract.words import format_duration
from drumline.control.times import utc

if TYPE_CHECKING:
    from drumline.contract.outcome import DrillOutcome, Outcome


def describe_drill(drill: DrillOutcome) -> str:
    """Describe a drill in one sentence: the drill 'wedge' on node 1, for ann, from 3.2s to 13s."""
    name = name_drill(drill.kind, drill.node, drill.rank)
    if drill.began is None:
        return f"{name} did not begin: {drill.reason}"
    given = {key: _to_text(value) for key, value in drill.settings.items()}
    settings = ", ".join(text if key == NOTE else f"{key} {text}" for key, text in given.items())
    text = name + (f" ({settings})" if settings else "") + (f", for {drill.by}" if drill.by else "")
    if drill.ended is None:
        return text
    return f"{text}, which lasted {format_duration(drill.ended - drill.began)}: {drill.reason}"


def _to_text(value: object) -> str:
    """Return a setting as its option has it: groups of nodes as ``0,1/2,3``."""
    if not isinstance(value, list):
        return str(value)
    return "/".join(",".join(map(str, one)) if isinstance(one, list) else str(one) for one in value)


def list_sentences(outcome: Outcome, attempt: int | None = None) -> list[str]:
    """
    List the sentences about the drills of an attempt; None: of the latest, with those that did not begin.

    Each stands next to the verdict on that attempt: ``during the drill 'kill-agent' on node 1, for ann``.
    """
    number = len(outcome.attempts) if attempt is None else attempt
    found = []
    for drill in outcome.drills.values():
        if drill.began is None:
            found += [describe_drill(drill)] if attempt is None else []
        elif drill.attempt == number:
            found.append(f"during {describe_drill(drill)}")
    return found


def describe_all(outcome: Outcome) -> list[dict[str, Any]]:
    """Describe the drills of a job for programs, in the order of their requests' answers."""
    return [describe_one(one) for one in outcome.drills.values()]


def describe_one(drill: DrillOutcome) -> dict[str, Any]:
    """Describe a drill for programs."""
    return {
        "drill": drill.drill,
        "kind": drill.kind,
        "node": drill.node,
        "rank": drill.rank,
        "by": drill.by or None,
        "attempt": drill.attempt,
        "settings": drill.settings,
        "began_at": utc(drill.began),
        "ended_at": utc(drill.ended),
        "reason": drill.reason,
    }
