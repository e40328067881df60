"""``drumline job metrics``: what a job has logged, as a table, as JSON, or value by value while it runs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import find_job, get_name
from drumline.contract.errors import UsageError
from drumline.control.facts.metrics import MetricsReader, draw_course, read_metrics, to_json_number
from drumline.control.jobs import lookup, recovery
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.tracking.metrics import Series

    _StepRange = tuple[int | None, int | None]

_COLUMNS = ("metric", "run", "course", "last", "step", "min", "max", "count", "source")
_COURSE_WIDTH = 20
_MAX_LINES = 100
"""Of a table on a terminal."""

_POLL_INTERVAL_S = 1.0


def show_metrics(given: Namespace) -> int:
    folders = [lookup.folder_of(name) for name in (get_name(given, "job"), *map(find_job, given.others))]
    steps = _parse_steps(given.step_range)
    as_data = given.output not in (None, "table", "tsv") or given.query
    if given.follow:
        if given.others:
            raise UsageError("--follow takes one job", "leave out --follow")
        if as_data:
            raise UsageError("--follow shows a table or values", "leave out --output or --follow")
        return _follow(folders[0], MetricsReader(folders[0], given.metric), given, steps)
    jobs, left_out = [], 0
    for folder in folders:
        found = read_metrics(folder, given.metric, None if as_data else 10.0)
        _print_notes(found.notes, folder)
        jobs += [(folder.name, one) for one in _select_steps(found.series, steps)]
        left_out += found.left_out
    named = len(folders) > 1
    if as_data:
        rows = [{**({"job": job} if named else {}), **_describe(one)} for job, one in jobs]
        output.show(rows, given.output, given.query)
    else:
        _print_table(jobs, given.output, named=named, left_out=left_out)
    if not jobs:
        who = "these jobs have" if named else f"job {folders[0].name} has"
        print(f"{who} logged {'no such metrics' if given.metric else 'no metrics'}", file=sys.stderr)
    elif given.output is None and sys.stdout.isatty():
        from drumline.control.facts.description import pages_of

        print(clean(pages_of(folders[0])), file=sys.stderr)
    return 0


def _print_table(
    jobs: Sequence[tuple[str, Series]], form: str | None, *, named: bool = False, left_out: int = 0
) -> None:
    """Print a row for each metric, those of one name below each other; on a terminal with its course."""
    on_terminal = form is None and sys.stdout.isatty()
    listed = sorted(jobs, key=lambda job: (job[1].name, job[1].run)) if named else jobs
    shown = listed[:_MAX_LINES] if on_terminal else listed
    rows = [{**({"job": job} if named else {}), **_summarize(one)} for job, one in shown]
    if on_terminal:
        for row, (_, one) in zip(rows, shown, strict=True):
            row["course"] = draw_course(one, _COURSE_WIDTH, in_blocks=_can_draw())
            figures = one.figures()
            odd = f", {figures.odd_count} nan or inf" if figures.odd_count else ""
            row["count"] = f"{figures.value_count}{' or more' if one.is_cut else ''}{odd}"
    columns = tuple(
        name
        for name in _COLUMNS
        if (name != "run" or any(one.run for _, one in shown)) and (name != "course" or on_terminal)
    )
    output.show(rows, form or "table", None, ("job", *columns) if named else columns)
    left_out += len(listed) - len(shown)
    if left_out and on_terminal:
        print(f"and at least {left_out} more; choose with --metric PATTERN")


def _follow(folder: RunFolder, reader: MetricsReader, given: Namespace, steps: _StepRange) -> int:
    """Print the table again and again on a terminal; elsewhere print a line for each new value."""
    on_terminal = sys.stdout.isatty() and given.output is None
    shown: dict[tuple[str, str], int] = {}
    notes: set[str] = set()
    try:
        while True:
            is_final = recovery.recover(folder).is_final
            found = reader.look()
            _print_notes([note for note in found.notes if note not in notes], folder)
            notes.update(found.notes)
            if on_terminal:
                # From the top of the screen; the terminal's history keeps what was there.
                sys.stdout.write("\x1b[H\x1b[2J")
                series = _select_steps(found.series, steps)
                room = max(1, shutil.get_terminal_size().lines - 3)
                left_out = found.left_out + max(0, len(series) - room)
                if series:
                    _print_table([(folder.name, one) for one in series[:room]], None, left_out=left_out)
                else:
                    print(f"job {folder.name} has logged no metrics yet")
                sys.stdout.flush()
            else:
                _print_new_points(found.series, shown, steps)
            if is_final:
                return 0
            time.sleep(_POLL_INTERVAL_S)
    except KeyboardInterrupt:
        return 130


def _print_new_points(series: list[Series], shown: dict[tuple[str, str], int], steps: _StepRange) -> None:
    first, last = steps
    for one in series:
        before = shown.get((one.name, one.run), 0)
        for point in islice(one, before if before <= len(one) else 0, None):
            if (first is None or point.step >= first) and (last is None or point.step <= last):
                print(
                    clean(f"{one.name}\t{point.step}\t{point.value!r}" + (f"\t{one.run}" if one.run else ""))
                )
        shown[one.name, one.run] = len(one)
    sys.stdout.flush()


def _summarize(one: Series) -> dict[str, Any]:
    figures = one.figures()
    return {
        "metric": one.name,
        **({"run": one.run} if one.run else {}),
        "last": to_json_number(figures.last.value) if figures.last else None,
        "step": figures.last.step if figures.last else None,
        "min": figures.lowest,
        "max": figures.highest,
        "count": figures.value_count,
        "source": one.source,
    }


def _describe(one: Series) -> dict[str, Any]:
    points = [{"step": step, "timestamp": at, "value": to_json_number(value)} for step, at, value in one]
    return {**_summarize(one), "points": points}


def _select_steps(series: list[Series], steps: _StepRange) -> list[Series]:
    return series if steps == (None, None) else [one.between(*steps) for one in series]


def _parse_steps(text: str | None) -> _StepRange:
    """Parse FIRST:LAST. Raises UsageError."""
    if text is None:
        return None, None
    first, colon, last = text.partition(":")
    try:
        found = (int(first) if first.strip() else None, int(last) if last.strip() else None)
    except ValueError:
        colon, found = "", (None, None)
    if not colon:
        raise UsageError(
            f"--step-range: {text!r} is not of the form FIRST:LAST", "--step-range 100:200, or 100:"
        )
    return found


def _print_notes(notes: Any, folder: RunFolder) -> None:
    for note in notes:
        print(f"warning: job {folder.name}: {clean(note)}", file=sys.stderr)


def _can_draw() -> bool:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "linux")
