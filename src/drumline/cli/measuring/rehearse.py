"""``drumline rehearse``: a job once undisturbed, and once for each drill."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_file, add_output, enter_workspace, load_job_file
from drumline.contract.errors import UsageError
from drumline.contract.words import format_seconds
from drumline.control.measure import rehearsal
from drumline.control.progress_bar import ProgressBar
from drumline.control.terminal import clean
from drumline.control.times import parse_duration

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Self

    from drumline.control.measure.rehearsal import DrillRow, RehearsalReport

_HEADINGS = ("DRILL", "ON", "JOB", "RESULT", "LOST", "STEPS AGAIN", "SAME METRIC", "LEFT BEHIND")
_UNKNOWN = "-"


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline rehearse",
        description="Run a job undisturbed and once for each drill, and show which failures it survives. "
        "Exit code 0: it survived all that it was expected to.",
    )
    add_file(parser)
    parser.add_argument(
        "--drills",
        default="default",
        metavar="FILE",
        help="a file of drills; default: one of each usual kind",
    )
    shorter = parser.add_mutually_exclusive_group()
    shorter.add_argument(
        "--steps", type=int, metavar="N", help="shorten the job by its input for steps, such as max_steps"
    )
    shorter.add_argument(
        "--for", dest="length", metavar="TIME", help="end each run after 60s, if it has not ended by itself"
    )
    parser.add_argument(
        "--seed", type=int, help="chooses nodes, ranks and times that the file leaves open; default 0"
    )
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _rehearse(arguments)


def _rehearse(arguments: Namespace) -> int:
    if arguments.file in ("-", "/dev/stdin"):
        raise UsageError(
            "a rehearsal reads the job file once for each run; standard input has it once", "-f FILE"
        )
    if arguments.steps is not None and arguments.steps < 1:
        raise UsageError("--steps must be 1 or more")

    def load() -> Any:
        return load_job_file(arguments.file, arguments.set)

    for_s = parse_duration(arguments.length, "--for") if arguments.length else None
    if for_s is not None and for_s <= 0:
        raise UsageError("--for must be more than 0")
    wanted = (arguments.steps, for_s, arguments.seed)
    job = load()
    title = str(job.display_name or job.name or os.path.basename(arguments.file))
    plan = rehearsal.plan_rehearsal(job, arguments.drills, *wanted)
    with _Progress() as progress:
        report = rehearsal.run_rehearsal(load, plan, progress)
    rehearsal.keep_table(title, to_values(report))
    if output.is_for_people(arguments.output, arguments.query):
        sys.stdout.write("".join(line + "\n" for line in format_report(report)))
    else:
        output.show(to_values(report), arguments.output, arguments.query)
    return 0 if report.is_ok else 1


class _Progress:
    """A line for the beginning and the end of each run, and on a terminal one that counts its seconds."""

    def __init__(self) -> None:
        self._bar = ProgressBar()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def tell(self, text: str) -> None:
        self._bar.clear()
        print(clean(text), file=sys.stderr, flush=True)

    def count(self, what: str, seconds: float, said: str) -> None:
        self._bar.show_work(what, seconds, said)


def to_values(report: RehearsalReport) -> dict[str, Any]:
    """Return a report as JSON can hold it."""
    return {
        "ok": report.is_ok,
        "undisturbed": report.calm._asdict(),
        "drills": [row._asdict() for row in report.rows],
        "left_out": list(report.left_out),
    }


def format_report(report: RehearsalReport) -> list[str]:
    """Format a report as a table, with the sentences below it."""
    calm = report.calm
    metric = f", {calm.metric} {calm.final:.6g}" if calm.final is not None else ""
    ended = f"ran well for {format_seconds(calm.seconds)}" if calm.is_shortened else ""
    ended = ended or f"{calm.status.lower()} after {format_seconds(calm.seconds)}"
    lines = [f"undisturbed: job {calm.job} {ended}{metric}"]
    if not report.rows:
        lines += [f"  {one}" for one in calm.sentences]
    else:
        lines += ["", *_format_table([_HEADINGS, *map(_make_cells, report.rows)])]
        for row in report.rows:
            lines += [f"{row.drill}: {sentence}" for sentence in (*row.sentences, *row.left_behind)]
    lines += [f"left out: {one}" for one in report.left_out]
    return [clean(line) for line in lines]


def _make_cells(row: DrillRow) -> tuple[str, ...]:
    same = _UNKNOWN if row.same_metric is None else "yes" if row.same_metric else "no"
    return (
        row.drill,
        row.what.partition(" on ")[2],
        row.job,
        row.result + ("" if row.result == "survived" or not row.is_ok else ", as expected"),
        _UNKNOWN if row.lost_s is None else f"{format_seconds(row.lost_s)}",
        _UNKNOWN if row.repeated is None else str(row.repeated),
        same,
        str(len(row.left_behind)) if row.left_behind else "nothing",
    )


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(clean(row[column])) for row in rows) for column in range(len(_HEADINGS))]
    return [
        "  ".join(clean(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ] + [""]
