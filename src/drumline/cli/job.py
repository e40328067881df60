"""``drumline job``: the verbs of ``az ml job``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import (
    Parser,
    add_file,
    add_name,
    add_output,
    add_warm,
    load,
    name_experiment,
    name_of,
    run_verb,
    set_warm,
)
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

_LIST_COLUMNS = ("name", "status", "display_name", "experiment_name", "created")
_LISTED = 50
_INTERRUPTED = 130
_SILENT_S = 2.0
"""How long a job may take to end before it is looked whether anything can end it."""


def main(argv: list[str]) -> int:
    return run_verb("job", "Submit and look after jobs.", VERBS, argv)


def _name(parser: Parser) -> None:
    add_name(parser, "job")


def _name_of(arguments: Namespace) -> str:
    return name_of(arguments, "job")


# create


def _create_arguments(parser: Parser) -> None:
    add_file(parser)
    parser.add_argument("-n", "--name", help="the job's name; default: the file's, or a new one")
    parser.add_argument("-s", "--stream", action="store_true", help="show its logs until it has ended")
    parser.add_argument("-e", "--web", action="store_true", help="print where its run folder is")
    parser.add_argument("-a", "--save-as", metavar="FILE", help="write the submitted job as YAML")
    parser.add_argument(
        "--skip-validation", action="store_true", help="leave out the checks of the whole job"
    )
    add_warm(parser, "the file's, else DRUMLINE_WARM, else auto")
    add_output(parser)


def _create(arguments: Namespace) -> int:
    from drumline.cli.supervise import Standby
    from drumline.control import jobs
    from drumline.control.submit import is_local, slow_code, submit

    slow_code.set(_say_slow)
    job = load(arguments.file, arguments.set)
    job.name = arguments.name or job.name
    if arguments.warm:
        set_warm(job, arguments.warm)
    name_experiment(job)
    # Elsewhere the job's supervisor is not this machine's, and a pipeline or sweep has a driver.
    start = Standby() if job.type == "command" and is_local(job) else None
    submitted = submit(job, start=start, check=not arguments.skip_validation)
    _warn(submitted.warnings)
    if arguments.save_as:
        job.dump(arguments.save_as, overwrite=True)
    if arguments.web:
        print(f"file://{submitted.folder.path}", file=sys.stderr)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = _follow(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        output.show(jobs.describe(submitted.name), arguments.output, arguments.query)
    return code


def _warn(warnings: Any) -> None:
    from drumline.control.terminal import clean

    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


def _say_slow(file_count: int) -> None:
    if sys.stderr.isatty():
        hint = ".amlignore says what to leave out"
        print(f"taking the code: {file_count:,} files so far; {hint}", file=sys.stderr)


def _follow(name: str, out: Any, ranks: str = "", prefix: bool | None = None) -> int:
    """0 when the job completed, 1 when not; Ctrl-C leaves the job running."""
    from drumline.contract import status
    from drumline.control import jobs, stream

    folder = jobs.folder_of(name)
    try:
        out.write(stream.header(folder))
        out.flush()
        show = stream.Show(ranks, prefix)
        outcome = stream.follow(folder, out, show)
    except KeyboardInterrupt:
        print(f"\njob {name} goes on; drumline job cancel {jobs.as_arguments(name)} ends it", file=sys.stderr)
        return _INTERRUPTED
    out.write(stream.summary(folder, outcome, show))
    out.flush()
    return 0 if outcome.status == status.COMPLETED else 1


# show, stream, list


def _show_arguments(parser: Parser) -> None:
    _stacks_arguments(parser)
    parser.add_argument("--timeline", action="store_true", help="how it started, and what took how long")
    parser.add_argument("--attempt", type=int, help="with --timeline: from 0; default: the latest")


def _show(arguments: Namespace) -> int:
    if arguments.timeline:
        if arguments.web:
            raise UsageError("--timeline and --web exclude each other")
        return _timeline(arguments)
    if arguments.attempt is not None:
        raise UsageError("--attempt says of which attempt --timeline is", "add --timeline")
    return _show_all(arguments)


def _timeline(arguments: Namespace) -> int:
    from drumline.control import timeline, timeline_text

    told = timeline.of(_name_of(arguments), arguments.attempt)
    if arguments.output not in (None, "table") or arguments.query:
        output.show(told, arguments.output, arguments.query)
        return 0
    print(timeline_text.of(told), end="")
    return 0


def _show_all(arguments: Namespace) -> int:
    from drumline.control import jobs

    described = jobs.describe(_name_of(arguments))
    if arguments.web:
        print(described["services"]["Studio"]["endpoint"], file=sys.stderr)
    output.show(described, arguments.output, arguments.query)
    return 0


def _stream_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--ranks", default="", help="show only these: 0,3-5")
    parser.add_argument("--prefix", action="store_true", default=None, help="[RANK|node-N] before every line")
    parser.add_argument("--no-prefix", action="store_false", dest="prefix")


def _stream(arguments: Namespace) -> int:
    return _follow(_name_of(arguments), sys.stdout, arguments.ranks, arguments.prefix)


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=int, help=f"default {_LISTED}")
    parser.add_argument("--all-results", nargs="?", const="true", choices=("true", "false"), type=str.lower)
    parser.add_argument("--archived-only", action="store_true")
    parser.add_argument("--include-archived", action="store_true")
    parser.add_argument(
        "-p", "--parent-job-name", help="the steps or trials of this one; default: jobs of no other"
    )
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control import jobs

    if arguments.archived_only and arguments.include_archived:
        raise UsageError("--archived-only and --include-archived exclude each other")
    archived = True if arguments.archived_only else None if arguments.include_archived else False
    found = jobs.names(archived=archived, parent=arguments.parent_job_name or "")
    names = _first(found, arguments)
    described = [{**job, "created": job["creation_context"]["created_at"]} for job in jobs.described(names)]
    output.show(described, arguments.output, arguments.query, _LIST_COLUMNS)
    if not described:
        _say_elsewhere(jobs.counts_elsewhere() if not jobs.all_names() else {})
    return 0


def _first(found: list[str], arguments: Namespace) -> list[str]:
    """As many as were asked for. Nobody asked for the default, so what it leaves out is said."""
    if arguments.all_results == "true":
        return found
    if arguments.max_results is not None:
        return found[: arguments.max_results] if arguments.max_results >= 0 else found
    if len(found) > _LISTED:
        print(f"showing {_LISTED} of {len(found)} jobs; --all-results shows all", file=sys.stderr)
    return found[:_LISTED]


def _say_elsewhere(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        jobs = "1 job" if count == 1 else f"{count} jobs"
        where = (
            f"workspace {name!r} has {jobs}: add -w {name}" if name else f"{jobs} in no workspace: add -w ''"
        )
        print(f"no jobs here; {where}", file=sys.stderr)


# cancel, download, archive, restore, validate, update, show-services


def _cancel_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--at-once", action="store_true", help="without the grace period")
    parser.add_argument("--no-wait", action="store_true", help="return before it has ended")


def _cancel(arguments: Namespace) -> int:
    import time

    from drumline.control import jobs
    from drumline.control.cancel import cancel
    from drumline.control.follow import wait_for_end

    name = _name_of(arguments)
    asked = cancel(name, at_once=arguments.at_once)
    if asked and not arguments.no_wait:
        folder = jobs.folder_of(name)
        if not wait_for_end(folder, time.monotonic() + _SILENT_S):
            why = jobs.held_up(folder)
            if why:
                print(f"job {name} cannot end: {why}", file=sys.stderr)
            wait_for_end(folder)
    return _say_status(name)


def _preempt_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--node", type=int, help="only this one; default: all of the job's")
    parser.add_argument("--no-wait", action="store_true", help="return before its ranks have ended")


def _preempt(arguments: Namespace) -> int:
    from drumline.control import jobs
    from drumline.control.follow import wait_for_end
    from drumline.control.preempt import preempt
    from drumline.control.terminal import clean

    name = _name_of(arguments)
    attempt = preempt(name, arguments.node)
    if not arguments.no_wait:
        wait_for_end(jobs.folder_of(name), of_attempt=attempt)
    outcome = jobs.outcome_of(jobs.folder_of(name))
    if len(outcome.attempts) <= attempt:
        _say_status(name)
        return 1 if outcome.is_final else 0
    ended = outcome.attempts[attempt]
    print(clean(f"job {name}: {ended.reason}; it is {outcome.status}"), file=sys.stderr)
    return 0 if ended.was_preempted else 1


def _say_status(name: str) -> int:
    from drumline.control import jobs
    from drumline.control.terminal import clean

    outcome = jobs.outcome_of(jobs.folder_of(name))
    reason = f": {outcome.reason}" if outcome.reason else ""
    print(clean(f"job {name} is {outcome.status}{reason}"), file=sys.stderr)
    return 0


def _download_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")
    parser.add_argument("--output-name", default="", help="one named output; default: the artifacts")
    parser.add_argument("--all", action="store_true", help="artifacts and all named outputs")


def _download(arguments: Namespace) -> int:
    from drumline.control.download import download
    from drumline.control.terminal import clean

    name = _name_of(arguments)
    target = download(name, arguments.download_path, output=arguments.output_name, everything=arguments.all)
    print(clean(f"downloaded to {target}"), file=sys.stderr)
    return 0


def _archive(arguments: Namespace) -> int:
    from drumline.control import jobs

    jobs.archive(_name_of(arguments))
    return 0


def _restore(arguments: Namespace) -> int:
    from drumline.control import jobs

    jobs.restore(_name_of(arguments))
    return 0


def _validate_arguments(parser: Parser) -> None:
    add_file(parser)
    add_output(parser)


def _validate(arguments: Namespace) -> int:
    """Azure's verdict; what it accepts and no machine could run is a warning here, and refused by ``create``."""
    from drumline.contract.errors import PlanError, Problem, SpecError
    from drumline.control import submit
    from drumline.control.driver import start
    from drumline.spec.validate import validate

    job = load(arguments.file, arguments.set)
    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))
    warnings = list(result.warnings)
    try:
        if job.type in ("command", "parallel"):
            warnings += submit.plan(job, check=False).warnings
        else:
            warnings += start.warnings_of(job)
    except (PlanError, SpecError) as error:
        for problem in error.problems or (Problem(error.message),):
            where = f"{problem.where}: " if problem.where else ""
            warnings.append(f"{where}create would refuse it: {problem.what}")
    _warn(warnings)
    output.show({"result": "Succeeded", "warnings": warnings}, arguments.output, arguments.query)
    return 0


def _stacks_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-e", "--web", action="store_true", help="print where its run folder is")
    add_output(parser)


def _stacks(arguments: Namespace) -> int:
    from drumline.control import stacks

    answer = stacks.ask(_name_of(arguments))
    if arguments.output not in (None, "table") or arguments.query:
        output.show(answer, arguments.output, arguments.query)
        return 0
    print(stacks.for_people(answer), end="")
    return 0


def _top_arguments(parser: Parser) -> None:
    from drumline.cli import top

    top.add_arguments(parser)


def _top(arguments: Namespace) -> int:
    from drumline.cli import top

    return top.top(_name_of(arguments), arguments)


def _metrics_arguments(parser: Parser) -> None:
    from drumline.cli import metrics

    metrics.arguments(parser)


def _metrics(arguments: Namespace) -> int:
    from drumline.cli import metrics

    return metrics.run(arguments)


def _update_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help="no field of a job is a list")
    parser.add_argument("--force-string", action="store_true", help="values are text in any case")
    parser.add_argument("-e", "--web", action="store_true", help="print where its run folder is")
    add_output(parser)


def _update(arguments: Namespace) -> int:
    from drumline.cli.edits import changes_of
    from drumline.control import jobs

    name = _name_of(arguments)
    if arguments.add:
        raise UsageError("--add: no field that can be changed is a list", "--set tags.NAME=VALUE")
    changes = changes_of(jobs.describe(name), arguments.set, arguments.remove)
    jobs.edit(name, changes)
    return _show_all(arguments)


def _services_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-i", "--node-index", type=int, default=0)
    add_output(parser)


def _services(arguments: Namespace) -> int:
    from drumline.control import jobs

    output.show(jobs.services(_name_of(arguments)), arguments.output, arguments.query)
    return 0


VERBS: dict[str, tuple[str, Callable[[Parser], None], Callable[[Any], int]]] = {
    "create": ("submit a job file", _create_arguments, _create),
    "show": ("everything known of a job", _show_arguments, _show),
    "stream": ("the logs of its ranks, until it has ended", _stream_arguments, _stream),
    "list": ("the jobs there are, newest first", _list_arguments, _list),
    "cancel": ("end a job", _cancel_arguments, _cancel),
    "preempt": ("take its nodes away with notice; it is started again", _preempt_arguments, _preempt),
    "download": ("copy what a job left", _download_arguments, _download),
    "archive": ("hide a job from lists", _name, _archive),
    "restore": ("show an archived job in lists again", _name, _restore),
    "validate": ("check a job file, without submitting it", _validate_arguments, _validate),
    "update": (
        "change display name, experiment, description, tags or properties",
        _update_arguments,
        _update,
    ),
    "metrics": ("what it has logged, as curves or figures", _metrics_arguments, _metrics),
    "stacks": ("where each of its ranks is now, by its Python stack", _stacks_arguments, _stacks),
    "top": ("what its nodes and ranks use: CPU, memory, I/O, GPUs", _top_arguments, _top),
    "show-services": ("the services of a job", _services_arguments, _services),
}
