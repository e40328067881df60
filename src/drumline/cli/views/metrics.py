"""``drumline job metrics``: what a job has logged, as curves on a terminal, as a table or as JSON elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, find_job, get_name
from drumline.contract.errors import UsageError
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.contract.folder import RunFolder
    from drumline.control.observing.metrics import FoundMetrics
    from drumline.tracking.series import Series

_COLUMNS = ("metric", "last", "step", "min", "max", "count", "source")
_RUN_COLUMNS = ("metric", "run", *_COLUMNS[1:])
_MAX_CURVES = 6
"""With more metrics, each has one line."""

_HEIGHT = 8
_MAX_LINES = 100
_MAX_NAME_LENGTH = 60
_POLL_INTERVAL_S = 1.0
_MAX_WIDTH = 120


def _add_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("others", nargs="*", metavar="NAME", help="more jobs, drawn in the same charts")
    parser.add_argument(
        "-m",
        "--metric",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only metrics that match, such as 'val/*'; can be repeated",
    )
    parser.add_argument(
        "--step-range", metavar="FIRST:LAST", help="only these steps, both included; either can be left out"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the job ends")
    add_output(parser)


def _show_metrics(given: Namespace) -> int:
    from drumline.control.jobs import lookup
    from drumline.control.observing.metrics import MetricsReader

    folder = lookup.folder_of(get_name(given, "job"))
    steps = _parse_steps(given.step_range)
    if given.others:
        return _compare(given, [folder, *(lookup.folder_of(find_job(word)) for word in given.others)], steps)
    reader = MetricsReader(folder, given.metric)
    as_data = given.output not in (None, "table", "tsv") or given.query
    if given.follow:
        if as_data:
            raise UsageError("--follow shows curves or a table", "leave out --output or --follow")
        return _follow(folder, reader, given, steps)
    found = reader.look(None if as_data else 10.0)
    found = found._replace(series=_select_steps(found.series, steps))
    _print_notes(found.notes, folder)
    if as_data:
        output.show([_describe(one) for one in found.series], given.output, given.query)
    else:
        _show(found, given)
    if not found.series:
        print(
            f"job {folder.name} has logged {'no such metrics' if given.metric else 'no metrics'}",
            file=sys.stderr,
        )
    elif given.output is None and sys.stdout.isatty():
        print(_describe_pages(folder), file=sys.stderr)
    return 0


def _compare(given: Namespace, folders: list[RunFolder], steps: tuple[int | None, int | None]) -> int:
    """Show the metrics of several jobs together."""
    from drumline.control.observing.metrics import read_metrics
    from drumline.control.observing.plot import MOST_OVERLAID

    if given.follow:
        raise UsageError("--follow takes one job", "leave out --follow")
    if len(folders) > MOST_OVERLAID:
        raise UsageError(f"{len(folders)} jobs were given; {MOST_OVERLAID} is the most", "leave out some")
    as_data = given.output not in (None, "table", "tsv") or given.query
    jobs = []
    for folder in folders:
        found = read_metrics(folder, given.metric, None if as_data else 10.0)
        _print_notes(found.notes, folder)
        jobs.append((folder.name, _select_steps(found.series, steps)))
    if as_data:
        told = [{"job": job, **_describe(one)} for job, series in jobs for one in series]
        output.show(told, given.output, given.query)
    elif given.output or not sys.stdout.isatty():
        rows = [{"job": job, **_summarize(one)} for job, series in jobs for one in series]
        has_runs = any(one.run for _, series in jobs for one in series)
        output.show(rows, given.output or "table", None, ("job", *(_RUN_COLUMNS if has_runs else _COLUMNS)))
    else:
        sys.stdout.write("\n".join(_format_overlays(jobs)) + "\n")
    if not any(series for _, series in jobs):
        print("these jobs have logged no such metrics", file=sys.stderr)
    return 0


def _format_overlays(jobs: list[tuple[str, list[Series]]]) -> list[str]:
    """Draw a chart for each metric, with a letter for each job."""
    from drumline.control.observing import plot

    width = max(40, min(_MAX_WIDTH, shutil.get_terminal_size().columns))
    by_metric: dict[tuple[str, str], list[Series | None]] = {}
    for index, (_, series) in enumerate(jobs):
        for one in series:
            by_metric.setdefault((one.name, one.run), [None] * len(jobs))[index] = one
    lines = [f"{letter}  {job}" for letter, (job, _) in zip(plot.LETTERS, jobs, strict=False)]
    for several in list(by_metric.values())[:_MAX_LINES]:
        shown = {letter: one for letter, one in zip(plot.LETTERS, several, strict=False) if one is not None}
        last = {letter: one.figures().last for letter, one in shown.items()}
        facts = [f"{letter} {plot.number(point.value)}" for letter, point in last.items() if point]
        title = f"{_format_name(next(iter(shown.values())))}: last {', '.join(facts)}"
        lines += ["", title, *plot.overlay(several, width, _HEIGHT)]
    if len(by_metric) > _MAX_LINES:
        lines.append(f"and {len(by_metric) - _MAX_LINES} more; choose with --metric PATTERN")
    return lines


def _show(found: FoundMetrics, given: Namespace) -> None:
    if given.output or not sys.stdout.isatty():
        columns = _RUN_COLUMNS if any(one.run for one in found.series) else _COLUMNS
        output.show([_summarize(one) for one in found.series], given.output or "table", None, columns)
    else:
        sys.stdout.write("\n".join(_format_curves(found)) + "\n")


def _follow(folder: RunFolder, reader: Any, given: Namespace, steps: tuple[int | None, int | None]) -> int:
    """Redraw the curves on a terminal; elsewhere print a line for each new value."""
    from drumline.control.jobs import recovery

    draws = sys.stdout.isatty() and given.output is None
    shown: dict[tuple[str, str], int] = {}
    notes: set[str] = set()
    try:
        while True:
            is_final = recovery.recover(folder).is_final
            found = reader.look()
            _print_notes([note for note in found.notes if note not in notes], folder)
            notes.update(found.notes)
            if draws:
                found = found._replace(series=_select_steps(found.series, steps))
                _draw(_format_curves(found) or [f"job {folder.name} has logged no metrics yet"])
            else:
                _print_new_points(found.series, shown, steps)
            if is_final:
                return 0
            time.sleep(_POLL_INTERVAL_S)
    except KeyboardInterrupt:
        return 130


def _draw(lines: list[str]) -> None:
    """Draw from the top of the screen; the terminal's history keeps what was there."""
    room = shutil.get_terminal_size().lines - 1
    sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(lines[:room]) + "\n")
    sys.stdout.flush()


def _print_new_points(
    series: list[Series], shown: dict[tuple[str, str], int], steps: tuple[int | None, int | None]
) -> None:
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


def _format_curves(found: FoundMetrics) -> list[str]:
    from drumline.control.observing import plot

    unicode = _can_draw()
    width = max(40, min(_MAX_WIDTH, shutil.get_terminal_size().columns))
    lines: list[str] = []
    if len(found.series) <= _MAX_CURVES:
        for one in found.series:
            lines += [_format_title(one), *plot.curve(one, width, _HEIGHT, unicode=unicode), ""]
        lines = lines[:-1]
    else:
        lines = _format_lines(found.series[:_MAX_LINES], width, unicode=unicode)
    left_out = found.left_out + max(0, len(found.series) - _MAX_LINES)
    if left_out:
        lines.append(f"and at least {left_out} more; choose with --metric PATTERN")
    return lines


def _format_lines(series: list[Series], width: int, *, unicode: bool) -> list[str]:
    from drumline.control.observing import plot

    rows = [
        (_format_name(one), plot.number(figures.last.value if figures.last else None), one)
        for one, figures in ((one, one.figures()) for one in series)
    ]
    names, values = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    room = max(10, width - names - values - 4)
    return [
        f"{name:<{names}}  {plot.line(one, room, unicode=unicode):<{room}}  {last:>{values}}".rstrip()
        for name, last, one in rows
    ]


def _format_title(one: Series) -> str:
    from drumline.control.observing import plot

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
    return f"{_format_name(one)}: {', '.join(facts)}"


def _format_name(one: Series) -> str:
    name = clean(one.name + (f" ({one.run})" if one.run else "")).replace("\n", " ").replace("\t", " ")
    return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 3] + "..."


def _summarize(one: Series) -> dict[str, Any]:
    from drumline.control.observing.metrics import to_json_number

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
    from drumline.control.observing.metrics import to_json_number

    points = [{"step": step, "timestamp": at, "value": to_json_number(value)} for step, at, value in one]
    return {**_summarize(one), "points": points}


def _select_steps(series: list[Series], steps: tuple[int | None, int | None]) -> list[Series]:
    return series if steps == (None, None) else [one.between(*steps) for one in series]


def _parse_steps(text: str | None) -> tuple[int | None, int | None]:
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


def _describe_pages(folder: RunFolder) -> str:
    """Return how to see the same in MLflow's own pages."""
    from drumline.control.observing.tracking_pages import pages_of

    return clean(pages_of(folder))


def _can_draw() -> bool:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "linux")


VERBS = {"metrics": (_add_arguments, _show_metrics)}
