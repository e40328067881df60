"""``drumline job``: the verbs of ``az ml job``."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import (
    Parser,
    add_file,
    add_name,
    add_output,
    get_name,
    load_job_file,
    name_experiment,
    run_verb,
)
from drumline.cli.ways_to_run import add_ways_to_run, set_ways_to_run
from drumline.contract import status
from drumline.contract.errors import PlanError, Problem, SpecError, UsageError
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping

    from drumline.cli.arguments import Verbs

_INTERRUPTED = 130


def main(argv: list[str]) -> int:
    return run_verb("job", "Submit and manage jobs.", VERBS, argv)


# create


def _create_arguments(parser: Parser) -> None:
    add_file(parser)
    parser.add_argument("-n", "--name", help="the job's name; default: the file's, else a generated one")
    parser.add_argument("-s", "--stream", action="store_true", help="show its logs until it ends")
    parser.add_argument(
        "-e",
        "--web",
        action="store_true",
        help="open its page in a studio that runs; without one, print the path of its run folder",
    )
    parser.add_argument("-a", "--save-as", metavar="FILE", help="write the submitted job as YAML")
    parser.add_argument("--skip-validation", action="store_true", help="skip the validation of the whole job")
    add_ways_to_run(parser)
    add_output(parser)


def _create(arguments: Namespace) -> int:
    from drumline.cli.jobs.standby import Standby
    from drumline.control.facts import description
    from drumline.control.submission.planning import is_local, slow_code
    from drumline.control.submission.submit import submit

    slow_code.set(_print_slow)
    job = load_job_file(arguments.file, arguments.set)
    job.name = arguments.name or job.name
    set_ways_to_run(job, arguments)
    name_experiment(job)
    # Elsewhere the job's supervisor is not this machine's, and a pipeline or sweep has a driver.
    start = Standby() if job.type == "command" and is_local(job) else None
    try:
        submitted = submit(job, start=start, check=not arguments.skip_validation)
    finally:
        if start:
            start.dismiss()
    output.print_warnings(submitted.warnings)
    if arguments.save_as:
        job.dump(arguments.save_as, overwrite=True)
    if arguments.web:
        from drumline.cli.views.show import open_web_view

        open_web_view(submitted.name)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = follow_job(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        if output.is_for_people(arguments.output, arguments.query):
            from drumline.cli.views.show import print_page

            print_page(submitted.name)
        else:
            output.show(description.show_job(submitted.name), arguments.output, arguments.query)
    return code


def _print_slow(file_count: int) -> None:
    if sys.stderr.isatty():
        hint = "list what to leave out in .amlignore"
        print(f"copying the code: {file_count:,} files so far; {hint}", file=sys.stderr)


def follow_job(
    name: str, out: Any, ranks: str = "", prefix: bool | None = None, *, as_lines: bool = False
) -> int:
    """
    Show the logs until the job ends, or on a terminal the table of its steps or trials; return 0 if it completed, else
    1. Ctrl-C leaves the job running.
    """
    from drumline.control.jobs import lookup
    from drumline.control.logs import printer, stream

    folder = lookup.folder_of(name)
    try:
        if out.isatty() and os.path.exists(folder.graph) and not (as_lines or ranks) and _can_draw():
            from drumline.cli.views import live

            outcome = live.follow_parts(folder, out)
            ending = live.format_ending(folder, outcome)
        else:
            out.write(stream.header(folder))
            out.flush()
            shown = printer.LogView(out, prefix=prefix, progress=output.choose_progress())
            outcome = stream.follow(folder, shown, ranks)
            ending = stream.summary(folder, outcome, shown)
    except KeyboardInterrupt:
        print(
            f"\njob {name} is still running; to stop it: drumline job cancel {lookup.as_arguments(name)}",
            file=sys.stderr,
        )
        return _INTERRUPTED
    if out.isatty():
        from drumline.cli.colour import paint_ending

        ending = paint_ending(ending, out)
    out.write(ending)
    out.flush()
    return 0 if outcome.status == status.COMPLETED else 1


# stream


def _can_draw() -> bool:
    """Return whether the terminal has the control sequences that a table needs to be drawn over itself."""
    return os.environ.get("TERM") not in (None, "", "dumb")


def _stream_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--ranks", default="", help="show only these ranks: 0,3-5")
    parser.add_argument(
        "--prefix", action="store_true", default=None, help="begin every line with [RANK|node-N]"
    )
    parser.add_argument("--no-prefix", action="store_false", dest="prefix", help="begin no line with it")
    parser.add_argument(
        "--lines", action="store_true", help="show the lines of all steps or trials, not their table"
    )


def _stream(arguments: Namespace) -> int:
    return follow_job(
        get_name(arguments, "job"), sys.stdout, arguments.ranks, arguments.prefix, as_lines=arguments.lines
    )


# download, validate, update


def _download_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")
    parser.add_argument("--output-name", default="", help="only this named output; default: the artifacts")
    parser.add_argument("--all", action="store_true", help="artifacts and all named outputs")


def _download(arguments: Namespace) -> int:
    from drumline.control.jobs.download import download
    from drumline.control.jobs.lookup import folder_of
    from drumline.control.jobs.recovery import recover
    from drumline.control.progress_bar import ProgressBar

    name = get_name(arguments, "job", "downloading")
    recover(folder_of(name))
    with ProgressBar(interval_s=0.1) as bar:
        target = download(
            name, arguments.download_path, output=arguments.output_name, everything=arguments.all, bar=bar
        )
    print(clean(f"downloaded to {target}"), file=sys.stderr)
    return 0


def _validate_arguments(parser: Parser) -> None:
    add_file(parser)
    add_output(parser)


def _validate(arguments: Namespace) -> int:
    """Report Azure's verdict. Jobs that Azure accepts and ``create`` would refuse get a warning."""
    from drumline.control.submission import driven
    from drumline.spec.jobs.validate import validate

    job = load_job_file(arguments.file, arguments.set)
    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))
    warnings = list(result.warnings)
    try:
        warnings += driven.warnings_of(job)
    except (PlanError, SpecError) as error:
        for problem in error.problems or (Problem(error.message),):
            where = f"{problem.where}: " if problem.where else ""
            warnings.append(f"{where}create would refuse it: {problem.what}")
    output.print_warnings(warnings)
    output.show({"result": "Succeeded", "warnings": warnings}, arguments.output, arguments.query)
    return 0


def _update_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help="no field of a job is a list")
    parser.add_argument("--force-string", action="store_true", help="values are always text")
    parser.add_argument(
        "-e",
        "--web",
        action="store_true",
        help="open its page in a studio that runs; without one, print the path of its run folder",
    )
    add_output(parser)


def _update(arguments: Namespace) -> int:
    from drumline.cli.entity_flags import parse_edits
    from drumline.cli.views.show import show_job
    from drumline.control.facts import description
    from drumline.control.jobs import job_folders

    name = get_name(arguments, "job", "updating", changes=True)
    if arguments.add:
        raise UsageError("--add: no field that can be changed is a list", "--set tags.NAME=VALUE")
    changes = parse_edits(description.show_job(name, is_whole=True), arguments.set, arguments.remove)
    job_folders.edit(name, changes)
    return show_job(arguments)


# the verbs


def _in_module(module: str, verb: str) -> tuple[Callable[[Parser], None], Callable[[Any], int]]:
    """Return the arguments and the action of a verb whose module, below ``cli``, is imported on its first use."""

    def add_arguments(parser: Parser) -> None:
        _load(module)[verb][0](parser)

    def run(arguments: Namespace) -> int:
        return _load(module)[verb][1](arguments)

    return add_arguments, run


def _load(module: str) -> Mapping[str, tuple[Callable[[Parser], None], Callable[[Any], int]]]:
    verbs: Mapping[str, tuple[Callable[[Parser], None], Callable[[Any], int]]]
    verbs = import_module(f"drumline.cli.{module}").VERBS
    return verbs


VERBS: Verbs = {
    "create": ("submit a job file", _create_arguments, _create),
    "show": ("show a job", *_in_module("views.show", "show")),
    "stream": ("show the logs of its ranks until it ends", _stream_arguments, _stream),
    "logs": ("show chosen lines of its logs", *_in_module("views.logs", "logs")),
    "exec": ("run a command, or a shell, where one of its ranks runs", *_in_module("jobs.verbs", "exec")),
    "wait": ("wait for the end of jobs; exit with their exit code", *_in_module("jobs.verbs", "wait")),
    "open": ("open a folder of the job, or print its path", *_in_module("views.open", "open")),
    "list": ("list jobs, newest first", *_in_module("views.listing", "list")),
    "cancel": ("cancel a job", *_in_module("jobs.verbs", "cancel")),
    "preempt": ("preempt its nodes with notice; the job starts again", *_in_module("jobs.verbs", "preempt")),
    "rerun": ("submit an earlier job again, from what was stored of it", *_in_module("jobs.verbs", "rerun")),
    "download": ("copy a job's artifacts and outputs", _download_arguments, _download),
    "delete": ("delete ended jobs with their steps, outputs and logs", *_in_module("jobs.verbs", "delete")),
    "archive": ("hide a job from lists", *_in_module("jobs.verbs", "archive")),
    "restore": ("show an archived job in lists again", *_in_module("jobs.verbs", "restore")),
    "validate": ("check a job file without submitting it", _validate_arguments, _validate),
    "update": (
        "change display name, experiment, description, tags or properties",
        _update_arguments,
        _update,
    ),
    "metrics": (
        "show the metrics it has logged",
        *_in_module("views.metrics", "metrics"),
    ),
    "diff": ("show what differs between two jobs", *_in_module("views.diff", "diff")),
    "stacks": ("show the Python stack of each of its ranks", *_in_module("views.show", "stacks")),
    "top": ("show what its nodes and ranks use: CPU, memory, I/O, GPUs", *_in_module("views.top", "top")),
    "show-services": ("show the services of a job", *_in_module("views.show", "show-services")),
}
