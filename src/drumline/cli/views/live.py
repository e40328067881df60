"""
Pipelines and sweeps while they run, on a terminal: a table that is drawn over itself.

Two control sequences do that. rich.live would take 75 ms to import and 12 MB with its packages, and shows text as it
comes, so every cell would have to be made safe here all the same.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

from drumline.cli.colour import colour_of, paint
from drumline.cli.screen import PAGE_WIDTH, cut, measure, terminal_width, to_line
from drumline.cli.views.page import format_table
from drumline.contract import status
from drumline.contract.folder import RunFolder
from drumline.contract.words import format_duration, format_number
from drumline.control.facts.job import JobFacts, choose_next
from drumline.control.jobs.lookup import find_plan
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import last_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.control.facts.parts import Part

_DRAW_S = 0.5
_SHARE_OF_LOOKS = 0.2
"""Of one core, at most, for looking at the metrics of trials that run."""

_BEST_TRIALS = 5
"""Always shown, however many others run."""

_MOST_LOGS = 64
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RUNNING = (status.RUNNING, status.STARTING, status.PREPARING, status.FINALIZING, status.CANCEL_REQUESTED)


def follow_parts(folder: RunFolder, out: TextIO) -> Outcome:
    """Draw the table until the job has ended. Blocks. Ctrl-C leaves the table as it is."""
    lines = LiveLines(out)
    newest = NewestLines()
    while True:
        began = time.monotonic()
        outcome = recover(folder)
        facts = JobFacts(folder, outcome)
        width = terminal_width(PAGE_WIDTH) - 1
        room = None if outcome.is_final else shutil.get_terminal_size().lines - 4
        lines.draw(format_parts(facts, width, newest, room))
        if outcome.is_final:
            return outcome
        time.sleep(max(_DRAW_S, (time.monotonic() - began) / _SHARE_OF_LOOKS))


def format_ending(folder: RunFolder, outcome: Outcome) -> str:
    """Return the lines below the last table: how it ended, and what to do next."""
    lines = (
        [f"job {folder.name} {outcome.status.lower()}: {to_line(outcome.reason)}"] if outcome.reason else []
    )
    command = choose_next(JobFacts(folder, outcome), has_metrics=False)
    return "".join(line + "\n" for line in [*lines, *([f"next: {command}"] if command else [])])


def format_parts(facts: JobFacts, width: int, newest: NewestLines, room: int | None = None) -> list[str]:
    """Format a line about the whole, and the table. ``room``: for how many rows; None: for all."""
    parts, is_final = facts.parts, facts.outcome.is_final
    chosen = _choose_rows(parts, room, best=_BEST_TRIALS if facts.outcome.kind == "sweep" else 0)
    running = [] if is_final else [part.job for part in chosen if part.job and part.status == status.RUNNING]
    table = format_table(facts, chosen, width, newest.read(running))
    if len(chosen) < len(parts):
        table.append(paint(f"{len(chosen)} of {len(parts):,}", "grey"))
    return [_format_title(facts, width), *table]


def _format_title(facts: JobFacts, width: int) -> str:
    outcome, name, parts = facts.outcome, facts.name, facts.parts
    took = outcome.run_seconds(time.time())
    state = to_line(outcome.status)
    words = [f"{'after' if outcome.is_final else 'for'} {format_duration(took)}"] if took is not None else []
    over = sum(part.status in status.TERMINAL or part.status == status.SKIPPED for part in parts)
    if outcome.kind == "sweep":
        words.append(f"{over} of {facts.objective.most_trials or len(parts)} trials ended")
        words += [
            f"best {format_number(trial.metric)} of {to_line(trial.trial)}"
            for trial in facts.trials
            if trial.rank == 1
        ]
    else:
        words.append(f"{over} of {len(parts)} steps ended")
    running = sum(part.status in _RUNNING for part in parts)
    if running:
        words.append(f"{running} running")
    text = cut("   ".join([f"{to_line(name)}   {state} {words[0]}", *words[1:]]), width)
    return text.replace(state, paint(state, colour_of(outcome.status)), 1) if state not in name else text


def _choose_rows(rows: Sequence[Part], room: int | None, best: int) -> Sequence[Part]:
    """Choose the rows that fit, in their order: the best, then those that run, then failures, then the others."""
    if room is None or len(rows) <= max(1, room):
        return rows

    def rank(at: int) -> tuple[int, int]:
        state = rows[at].status
        if at < best:
            return 0, at
        return (1 if state in _RUNNING else 2 if state == status.FAILED else 3), at

    kept = sorted(sorted(range(len(rows)), key=rank)[: max(1, room)])
    return [rows[at] for at in kept]


class NewestLines:
    """The newest line of the logs of jobs that run."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan | None] = {}

    def read(self, jobs: Sequence[str]) -> dict[str, str]:
        """Return the lines by job; a job without one is left out."""
        return {job: line for job in jobs if (line := self._read(job))}

    def _read(self, job: str) -> str:
        if "/" in job or job in ("", ".", ".."):
            return ""
        folder = RunFolder.for_job(job)
        plan = self._plans[job] = self._plans.get(job) or find_plan(folder)
        if plan is None:
            return ""  # It has steps of its own, or is not there yet.
        times = {}
        for task in plan.ranks[:_MOST_LOGS]:
            try:
                times[task.rank] = os.stat(
                    os.path.join(folder.path, task.log), follow_symlinks=False
                ).st_mtime
            except OSError:
                continue
        if not times:
            return ""
        found = last_lines(folder, plan, max(times, key=lambda rank: times[rank]), 1)
        return found[0].decode("utf-8", "replace") if found else ""


class LiveLines:
    """Lines at the end of a terminal that are drawn over those drawn before."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: list[str] = []

    def draw(self, lines: Sequence[str]) -> None:
        if list(lines) == self._before:
            return
        # A terminal that was made narrower has wrapped what it has.
        width = max(1, shutil.get_terminal_size().columns)
        rows = sum(max(1, -(-measure(_COLOUR.sub("", line)) // width)) for line in self._before)
        up = f"\x1b[{rows}A\r\x1b[J" if rows else ""
        self._out.write(up + "".join(line + "\n" for line in lines))
        self._out.flush()
        self._before = list(lines)
