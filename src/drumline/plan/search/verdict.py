"""What came of a tuning, in words: how clear the win is, and how the best compares with the job's own setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.words import format_count
from drumline.plan.search.halving import MINIMIZE, list_rivals
from drumline.plan.search.tuning import list_measures

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from drumline.contract.outcome import StepOutcome
    from drumline.plan.search.tuning import Tuning


def find_newest(steps: Collection[StepOutcome]) -> dict[int, StepOutcome]:
    """Return the newest trial of each setting; one that was repeated does not count."""
    return {step.detail["setting"]: step for step in steps if not step.detail.get("again")}


def describe_setting(params: Mapping[str, Any]) -> str:
    """
    Return the values of a setting in words.

    >>> describe_setting({"procs": 2, "threads": 1})
    'procs 2, threads 1'
    """
    return ", ".join(f"{name} {value}" for name, value in params.items())


def describe_counts(tuning: Tuning, steps: Collection[StepOutcome]) -> str:
    """Return how many settings were measured, in how many runs, and how many failed."""
    failed = _list_failed(steps)
    runs = format_count(len(steps), "run")
    said = f"{len(_list_measured(steps))} of {len(tuning.settings)} settings measured in {runs}"
    return f"{said}, {len(failed)} failed" if failed else said


def describe_win(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> str:
    """Return what is to be said after the figure of the best setting."""
    rivals = find_rivals(tuning, steps, winner)
    parts = [_describe_clearness(tuning, steps, rivals), _describe_gain(tuning, steps, winner, rivals)]
    parts += [_describe_edge(tuning, name, value) for name, value in tuning.params(winner).items()]
    return "; ".join(part for part in parts if part)


def find_rivals(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> list[int]:
    """Return the settings that may be as fast as the one that won, the best first."""
    return list_rivals(winner, tuning.goal, list_measures(steps))


def is_alone(steps: Collection[StepOutcome]) -> bool:
    """Return whether no other setting has a figure with which the best could be compared."""
    return len(_list_measured(steps)) < 2


def find_gain(tuning: Tuning, steps: Collection[StepOutcome], winner: int) -> float | None:
    """Return by what part the best is faster than the job's own setting; None if that was not measured."""
    newest = find_newest(steps)
    if tuning.own is None or tuning.own not in newest:
        return None
    best: float | None = newest[winner].detail.get("metric")
    own: float | None = newest[tuning.own].detail.get("metric")
    if not best or not own:
        return None
    return (own / best if tuning.goal == MINIMIZE else best / own) - 1.0


def _list_failed(steps: Collection[StepOutcome]) -> set[int]:
    return {setting for setting, step in find_newest(steps).items() if step.status == status.FAILED}


def _list_measured(steps: Collection[StepOutcome]) -> set[int]:
    known = {step.detail["setting"] for step in steps if step.detail.get("metric") is not None}
    return known - _list_failed(steps)


def _describe_clearness(tuning: Tuning, steps: Collection[StepOutcome], rivals: list[int]) -> str:
    if is_alone(steps):
        return "the only one that could be measured"
    if not rivals:
        return "clearly faster than all others"
    first = describe_setting(tuning.params(rivals[0]))
    who = first if len(rivals) == 1 else f"{len(rivals)} others ({first}; ...)"
    return f"but {who} may be as fast: two runs of one setting may differ by as much"


def _describe_gain(tuning: Tuning, steps: Collection[StepOutcome], winner: int, rivals: list[int]) -> str:
    if tuning.own == winner:
        return "it is the job's own setting"
    gain = find_gain(tuning, steps, winner)
    if gain is None or tuning.own is None:
        return ""
    percent = round(100 * gain)
    faster = f"{percent} % faster than" if percent >= 1 else "as fast as"
    doubt = ", but not clearly" if percent >= 1 and tuning.own in rivals else ""
    return f"{faster} the job's own setting{doubt}: {describe_setting(tuning.params(tuning.own))}"


def _describe_edge(tuning: Tuning, name: str, value: Any) -> str:
    smallest, largest = tuning.edges.get(name, (None, None))
    if value == largest:
        return f"{name} {value} is the largest that was tried: try more"
    return f"{name} {value} is the smallest that was tried: try less" if value == smallest else ""
