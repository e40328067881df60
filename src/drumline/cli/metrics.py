"""``drumline job metrics``: what a job has logged, as curves on a terminal, as a table or as JSON elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, name_of
from drumline.contract.errors import UsageError
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.contract.folder import RunFolder
    from drumline.control.metrics import Found
    from drumline.tracking.series import Series

_COLUMNS = ("metric", "last", "step", "min", "max", "count", "source")
_OF_RUN = ("metric", "run", *_COLUMNS[1:])
_MOST_CURVES = 6
"""Of more metrics each has one line."""

_HEIGHT = 8
_MOST_LINES = 100
_LONGEST_NAME = 60
_LOOK_S = 1.0
_WIDEST = 120


def arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument(
        "-m",
        "--metric",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these: 'val/*'; may be repeated",
    )
    parser.add_argument(
        "--step-range", metavar="FIRST:LAST", help="only these steps, both included; either may be left out"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    add_output(parser)


def run(given: Namespace) -> int:
    from drumline.control import jobs
    from drumline.control.metrics import Reader

    folder = jobs.folder_of(name_of(given, "job"))
    steps = _steps(given.step_range)
    reader = Reader(folder, given.metric)
    as_data = given.output not in (None, "table", "tsv") or given.query
    if given.follow:
        if as_data:
            raise UsageError("--follow shows curves or a table", "leave out --output or --follow")
        return _follow(folder, reader, given, steps)
    found = reader.look(None if as_data else 10.0)
    found = found._replace(series=_between(found.series, steps))
    _say(found.notes, folder)
    if as_data:
        output.show([_data(one) for one in found.series], given.output, given.query)
    else:
        _show(found, given)
    if not found.series:
        print(
            f"job {folder.name} has logged {'nothing of that name' if given.metric else 'no metrics'}",
            file=sys.stderr,
        )
    elif given.output is None and sys.stdout.isatty():
        print(_hint(folder), file=sys.stderr)
    return 0


def _show(found: Found, given: Namespace) -> None:
    if given.output or not sys.stdout.isatty():
        columns = _OF_RUN if any(one.run for one in found.series) else _COLUMNS
        output.show([_row(one) for one in found.series], given.output or "table", None, columns)
    else:
        sys.stdout.write("\n".join(_curves(found)) + "\n")


def _follow(folder: RunFolder, reader: Any, given: Namespace, steps: tuple[int | None, int | None]) -> int:
    """On a terminal the picture is drawn anew; elsewhere a line is added for each new value."""
    from drumline.control import jobs

    draws = sys.stdout.isatty() and given.output is None
    shown: dict[tuple[str, str], int] = {}
    notes: set[str] = set()
    try:
        while True:
            is_final = jobs.outcome_of(folder).is_final
            found = reader.look()
            _say([note for note in found.notes if note not in notes], folder)
            notes.update(found.notes)
            if draws:
                found = found._replace(series=_between(found.series, steps))
                _draw(_curves(found) or [f"job {folder.name} has logged no metrics yet"])
            else:
                _add(found.series, shown, steps)
            if is_final:
                return 0
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return 130


def _draw(lines: list[str]) -> None:
    """From the top of the screen; what was there stays above in its history."""
    room = shutil.get_terminal_size().lines - 1
    sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(lines[:room]) + "\n")
    sys.stdout.flush()


def _add(
    series: list[Series], shown: dict[tuple[str, str], int], steps: tuple[int | None, int | None]
) -> None:
    from itertools import islice

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


def _curves(found: Found) -> list[str]:
    from drumline.control import plot

    unicode = _can_draw()
    width = max(40, min(_WIDEST, shutil.get_terminal_size().columns))
    lines: list[str] = []
    if len(found.series) <= _MOST_CURVES:
        for one in found.series:
            lines += [_title(one), *plot.curve(one, width, _HEIGHT, unicode=unicode), ""]
        lines = lines[:-1]
    else:
        lines = _in_lines(found.series[:_MOST_LINES], width, unicode=unicode)
    left_out = found.left_out + max(0, len(found.series) - _MOST_LINES)
    if left_out:
        lines.append(f"and at least {left_out} more; --metric PATTERN chooses")
    return lines


def _in_lines(series: list[Series], width: int, *, unicode: bool) -> list[str]:
    from drumline.control import plot

    rows = [
        (_name(one), plot.number(figures.last.value if figures.last else None), one)
        for one, figures in ((one, one.figures()) for one in series)
    ]
    names, values = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    room = max(10, width - names - values - 4)
    return [
        f"{name:<{names}}  {plot.line(one, room, unicode=unicode):<{room}}  {last:>{values}}".rstrip()
        for name, last, one in rows
    ]


def _title(one: Series) -> str:
    from drumline.control import plot

    figures = one.figures()
    facts = [f"last {plot.number(figures.last.value)} at step {figures.last.step}"] if figures.last else []
    facts += [f"min {plot.number(figures.lowest)}", f"max {plot.number(figures.highest)}"]
    facts.append(
        f"{figures.value_count} value{'s' if figures.value_count != 1 else ''}"
        + (" or more" if one.is_cut else "")
    )
    if figures.odd_count:
        facts.append(f"{figures.odd_count} of them nan or inf")
    facts += [one.source] if one.source != "mlflow" else []
    return f"{_name(one)}: {', '.join(facts)}"


def _name(one: Series) -> str:
    name = clean(one.name + (f" ({one.run})" if one.run else "")).replace("\n", " ").replace("\t", " ")
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


def _row(one: Series) -> dict[str, Any]:
    from drumline.control.metrics import plain

    figures = one.figures()
    return {
        "metric": one.name,
        **({"run": one.run} if one.run else {}),
        "last": plain(figures.last.value) if figures.last else None,
        "step": figures.last.step if figures.last else None,
        "min": figures.lowest,
        "max": figures.highest,
        "count": figures.value_count,
        "source": one.source,
    }


def _data(one: Series) -> dict[str, Any]:
    from drumline.control.metrics import plain

    points = [{"step": step, "timestamp": at, "value": plain(value)} for step, at, value in one]
    return {**_row(one), "points": points}


def _between(series: list[Series], steps: tuple[int | None, int | None]) -> list[Series]:
    return series if steps == (None, None) else [one.between(*steps) for one in series]


def _steps(text: str | None) -> tuple[int | None, int | None]:
    """Raises UsageError."""
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


def _say(notes: Any, folder: RunFolder) -> None:
    for note in notes:
        print(f"warning: job {folder.name}: {clean(note)}", file=sys.stderr)


def _hint(folder: RunFolder) -> str:
    """How MLflow's own pages show the same."""
    from drumline.control.tracking import pages_of

    return clean(pages_of(folder))


def _can_draw() -> bool:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "linux")
