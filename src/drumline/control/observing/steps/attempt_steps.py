"""The steps of an attempt for a page: how far it is, where a step goes, and which rank the others wait for, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.words import format_number
from drumline.control.facts.ranks import read_attempt
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.steps import words
from drumline.control.observing.steps.history import read_steps
from drumline.control.observing.steps.telling import describe_without_hook, may_have_steps, summarize_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

_CAUSES = {
    "input": "it waits {} longer for its input than the others",
    "forward": "its forward takes {} longer than that of the others",
    "backward": "its backward takes {} longer than that of the others",
    "other": "it spends {} more between steps than the others",
}


def describe_attempt(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Describe the steps of the last minute of an attempt, counted from 0; None: of the latest.

    ``steps`` is as ``show -o json`` has it, None if there were none; the rest are the same in words. Raises
    NotFoundError, UsageError.
    """
    folder = folder_of(name)
    shown = read_attempt(folder, attempt)
    none: dict[str, Any] = {
        "attempt": shown.number,
        "steps": None,
        "progress": "",
        "counted": 0,
        "phases": [],
        "sentence": "",
    }
    if shown.outcome.kind != "command":
        return none
    history = read_steps(folder.path, shown.number, is_recent=True) if may_have_steps(folder) else None
    steps = history and summarize_steps(folder, history, is_first=shown.number == 0, is_over=shown.is_over)
    if history and steps:
        recent = history.keep_recent()
        counted = max(sum(window.made for window in windows) for windows in recent.ranks.values())
        sentence = _describe_latest(steps)
    else:
        steps = describe_without_hook(folder, shown.number) if shown.is_latest else None
        counted, sentence = 0, ""
    if steps is None:
        return none
    return {
        "attempt": shown.number,
        "steps": steps,
        "progress": words.describe_progress(steps, is_over=shown.is_over),
        "counted": counted,
        "phases": [
            {
                "key": key,
                "title": title,
                "share": share,
                "seconds": round(share * (steps["step_s"] or 0.0), 6),
            }
            for key, title, share in words.list_phases(steps)
        ],
        "sentence": sentence,
    }


def _describe_latest(steps: Mapping[str, Any]) -> str:
    """Say which rank the others wait for, and what takes it longer; empty where that cannot be told."""
    late = steps["latest"]
    if late is None:
        return ""
    if not words.stands_out(steps):
        return "no rank holds the others up"
    said = f"the others wait for rank {late['rank']}: it is the latest in {100 * late['share']:.0f} % of steps, by "
    said += f"{format_number(late['late_ms'])} ms"
    if late["phase"] is None:
        return said
    return f"{said}; {_CAUSES[late['phase']].format(format_number(late['more_ms']) + ' ms')}"
