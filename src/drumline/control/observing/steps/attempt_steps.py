"""The steps of an attempt for a page: how far it is, where a step goes, and which rank the others wait for, and why."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from drumline.control.figures import short_number
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.ranks.rank_states import read_attempt
from drumline.control.observing.steps import words
from drumline.control.observing.steps.history import read_steps
from drumline.control.observing.steps.telling import describe_without_hook, may_have_steps, summarize_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.control.observing.steps.history import StepHistory

_CAUSES = {
    "input": "it waits {} longer for its input than the others",
    "forward": "its forward takes {} longer than that of the others",
    "backward": "its backward takes {} longer than that of the others",
    "other": "it spends {} more between steps than the others",
}
_MOST_OF_IT = 0.5


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
    steps = history and summarize_steps(folder, history, is_first=shown.number == 0)
    if history and steps:
        recent = history.keep_recent()
        counted = max(sum(window.made for window in windows) for windows in recent.ranks.values())
        sentence = _describe_latest(recent, steps)
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


def _describe_latest(history: StepHistory, steps: Mapping[str, Any]) -> str:
    """Say which rank the others wait for, and what takes it longer; empty where that cannot be told."""
    late = steps["latest"]
    if late is None:
        return ""
    if not words.stands_out(steps):
        return "no rank holds the others up"
    rank, late_ms = late["rank"], late["late_ms"]
    said = f"the others wait for rank {rank}: it is the latest in {100 * late['share']:.0f} % of steps, by "
    said += f"{short_number(late_ms)} ms"
    phase, more_s = find_excess(history, rank)
    if 1000 * more_s < _MOST_OF_IT * late_ms:
        return said
    return f"{said}; {_CAUSES[phase].format(f'{short_number(1000 * more_s)} ms')}"


def find_excess(history: StepHistory, rank: int) -> tuple[str, float]:
    """Return the part of a step that takes a rank more time than the others, and by how many seconds."""
    found = []
    for phase in _CAUSES:
        own = history.find_median(rank, phase)
        others = [
            known
            for one in history.ranks
            if one != rank and (known := history.find_median(one, phase)) is not None
        ]
        found.append((phase, own - statistics.median(others) if own is not None and others else 0.0))
    return max(found, key=lambda one: one[1])
