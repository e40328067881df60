"""The steps of a pipeline and the trials of a sweep as tables, on a page and while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli.colour import colour_of, paint
from drumline.cli.columns import cut, fit_table, join, to_line
from drumline.contract.words import format_duration, format_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_PARAMETERS = 6
_LONGEST_NAME = 40
_GOALS = {"maximize": "max", "minimize": "min"}


def format_steps(
    steps: Sequence[Mapping[str, Any]], width: int, last: Mapping[str, str] | None = None
) -> list[str]:
    """Format steps as a table. ``last``: the newest line of the log of each that runs."""
    heads = ("STEP", "TIME", "JOB", "STATUS")
    rows = [
        (
            cut(to_line(one["step"]), _LONGEST_NAME),
            format_duration(one["seconds"]),
            _name_job(one),
            _describe_state(one, (last or {}).get(str(one["job"]), "")),
        )
        for one in steps
    ]
    return _paint([heads, *rows], [str(one["status"]) for one in steps], width, right={1}, state=3)


def format_trials(
    trials: Sequence[Mapping[str, Any]],
    metric: str,
    goal: str,
    width: int,
    last: Mapping[str, str] | None = None,
) -> list[str]:
    """Format trials as a table in the order given, with a column for each of their parameters."""
    names = list(dict.fromkeys(str(name) for one in trials for name in one["params"]))[:_MOST_PARAMETERS]
    head = cut(to_line(metric), 20) if metric else "METRIC"
    head += f" ({_GOALS[goal]})" if goal in _GOALS else ""
    heads = (
        "TRIAL",
        head.upper() if not metric else head,
        "TIME",
        *(cut(to_line(name), 16) for name in names),
        "STATUS",
    )
    rows = [
        (
            cut(to_line(one["trial"]), _LONGEST_NAME),
            format_number(one["metric"]) if isinstance(one["metric"], (int, float)) else "-",
            format_duration(one["seconds"]),
            *(format_value(one["params"].get(name)) for name in names),
            _describe_state(one, (last or {}).get(str(one["trial"]), "")),
        )
        for one in trials
    ]
    right = set(range(1, 3 + len(names)))
    return _paint(
        [heads, *rows], [str(one["status"]) for one in trials], width, right=right, state=3 + len(names)
    )


def format_value(value: Any) -> str:
    """Return the value of a parameter in few letters."""
    if isinstance(value, float):
        return format_number(value)
    return cut(to_line(value), 16)


def _name_job(step: Mapping[str, Any]) -> str:
    if not step["job"]:
        return "-"
    return cut(to_line(step["job"]), _LONGEST_NAME) + (" (reused)" if step["reused"] else "")


def _describe_state(one: Mapping[str, Any], last: str) -> str:
    status = to_line(one["status"])
    if one.get("stopped_early"):
        return f"Stopped early: {to_line(one['reason'])}" if one["reason"] else "Stopped early"
    if status != "Completed" and one["reason"]:
        return f"{status}: {to_line(one['reason'])}"
    if last:
        return f"{status}: {to_line(last)}"
    return f"{status}; {to_line(one['not_reused'])}" if one.get("not_reused") else status


def _paint(
    rows: Sequence[Sequence[str]], states: Sequence[str], width: int, *, right: set[int], state: int
) -> list[str]:
    heads, *cells = fit_table(rows, width, right)
    lines = [paint(join(heads), "grey")]
    for row, status in zip(cells, states, strict=True):
        row[state] = paint(row[state], colour_of(status))
        lines.append(join(row))
    return lines
