"""The page of a job on a terminal: a JobFacts in blocks, at most 100 columns wide, with a table of steps or trials."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, cast

from drumline.cli.colour import colour_of, paint
from drumline.cli.screen import (
    PAGE_WIDTH,
    cut,
    fit_table,
    join,
    measure,
    print_text,
    terminal_width,
    to_line,
    wrap,
)
from drumline.contract.words import format_count, format_duration, format_number, format_ranges, format_size
from drumline.control.facts.job import choose_next, read_facts
from drumline.control.facts.steps import list_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.cli.colour import Colour
    from drumline.control.facts.job import (
        JobFacts,
        MeasuredFolder,
        MetricFacts,
        StartFacts,
        SweepGoal,
        UseFacts,
    )
    from drumline.control.facts.parts import Part, StepFacts, TrialFacts


_INDENT = "  "
_LABEL = 10
_APART = "   "
_MOST_PARTS = 30
"""Steps or trials on a page; the list has all of them."""

_MOST_ATTEMPTS = 3
_FILE_NAMES = {"outputs": "outputs/", "named-outputs": "named-outputs/", "user_logs": "user_logs/"}


def format_page(facts: JobFacts, width: int) -> list[str]:
    """Return the lines of a page, each at most ``width`` columns wide but for the command to paste."""
    metrics, left_out = facts.read_metrics() if facts.outcome.kind == "command" else ([], 0)
    blocks = [
        _format_title(facts, width),
        _format_verdict(facts, width),
        [*_format_facts(facts, _list_metrics(metrics, left_out), width)],
        _format_parts(facts, width),
        _format_last_lines(facts, width),
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    command = choose_next(facts, has_metrics=bool(metrics))
    if command:
        lines.append(f"{paint('next:', 'bold')} {to_line(command)}")
    return lines


def _format_title(facts: JobFacts, width: int) -> list[str]:
    state = _format_state(facts)
    parts = [to_line(facts.name), state]
    if facts.display_name != facts.name:
        parts.append(cut(to_line(facts.display_name), width // 3))
    parts.append(_format_size(facts))
    attempt, most = len(facts.attempts) - 1, facts.most_attempts
    if facts.attempts and (most or attempt):
        parts.append(f"attempt {attempt}" + (f" of 0-{most - 1}" if most and attempt < most else ""))
    if facts.parent:
        parts.append(f"of {to_line(facts.parent)}")
    lines = _fill(parts, width, _APART)
    lines = [lines[0], *(_INDENT + line for line in lines[1:])]
    colour = colour_of(facts.outcome.status)
    return [
        line.replace(state, paint(state, colour), 1) if at == 0 else line for at, line in enumerate(lines)
    ]


def _format_state(facts: JobFacts) -> str:
    outcome = facts.outcome
    status, run_s = to_line(outcome.status), outcome.run_seconds(time.time())
    if run_s is not None:
        return f"{status} {'after' if outcome.ended else 'for'} {format_duration(run_s)}"
    if outcome.ended is None and facts.waited_s is not None:
        return f"{status}, submitted {format_duration(facts.waited_s)} ago"
    return status


def _format_size(facts: JobFacts) -> str:
    """Return ``4 nodes x 4 ranks on lab``, or how many steps or trials."""
    where = f" on {to_line(facts.compute)}"
    if facts.outcome.kind == "pipeline":
        return format_count(len(facts.parts), "step")
    if facts.outcome.kind == "sweep":
        most = facts.objective.most_trials
        return format_count(len(facts.parts), "trial") + (f" of {most}" if most else "")
    counts = facts.ranks_by_node
    if not counts:
        return where.strip()
    if len(set(counts)) == 1:
        return f"{format_count(len(counts), 'node')} x {format_count(counts[0], 'rank')}{where}"
    return f"{format_count(sum(counts), 'rank')} on {format_count(len(counts), 'node')} of {to_line(facts.compute)}"


def _fill(parts: Iterable[str], width: int, between: str) -> list[str]:
    """Put parts on as few lines as they fit on; a part that is too long is cut."""
    lines = [""]
    for part in parts:
        room = width if len(lines) == 1 else width - len(_INDENT)
        longer = f"{lines[-1]}{between}{part}" if lines[-1] else part
        if measure(longer) <= room or not lines[-1]:
            lines[-1] = cut(longer, room)
        else:
            lines.append(cut(part, width - len(_INDENT)))
    return lines


def _format_verdict(facts: JobFacts, width: int) -> list[str]:
    """Format how it ended or why it waits: a line a sentence, the one about the first failure in red."""
    outcome = facts.outcome
    lines: list[str] = []
    for at, sentence in enumerate(facts.sentences):
        lines += _format_sentence(sentence, width, "red" if at == 0 and outcome.status == "Failed" else None)
    if outcome.hang and outcome.ended is None:
        lines += _format_sentence(f"hangs: {outcome.hang}", width, "red")
    for text in facts.warnings:
        lines += _format_sentence(f"warning: {text}", width, "yellow")
    for sentence in (*facts.list_drills(), *facts.notes):
        lines += _format_sentence(sentence, width)
    for attempt in facts.attempts[:-1][-_MOST_ATTEMPTS:]:
        text = f"attempt {attempt.number}: {to_line(attempt.reason)}"
        lines.append(_INDENT + paint(cut(text, width - len(_INDENT)), "grey"))
        for sentence in facts.list_drills(attempt.number):
            lines += _format_sentence(sentence, width)
    return lines


def _format_sentence(text: str, width: int, colour: Colour | None = None) -> list[str]:
    rows = wrap(to_line(text), width - 2 * len(_INDENT))
    return [_INDENT * (2 if at else 1) + paint(row, colour) for at, row in enumerate(rows)]


def _format_facts(facts: JobFacts, metrics: list[str], width: int) -> Iterable[str]:
    if facts.outcome.kind != "command":
        return
    command, pruned = str(facts.spec.get("command") or ""), ", ".join(map(to_line, facts.pruned))
    for label, parts in (
        ("runs", [to_line(command)] if command else []),
        ("inputs", [f"{to_line(name)} {to_line(value)}" for name, value in facts.inputs]),
        (
            "ranks",
            [f"{to_line(format_ranges(group.ranks))} {group.state}" for group in facts.rank_groups],
        ),
        ("steps", _list_steps(facts)),
        ("start-up", _list_phases(facts.start)),
        ("metrics", metrics),
        ("used", _list_use(facts.use)),
        ("files", _list_folders(facts.folders)),
        ("pruned", [f"{pruned} on {facts.pruned_at[:10]}"] if facts.pruned_at else []),
    ):
        room = width - len(_INDENT) - _LABEL
        for at, line in enumerate(_fill(parts, room, _APART) if parts else ()):
            head = paint(f"{label:<{_LABEL}}", "grey") if at == 0 else " " * _LABEL
            yield f"{_INDENT}{head}{line}"


def _list_steps(facts: JobFacts) -> list[str]:
    steps = facts.training
    if not steps:
        return []
    return [to_line(part) for part in list_parts(steps, is_over=facts.outcome.ended is not None)]


def _list_phases(start: StartFacts | None) -> list[str]:
    if start is None:
        return []
    phases = [
        f"{to_line(phase)} {'...' if took_s is None else format_duration(took_s)}"
        for phase, took_s in start.phases
    ]
    return [f"{format_duration(start.total_s)} in all", *phases]


def _list_metrics(metrics: Sequence[MetricFacts], left_out: int) -> list[str]:
    parts = []
    for metric in metrics:
        text, best = f"{cut(to_line(metric.metric), 40)} {format_number(metric.last)}", metric.best
        if best is not None and best.value != metric.last:
            text += f" (best {format_number(best.value)} at {best.step:,})"
        elif best is None and metric.lowest is not None and metric.lowest != metric.highest:
            text += f" ({format_number(metric.lowest)} to {format_number(metric.highest)})"
        parts.append(text)
    return [*parts, f"and {left_out:,} more"] if left_out else parts


def _list_use(use: UseFacts | None) -> list[str]:
    if use is None:
        return []
    parts = []
    if use.peak_memory_bytes:
        parts.append(f"{format_size(use.peak_memory_bytes)} of memory at most in a rank")
    if use.mean_cpu_percent is not None:
        parts.append(f"{use.mean_cpu_percent:.0f} % of a core on average")
    return parts


def _list_folders(folders: Sequence[MeasuredFolder]) -> list[str]:
    parts = []
    for folder in folders:
        more = "more than " if folder.is_more else ""
        if folder.what != "code":
            parts.append(f"{_FILE_NAMES[folder.what]} {more}{format_size(folder.bytes)}")
        elif folder.files is None:
            parts.append(f"code as it was in {to_line(folder.path)}")
        else:
            which = f"git {to_line(folder.commit)[:7]}" if folder.commit else folder.digest[:7]
            if folder.commit and folder.branch:
                which += f" on {cut(to_line(folder.branch), 30)}"
            parts.append(f"code {more}{format_count(folder.files, 'file')} ({which})")
    return parts


def _format_parts(facts: JobFacts, width: int) -> list[str]:
    if facts.outcome.kind == "command":
        return []
    table = format_table(facts, facts.parts[:_MOST_PARTS], width)
    if len(facts.parts) > _MOST_PARTS:
        text = f"{_MOST_PARTS} of {len(facts.parts):,}; drumline job list -p {to_line(facts.name)} has all"
        table.append(paint(text, "grey"))
    return table


def _format_last_lines(facts: JobFacts, width: int) -> list[str]:
    failed = facts.failed_rank
    if not failed or not failed.last_lines:
        return []
    title = f"{_INDENT}last lines of rank {to_line(failed.label)}"
    room = width - 2 * len(_INDENT)
    return [
        paint(title, "grey"),
        *(f"{_INDENT * 2}{cut(to_line(line, keep_blanks=True), room)}" for line in failed.last_lines),
    ]


# The steps of a pipeline and the trials of a sweep as tables, on a page and while they run.


_MOST_PARAMETERS = 6
_LONGEST_NAME = 40
_GOALS = {"maximize": "max", "minimize": "min"}


def format_table(
    facts: JobFacts, chosen: Sequence[Part], width: int, last: Mapping[str, str] | None = None
) -> list[str]:
    """Format some of the steps or trials. ``last``: by job the newest line of the log of each that runs."""
    if facts.outcome.kind == "sweep":
        return _format_trials(cast("Sequence[TrialFacts]", chosen), facts.objective, width, last or {})
    return _format_steps(cast("Sequence[StepFacts]", chosen), width, last or {})


def _format_steps(steps: Sequence[StepFacts], width: int, last: Mapping[str, str]) -> list[str]:
    heads = ("STEP", "TIME", "JOB", "STATUS")
    rows = [
        (
            cut(to_line(step.step), _LONGEST_NAME),
            format_duration(step.seconds),
            cut(to_line(step.job), _LONGEST_NAME) + (" (reused)" if step.reused else "") if step.job else "-",
            _format_part_state(step, last, f"; {to_line(step.not_reused)}" if step.not_reused else ""),
        )
        for step in steps
    ]
    return _paint([heads, *rows], steps, width, right={1})


def _format_trials(
    trials: Sequence[TrialFacts], objective: SweepGoal, width: int, last: Mapping[str, str]
) -> list[str]:
    """Format a table with a column for each of their parameters."""
    names = list(dict.fromkeys(str(name) for trial in trials for name in trial.params))[:_MOST_PARAMETERS]
    head = cut(to_line(objective.metric), 20) or "METRIC"
    head += f" ({_GOALS[objective.goal]})" if objective.goal in _GOALS else ""
    heads = (
        "TRIAL",
        head if objective.metric else head.upper(),
        "TIME",
        *(cut(to_line(name), 16) for name in names),
        "STATUS",
    )
    rows = [
        (
            cut(to_line(trial.trial), _LONGEST_NAME),
            format_number(trial.metric) if isinstance(trial.metric, (int, float)) else "-",
            format_duration(trial.seconds),
            *(_format_value(trial.params.get(name)) for name in names),
            _format_part_state(trial, last, "", "Stopped early" if trial.stopped_early else ""),
        )
        for trial in trials
    ]
    return _paint([heads, *rows], trials, width, right=set(range(1, 3 + len(names))))


def _format_value(value: Any) -> str:
    """Return the value of a parameter in few letters."""
    if isinstance(value, float):
        return format_number(value)
    return cut(to_line(value), 16)


def _format_part_state(part: Part, last: Mapping[str, str], note: str, instead: str = "") -> str:
    """Return the status and why, else the last line of its log, else the note. ``instead``: of the status."""
    status = instead or to_line(part.status)
    if part.reason and status != "Completed":
        return f"{status}: {to_line(part.reason)}"
    if not instead and last.get(part.job or ""):
        return f"{status}: {to_line(last[part.job or ''])}"
    return status + note


def _paint(rows: Sequence[Sequence[str]], parts: Sequence[Part], width: int, *, right: set[int]) -> list[str]:
    """Format the table with its last column, the state, in the colour of the part's status."""
    heads, *cells = fit_table(rows, width, right)
    lines = [paint(join(heads), "grey")]
    for row, part in zip(cells, parts, strict=True):
        lines.append(join([*row[:-1], paint(row[-1], colour_of(part.status))]))
    return lines


def print_page(name: str) -> None:
    """Print the page of a job, for people. Raises NotFoundError."""
    width = terminal_width(PAGE_WIDTH) if sys.stdout.isatty() else PAGE_WIDTH
    print_text("".join(line + "\n" for line in format_page(read_facts(name), width)))
