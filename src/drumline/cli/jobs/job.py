"""``drumline job``: the verbs of ``az ml job``, and what each takes; their functions are in the modules beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli.arguments import add_file, add_name, add_output, add_set, add_ways_to_run, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from drumline.cli.arguments import Parser, Verbs


def main(argv: list[str]) -> int:
    return run_verb("job", "Submit and manage jobs.", VERBS, argv)


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


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument(
        "-e",
        "--web",
        action="store_true",
        help="open its page in a studio that runs; without one, print the path of its run folder",
    )
    parser.add_argument(
        "--timeline", action="store_true", help="show how it started, and how long each phase took"
    )
    parser.add_argument(
        "--attempt",
        type=int,
        help="with --timeline: the attempt, from 0, as messages count them; default: the latest",
    )
    add_output(parser)


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


def _logs_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--tail", type=_parse_count, metavar="N", help="only the last N lines of each rank")
    parser.add_argument(
        "--since", metavar="TIME", help="only lines since then: 10m, 2h, 2026-03-01T08:00, or a Unix time"
    )
    parser.add_argument(
        "--timestamps", action="store_true", help="begin each line with the time it was written"
    )
    parser.add_argument(
        "--grep", metavar="REGEX", help="only lines in which this regular expression is found"
    )
    parser.add_argument("--rank", "--ranks", default="", metavar="RANKS", help="only these ranks: 3,5 or 0-7")
    parser.add_argument(
        "--node", default="", metavar="NODES", help="only the ranks of these nodes: 1 or 0,2-3"
    )
    parser.add_argument(
        "--attempt",
        type=int,
        metavar="K",
        help="only this attempt, from 0, as messages count them; default: all",
    )
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        default=None,
        help="go on until the job ends; default: on a terminal",
    )
    parser.add_argument(
        "--no-follow", action="store_false", dest="follow", help="print what is there, and end"
    )
    parser.add_argument(
        "--prefix", action="store_true", default=None, help="begin every line with [RANK|node-N]"
    )
    parser.add_argument("--no-prefix", action="store_false", dest="prefix", help="begin no line with it")


def _parse_count(text: str) -> int:
    if text.isascii() and text.isdecimal():
        return int(text[:18])
    raise UsageError(f"--tail: {text!r} is not a number of lines", "--tail 50")


def _exec_arguments(parser: Parser) -> None:
    parser.usage = "%(prog)s NAME [--rank RANK] [-- COMMAND ...]"
    add_name(parser, "job")
    parser.add_argument("--rank", default="0", help="the rank: 3, or ps0 for a parameter server; default: 0")
    parser.set_defaults(program=[])


def _wait_arguments(parser: Parser) -> None:
    parser.add_argument(
        "given", nargs="*", default=[], metavar="NAME", help="the jobs' names, or give them with -n"
    )
    parser.add_argument("-n", "--name", action="append", default=[], help="a job's name")
    parser.add_argument("--timeout", metavar="TIME", help="wait no longer: 90s, 30m, 2h; then exit with 124")
    parser.add_argument("--any", action="store_true", help="wait for the first of them to end, not for all")
    add_output(parser, "print how each ended, in this format; default: a line each on standard error")


def _open_arguments(parser: Parser) -> None:
    parser.add_argument(
        "given",
        nargs="*",
        default=[],
        metavar="NAME [PLACE]",
        help="the job's name, and what of it to open: run, outputs, logs or code",
    )
    parser.add_argument("-n", "--name", help="the job's name")


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=int, help="default 50, on a terminal one screen")
    parser.add_argument(
        "--all-results",
        nargs="?",
        const="true",
        choices=("true", "false"),
        type=str.lower,
        help="list all jobs",
    )
    parser.add_argument("--all", action="store_const", const="true", dest="all_results", help="the same")
    parser.add_argument("--archived-only", action="store_true", help="list only archived jobs")
    parser.add_argument("--include-archived", action="store_true", help="list archived jobs too")
    parser.add_argument(
        "-p", "--parent-job-name", help="list the steps or trials of this job; default: jobs without a parent"
    )
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        metavar="STATUS",
        help="only jobs that are Failed,Running ...",
    )
    parser.add_argument(
        "--experiment", metavar="PATTERN", help="only jobs of these experiments, such as 'lr-*'"
    )
    parser.add_argument("--compute", metavar="PATTERN", help="only jobs on these computes")
    parser.add_argument(
        "--since", metavar="AGE", help="only jobs submitted since then: 30m, 2h, 7d, 2026-11-20"
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="KEY[=VALUE]",
        help="only jobs with this tag; can be repeated",
    )
    add_output(parser)


def _cancel_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--at-once", action="store_true", help="kill its ranks without a grace period")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its end")


def _preempt_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--node", type=int, help="only this node; default: all nodes of the job")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its ranks to end")


def _rerun_arguments(parser: Parser) -> None:
    text = "the earlier job: its name, a unique beginning of it, @last, -, or PIPELINE/STEP"
    parser.add_argument("given", nargs="?", metavar="NAME", help=text)
    parser.add_argument("-n", "--name", help="the name of the new job; default: a generated one")
    add_set(parser, "inputs.lr=0.01")
    parser.add_argument("--compute", metavar="NAME", help="run on this compute; default: the same as then")
    parser.add_argument(
        "--code",
        choices=("then", "now"),
        help="the code as it was stored then, or as it is now; default: then, or now if it was not stored",
    )
    parser.add_argument("-s", "--stream", action="store_true", help="show its logs until it ends")
    add_output(parser)


def _download_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")
    parser.add_argument("--output-name", default="", help="only this named output; default: the artifacts")
    parser.add_argument("--all", action="store_true", help="artifacts and all named outputs")


def _bundle_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-o", "--output", "--out", metavar="FILE", help="default: NAME-bundle.zip")


def _delete_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="jobs that have ended")
    parser.add_argument("-n", "--name", help="one more")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _archive_arguments(parser: Parser) -> None:
    add_name(parser, "job")


def _validate_arguments(parser: Parser) -> None:
    add_file(parser)
    add_output(parser)


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


def _metrics_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("others", nargs="*", metavar="NAME", help="more jobs, in the same table")
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


def _diff_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="a job's name, a unique beginning of it, @last, or -")
    parser.add_argument("b", metavar="B", help="the job that it is compared with")
    add_output(parser)


def _stacks_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-e", "--web", action="store_true", help="print the path of its run folder")
    add_output(parser)


def _top_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument(
        "--once", action="store_true", help="print one table and return; the default without a terminal"
    )
    parser.add_argument("--node", type=int, help="only this node and its ranks")
    add_output(parser)


def _services_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-i", "--node-index", type=int, default=0, help="the node; default 0")
    add_output(parser)


VERBS: Verbs = {
    "create": ("submit a job file", _create_arguments, "jobs.create.create"),
    "show": ("show a job", _show_arguments, "views.show.show"),
    "stream": ("show the logs of its ranks until it ends", _stream_arguments, "jobs.following.stream_job"),
    "logs": ("show chosen lines of its logs", _logs_arguments, "views.logs.show_logs"),
    "exec": (
        "run a command, or a shell, where one of its ranks runs",
        _exec_arguments,
        "jobs.verbs.run_beside_rank",
    ),
    "wait": ("wait for the end of jobs; exit with their exit code", _wait_arguments, "jobs.verbs.wait_jobs"),
    "open": ("open a folder of the job, or print its path", _open_arguments, "views.open.open_folder"),
    "list": ("list jobs, newest first", _list_arguments, "views.ps.list_jobs"),
    "cancel": ("cancel a job", _cancel_arguments, "jobs.verbs.cancel_job"),
    "preempt": (
        "preempt its nodes with notice; the job starts again",
        _preempt_arguments,
        "jobs.verbs.preempt_job",
    ),
    "rerun": (
        "submit an earlier job again, from what was stored of it",
        _rerun_arguments,
        "jobs.create.rerun",
    ),
    "download": ("copy a job's artifacts and outputs", _download_arguments, "views.open.download_job"),
    "bundle": (
        "write a zip file for a bug report: events, plan, logs, checks; no code, no data, no secrets",
        _bundle_arguments,
        "views.open.bundle_job",
    ),
    "delete": (
        "delete ended jobs with their steps, outputs and logs",
        _delete_arguments,
        "jobs.verbs.delete_jobs",
    ),
    "archive": ("hide a job from lists", _archive_arguments, "jobs.verbs.archive_job"),
    "restore": ("show an archived job in lists again", _archive_arguments, "jobs.verbs.restore_job"),
    "validate": ("check a job file without submitting it", _validate_arguments, "jobs.plan.validate"),
    "update": (
        "change display name, experiment, description, tags or properties",
        _update_arguments,
        "views.show.update_job",
    ),
    "metrics": (
        "show the metrics it has logged",
        _metrics_arguments,
        "views.metrics.show_metrics",
    ),
    "diff": ("show what differs between two jobs", _diff_arguments, "views.diff.show_differences"),
    "stacks": ("show the Python stack of each of its ranks", _stacks_arguments, "views.show.show_stacks"),
    "top": (
        "show what its nodes and ranks use: CPU, memory, I/O, GPUs",
        _top_arguments,
        "views.top.show_usage",
    ),
    "show-services": ("show the services of a job", _services_arguments, "views.show.show_services"),
}
