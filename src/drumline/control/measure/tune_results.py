"""The outcome of a tuning: each setting with its newest figures, and the job file that won."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import read_plain, write_whole
from drumline.control.terminal import clean
from drumline.plan.search import tuning as tunings
from drumline.plan.search.halving import MINIMIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome, StepOutcome

_MARK = "# Made by drumline tune "


def read_tuning(folder: RunFolder) -> tunings.Tuning:
    """Return what the tuning tries. Raises DrumlineError for a job that is none."""
    graph = folder.read_json(folder.graph) or {}
    tuning = tunings.from_properties((graph.get("sweep") or {}).get("properties"))
    if tuning is None:
        raise DrumlineError(f"job {folder.name} is not a tuning")
    return tuning


def name_unit(tuning: tunings.Tuning) -> str:
    """Return the unit of the figures by which settings are compared."""
    return tunings.UNITS[tuning.metric]


def to_values(folder: RunFolder, outcome: Outcome, tuning: tunings.Tuning) -> dict[str, Any]:
    """Return the figures as ``-o json`` has them; the best setting first, those without a figure last."""
    steps = outcome.steps.values()
    newest = tunings.find_newest(steps)
    winner = find_winner(outcome, tuning)
    rivals = [] if winner is None else tunings.find_rivals(tuning, steps, winner)
    rows = [_to_row(setting, newest.get(setting), tuning, rivals) for setting in range(len(tuning.settings))]
    rows.sort(key=lambda row: _rank(row, tuning, winner))
    best = next((row for row in rows if row["number"] == winner), None)
    return {
        "name": folder.name,
        "status": outcome.status,
        "reason": outcome.reason,
        "metric": tuning.metric,
        "goal": tuning.goal,
        "strong": tuning.strong,
        "runs": len(outcome.steps),
        "seconds": _seconds(outcome),
        "best": best and {key: best[key] for key in ("setting", "metric", "step_s", "job")},
        "is_clear": winner is not None and not rivals and not tunings.is_alone(steps),
        "faster_than_own": None if winner is None else tunings.find_gain(tuning, steps, winner),
        "settings": [{key: value for key, value in row.items() if key != "number"} for row in rows],
    }


def find_winner(outcome: Outcome, tuning: tunings.Tuning) -> int | None:
    """Return the number of the setting that won; None while that is open, and if none could be measured."""
    return tuning.find_standing(outcome.steps.values()).winner


def _to_row(
    number: int, step: StepOutcome | None, tuning: tunings.Tuning, rivals: Collection[int]
) -> dict[str, Any]:
    detail = step.detail if step else {}
    return {
        "number": number,
        "setting": tuning.params(number),
        "metric": detail.get("metric"),
        "step_s": detail.get("step_s"),
        "steps": detail.get("measured"),
        "ranks": detail.get("ranks"),
        "rung": detail.get("rung"),
        "status": (step.status if step else "") or None,
        "reason": step.reason if step else "not measured",
        "ended": detail.get("ended"),
        "is_own": number == tuning.own,
        "may_be_best": number in rivals,
        "job": step.job if step else None,
    }


def _rank(row: Mapping[str, Any], tuning: tunings.Tuning, winner: int | None) -> tuple[Any, ...]:
    sign = 1.0 if tuning.goal == MINIMIZE else -1.0
    value = row["metric"]
    return (row["number"] != winner, value is None, -(row["rung"] or 0), sign * (value or 0.0))


def _seconds(outcome: Outcome) -> float | None:
    if outcome.created is None or outcome.ended is None:
        return None
    return round(max(0.0, outcome.ended - outcome.created), 1)


def list_lines(values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the table, the heading first."""
    names = list(values["settings"][0]["setting"])
    lines = [(*(name.upper() for name in names), "STEPS", "STEP, MS", "RESULT")]
    for row in values["settings"]:
        step_s = row["step_s"]
        is_best = values["best"] is not None and row["setting"] == values["best"]["setting"]
        result = tunings.describe_value(values["metric"], row["metric"]) if row["metric"] else row["reason"]
        notes = [
            "best" if is_best else "",
            "may be as fast" if row["may_be_best"] else "",
            "the job's own" if row["is_own"] else "",
            row["ended"],
        ]
        said = "; ".join(note for note in notes if note)
        lines.append(
            (
                *(str(row["setting"][name]) for name in names),
                str(row["steps"] or "-"),
                f"{1000 * step_s:.1f}" if step_s else "-",
                f"{result} ({said})" if said else result,
            )
        )
    return lines


def check_target(path: str, *, is_named: bool, source: str = "") -> None:
    """
    Raise UsageError where the job file that won cannot be written. ``is_named``: the user named it. ``source``: the
    job file that is tuned, which is kept.
    """
    if source and os.path.exists(path) and os.path.samefile(path, source):
        raise UsageError(f"--write: {path!r} is the job file itself", "--write FILE, another one")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK) or os.path.isdir(path):
        raise UsageError(f"--write: {path!r} cannot be written", "--write FILE")
    if not is_named and not _is_free(path):
        raise UsageError(f"{path} is there, and was not made by drumline tune", "--write FILE")


def _is_free(path: str) -> bool:
    """Return whether nothing is at the path but what drumline tune made: no file of the user, no link and no pipe."""
    return not os.path.lexists(path) or read_plain(path, len(_MARK)) == _MARK.encode()


def choose_target(path: str, name: str, tell: Callable[[str], None]) -> str:
    """
    Return where the job file that won is written: to the path that was checked when the tuning of that name began, or
    beside it where the user has made a file there since, of which ``tell`` gets a line. Raises UsageError if that is
    taken too.
    """
    if _is_free(path):
        return path
    stem, end = os.path.splitext(path)
    other = f"{stem}.{name}{end}"
    check_target(other, is_named=False)
    tell(f"{path} was made meanwhile, and not by drumline tune, so the job file that won is {other}")
    return other


def write_winner(job: Any, tuning: tunings.Tuning, values: Mapping[str, Any], path: str) -> None:
    """Write the job with the setting that won. Raises OSError."""
    from drumline.spec.jobs.job import to_yaml

    best = values["best"]
    assert values["status"] == status.COMPLETED
    tunings.apply_setting(job, tuning.targets, best["setting"])
    shown = tunings.describe_setting(best["setting"])
    figure = tunings.describe_value(values["metric"], best["metric"])
    comment = clean(" ".join(f"{_MARK}({values['name']}): {shown}: {figure}".split()))
    is_elsewhere = os.path.dirname(os.path.abspath(path)) != job.base_path
    text = f"{comment}\n{to_yaml(job, absolute=is_elsewhere)}"
    write_whole(path, text, mode=0o666)
