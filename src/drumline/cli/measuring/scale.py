"""``drumline scale``: a job at several sizes, and what larger sizes would take."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import (
    Parser,
    add_azure,
    add_file,
    add_output,
    add_ways_to_run,
    enter_workspace,
    load_job_file,
    set_ways_to_run,
)
from drumline.cli.screen import fit_table, join
from drumline.contract.errors import UsageError
from drumline.contract.folder import read_plain, write_whole
from drumline.contract.words import format_number
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.control.measure.measured_sizes import SizeRun
    from drumline.control.measure.scale_report import ScaleReport

_FIGURES = "scale.json"
_MARK = b'"scaling": "'
"""What a file that this command has made begins with."""

_HEAD_BYTES = 4096
_USUAL_TO = 64
_HEADINGS = ("nodes", "ranks", "step, ms", "from", "to", "speed-up", "efficiency", "")


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline scale",
        description="Run a job at several sizes, each until its steps are measured, and show how it scales, where "
        "the time of a step goes, and what larger sizes would take. Exit code 0: every figure can be trusted.",
    )
    add_file(parser)
    parser.add_argument(
        "--nodes", default="1,2,4", metavar="N,N...", help="the sizes to run, in nodes; default: 1,2,4"
    )
    parser.add_argument(
        "--procs", type=int, metavar="N", help="processes on each node; default: as the job has it"
    )
    parser.add_argument(
        "--steps", type=int, default=60, metavar="N", help="steps to measure at each size; default: 60"
    )
    parser.add_argument("--to", type=int, metavar="N", help="the largest size to predict; default: 64")
    parser.add_argument(
        "--strong",
        action="store_true",
        help="the script divides one batch among all ranks; default: each rank has a batch of its own",
    )
    parser.add_argument(
        "--folder",
        default=".",
        metavar="DIR",
        help=f"where {_FIGURES} is written; default: here",
    )
    add_ways_to_run(parser)
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _scale(arguments)


def _scale(arguments: Namespace) -> int:
    from drumline.control.measure import refusals, scale_report, scale_run

    output.check_query(arguments.query)
    nodes = parse_sizes(arguments.nodes)
    request = scale_run.ScaleRequest(nodes, arguments.procs, arguments.steps)
    to = max(_USUAL_TO, nodes[-1]) if arguments.to is None else arguments.to
    scale_run.check_request(request, to, refusals.FEWEST_STEPS)
    _check_folder(arguments.folder)
    job = load_job_file(arguments.file, arguments.set)
    title = str(job.display_name or job.name or os.path.basename(arguments.file))
    set_ways_to_run(job, arguments)
    plans = scale_run.plan_sizes(job, request)
    emulation = scale_run.find_emulation(job, plans, output.tell)
    runs: list[SizeRun] = []
    is_whole = False
    try:
        for run in scale_run.run_sizes(job, request, plans, output.tell):
            runs.append(run)  # noqa: PERF402 - an interrupt leaves those before it
        is_whole = True
    except KeyboardInterrupt:
        if not any(run.steps for run in runs):
            raise
        output.tell("the report has the sizes that were measured")
    made = scale_report.build_report(title, runs, to=to, strong=arguments.strong, emulation=emulation)
    made = made._replace(at=time.time())
    _show(arguments, made)
    if not is_whole:
        raise KeyboardInterrupt
    return 0 if not made.refused else 1


def _check_folder(folder: str) -> None:
    """Raise UsageError for a folder that the file cannot be written to: that is known before anything runs."""
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--folder: no files can be written to {folder!r}", "name a folder that is there")
    path = os.path.join(folder, _FIGURES)
    if os.path.isdir(path):
        raise UsageError(f"--folder: {path!r} is a folder", "name another folder")
    # A link is replaced, and what it leads to stays.
    is_file = os.path.isfile(path) and not os.path.islink(path)
    if is_file and _MARK not in read_plain(path, _HEAD_BYTES):
        raise UsageError(
            f"{path} is there, and was not made by drumline scale", "--folder DIR, another folder"
        )


def parse_sizes(text: str) -> tuple[int, ...]:
    """
    Return the sizes of ``--nodes`` in ascending order. Raises UsageError.

    >>> parse_sizes("4, 1,2")
    (1, 2, 4)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 8 for word in words):
        raise UsageError(f"--nodes: {text!r} is not a list of numbers", "--nodes 1,2,4")
    return tuple(sorted(int(word) for word in words))


def _show(arguments: Namespace, made: ScaleReport) -> None:
    from drumline.control.measure.scale_values import keep_report, to_values

    values = to_values(made)
    keep_report(values)
    failure = _write_figures(os.path.join(arguments.folder, _FIGURES), values)
    if output.is_for_people(arguments.output, arguments.query):
        sys.stdout.write("".join(clean(line) + "\n" for line in format_report(made)))
        if failure is None:
            path = os.path.join(arguments.folder, _FIGURES)
            output.tell(f"{path} has the same; drumline studio shows it with a curve, under Reports")
    else:
        output.show(values, arguments.output, arguments.query)
    if failure is not None:
        raise failure


def _write_figures(path: str, values: dict[str, Any]) -> OSError | None:
    """Write the figures; return what went wrong, which must not cost what was measured for minutes."""
    import json

    text = json.dumps(values, ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(path, text.encode(errors="backslashreplace"), mode=0o666)
    except OSError as error:
        return OSError(error.errno, error.strerror, path)
    return None


def format_report(made: ScaleReport) -> list[str]:
    """Format a report as a table, with the sentences below it."""
    from drumline.control.measure.scale_values import list_sentences

    rows = [tuple(heading.upper() for heading in _HEADINGS), *_list_rows(made)]
    # Figures end below each other; the last column is text.
    table = fit_table(rows, None, right=range(len(_HEADINGS) - 1))
    return [*map(join, table), "", *list_sentences(made)]


def _list_rows(report: ScaleReport) -> list[tuple[str, ...]]:
    """List the cells of the table, measured sizes before predicted ones."""

    rows: list[tuple[str, ...]] = []
    for one in report.measured:
        head = (str(one.run.nodes), str(one.run.ranks))
        if one.facts is None:
            rows.append((*head, "-", "-", "-", "-", "-", "not measured"))
            continue
        times = [format_number(1000 * value) for value in (one.facts.step_s, *one.facts.band_s)]
        how = "not trusted" if one.refused else "measured"
        rows.append((*head, *times, *_format_gain(one.speed_up, one.efficiency), how))
    for two in report.predicted:
        times = [format_number(1000 * value) for value in (two.step_s, two.low_s, two.high_s)]
        gain = _format_gain(two.speed_up, two.efficiency)
        rows.append((str(two.nodes), str(two.ranks), *times, *gain, "guess" if two.is_guess else "predicted"))
    return rows


def _format_gain(speed_up: float | None, efficiency: float | None) -> tuple[str, str]:
    if speed_up is None or efficiency is None:
        return "-", "-"
    return f"{speed_up:.2f}", f"{100 * efficiency:.0f} %"
