"""A sentence about the steps of a job, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.words import format_age, format_number

if TYPE_CHECKING:
    from collections.abc import Mapping

_PHASES = {
    "input": "input",
    "forward": "forward",
    "backward": "backward",
    "exchange": "all-reduce",
    "waiting": "waiting for others",
    "other": "other",
    "communication": "communication",
    "idle": "waiting for threads or processes",
    "computing": "computing",
}
_LEAST_SHARE = 0.005
_LATE_SHARE = 0.6
"""Of the steps, in which a rank is the last one: less is chance."""

_LATE_S, _LATE_OF_STEP = 0.001, 0.02


def list_parts(steps: Mapping[str, Any], *, is_over: bool = False) -> list[str]:
    """
    List what ``StepHistory.summarize`` says: how far and how fast, where the time goes, which rank is late.

    >>> steps = {"done": 4812, "total": 10000, "total_source": "max_steps", "rate": 3.1, "step_s": 0.3}
    >>> list_parts({**steps, "phases": {"input": 0.04, "other": 0.96}, "latest": None})
    ['step 4,812 of 10,000 (max_steps), 3.1 steps/s, 27m left', 'input 4 %, other 96 %']
    """
    shares = ", ".join(f"{word} {100 * share:.0f} %" for _, word, share in list_phases(steps))
    if shares and steps.get("looks"):
        shares += f" (by {steps['looks']:,} looks at stacks)"
    progress = describe_progress(steps, is_over=is_over)
    latest = _describe_latest(steps["latest"]) if stands_out(steps) else ""
    return [part for part in (progress, shares, latest) if part]


def list_phases(steps: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """List the parts of a step in their order: key, words and share."""
    return [
        (name, word, share)
        for name, word in _PHASES.items()
        if (share := steps["phases"].get(name, 0.0)) >= _LEAST_SHARE
    ]


def stands_out(steps: Mapping[str, Any]) -> bool:
    """Return whether the others wait for one rank in so many steps, and for so long, that it is no chance."""
    late = steps["latest"]
    if not late:
        return False
    least_ms = 1000 * max(_LATE_S, _LATE_OF_STEP * (steps["step_s"] or 0.0))
    return bool(late["share"] >= _LATE_SHARE and late["late_ms"] >= least_ms)


def _describe_latest(late: Mapping[str, Any]) -> str:
    by = f"{format_number(late['late_ms'])} ms"
    said = f"latest rank: {late['rank']}, by {by} in {100 * late['share']:.0f} % of steps"
    if late["phase"] is None:
        return said
    part = "time between steps" if late["phase"] == "other" else _PHASES[late["phase"]]
    return f"{said}; its {part} takes {format_number(late['more_ms'])} ms longer"


def describe_progress(steps: Mapping[str, Any], *, is_over: bool) -> str:
    """Say how far the job is and how fast; empty: that is not known."""
    done, total, rate = steps["done"], steps["total"], steps["rate"]
    if done is None:
        return ""
    told = f"step {done:,}"
    if total:
        told += f" of {total:,} ({steps['total_source']})"
    elif steps.get("told_by"):
        told += f" ({steps['told_by']})"
    listed = [told]
    if rate:
        listed.append(f"{format_number(rate)} steps/s" if rate >= 1 else f"{format_number(1 / rate)} s/step")
    if rate and total and total > done and not is_over:
        listed.append(f"{format_age((total - done) / rate)} left")
    return ", ".join(listed)
