"""``drumline tune``: a job with several settings, until the fastest is found."""

from __future__ import annotations

import copy
import os
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
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from drumline.control.measure.tune_sweep import TuneRequest
    from drumline.plan.search.tuning import Tuning

_INTERRUPTED = 130


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline tune",
        description="Run a job with several settings, each until a few steps are measured, the best ones longer, and "
        "write the job file of the fastest. The same command goes on with a tuning that is under way.",
    )
    _add_arguments(parser)
    add_ways_to_run(parser)
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _tune(arguments)


def _add_arguments(parser: Parser) -> None:
    add_file(parser)
    add = parser.add_argument
    add(
        "--for",
        dest="goal",
        choices=("throughput", "latency"),
        required=True,
        help="the most samples (or steps) per second, or the shortest step",
    )
    add(
        "--over",
        action="append",
        default=[],
        metavar="SETTING[=A|B],...",
        help="what to try: procs, threads, workers, batch, buckets, env:NAME=a|b, or an input of the job with values; "
        "default: procs,threads",
    )
    add("--steps", type=int, default=60, metavar="N", help="steps to measure of the last two; default: 60")
    add(
        "--strong",
        action="store_true",
        help="the script divides one batch among all ranks; default: each rank has a batch of its own",
    )
    add(
        "--at-once",
        type=int,
        metavar="N",
        help="settings measured at a time; default: 1 on this machine, all on a cluster",
    )
    add(
        "--trial-timeout",
        type=int,
        default=600,
        metavar="S",
        help="the time limit of one run in seconds; default: 600",
    )
    add("--exhaustive", action="store_true", help="measure every setting over all steps")
    add("--again", action="store_true", help="measure anew what was measured before")
    add("--write", metavar="FILE", help="the job file that won; default: NAME.tuned.yml beside the job file")


def _tune(arguments: Namespace) -> int:
    from drumline.control.jobs import lookup
    from drumline.control.measure import tune_results, tune_sweep

    if arguments.file in ("-", "/dev/stdin"):
        raise UsageError("the file that won is made of the job file, which needs a name", "-f FILE")
    output.check_query(arguments.query)
    request = _make_request(arguments)
    tune_sweep.check_request(request)
    job = load_job_file(arguments.file, arguments.set)
    path = arguments.write or f"{os.path.splitext(arguments.file)[0]}.tuned.yml"
    tune_results.check_target(path, is_named=bool(arguments.write), source=arguments.file)
    # The file that won has none of what this command alone was given.
    measured = copy.deepcopy(job)
    set_ways_to_run(measured, arguments)
    started = tune_sweep.start(tune_sweep.make_sweep(measured, request), again=arguments.again)
    output.print_warnings(started.warnings)
    tuning = tune_results.read_tuning(started.folder)
    _tell(_describe_start(started.folder.name, started.how, tuning))
    try:
        outcome = tune_sweep.follow(started.folder, _tell)
    except KeyboardInterrupt:
        name = started.folder.name
        stop = f"drumline job cancel {name}{lookup.workspace_arguments()}"
        _tell(f"job {name} goes on, and the same command follows it; to stop it: {stop}")
        return _INTERRUPTED
    values = tune_results.to_values(started.folder, outcome, tuning)
    has_won = values["best"] is not None and outcome.status == "Completed"
    failure = None
    if has_won:
        try:
            path = arguments.write or tune_results.choose_target(path, started.folder.name, _tell)
            tune_results.write_winner(job, tuning, values, path)
        except (OSError, UsageError) as error:
            # Which must not cost what was measured for minutes.
            failure = error
    _show(arguments, {**values, "file": path if has_won and not failure else None})
    if failure:
        raise failure
    return 0 if has_won else outcome.exit_code or 1


def _make_request(arguments: Namespace) -> TuneRequest:
    from drumline.control.measure.tune_sweep import TuneRequest

    return TuneRequest(
        arguments.goal,
        tuple(arguments.over),
        arguments.steps,
        arguments.strong,
        arguments.at_once,
        arguments.trial_timeout,
        arguments.exhaustive,
    )


def _describe_start(name: str, how: str, tuning: Tuning) -> str:
    from drumline.control.measure.tune_results import name_unit
    from drumline.control.measure.tune_sweep import GOES_ON, WAS_MEASURED

    if how == WAS_MEASURED:
        return f"job {name} was measured before; --again measures it anew"
    if how == GOES_ON:
        return f"job {name} is under way, and goes on"
    rungs = ", then ".join(f"{rung.most} over {rung.steps} steps" for rung in tuning.rungs)
    return f"job {name}: settings compared by {name_unit(tuning)}, {rungs}"


def _show(arguments: Namespace, values: Mapping[str, Any]) -> None:
    from drumline.control.measure import tune_results

    if not output.is_for_people(arguments.output, arguments.query):
        output.show(values, arguments.output, arguments.query)
        return
    rows = [[clean(cell) for cell in line] for line in tune_results.list_lines(values)]
    # Figures end where their headings do; the last column is text.
    for cells in fit_table(rows, None, right=range(len(rows[0]) - 1)):
        print(join(cells))
    _print_end(values)


def _print_end(values: Mapping[str, Any]) -> None:
    print(f"\n{clean(values['reason'])}")
    if values["file"]:
        print(f"written: {clean(values['file'])}")


def _tell(text: str) -> None:
    output.tell(f"tune: {text}")
