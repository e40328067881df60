"""Verbs of ``drumline job`` that end, wait for, change or run jobs again: ``archive`` and ``restore``, ``cancel`` and
``preempt``, ``delete``, ``exec``, ``rerun`` and ``wait``.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from drumline.cli import output, variables
from drumline.cli.arguments import (
    Parser,
    add_name,
    add_output,
    add_set,
    confirm,
    find_job,
    get_name,
    parse_overrides,
)
from drumline.cli.jobs.standby import Standby
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.words import format_size
from drumline.control import times
from drumline.control.jobs import job_folders, lookup, recovery
from drumline.control.jobs.ending import JobEnd, cancel, preempt, wait_for_end, wait_for_jobs
from drumline.control.jobs.job_outcome import explain_stop
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.control.upkeep.pruning import Deletion


def _archive_arguments(parser: Parser) -> None:
    add_name(parser, "job")


def _archive(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "archiving", changes=True)
    if not job_folders.set_archived(name, archived=True):
        print(f"job {name} is archived already", file=sys.stderr)
    return 0


def _restore(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "restoring", changes=True)
    if not job_folders.set_archived(name, archived=False):
        print(f"job {name} is not archived", file=sys.stderr)
    return 0


# delete


def _delete_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="jobs that have ended")
    parser.add_argument("-n", "--name", help="one more")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _delete(arguments: Namespace) -> int:
    from drumline.control.upkeep import pruning

    words = [*arguments.names, *([arguments.name] if arguments.name else [])]
    if not words:
        raise UsageError("a job's name is missing", "drumline job delete NAME")
    is_asked = not arguments.yes
    names = list(
        dict.fromkeys(find_job(word, "selected", is_final=True, is_asked=is_asked) for word in words)
    )
    planned = pruning.plan_deletion(names)
    for need in planned.needs:
        print(clean(f"warning: {need.what}"), file=sys.stderr)
    if not arguments.yes:
        hint = f"drumline job delete {' '.join(names)}{lookup.workspace_arguments()} --yes"
        if not confirm(f"Delete {_summarize(planned, names)}? This cannot be undone.", hint):
            return 1
    done = pruning.delete_jobs(names)
    print(clean(f"deleted {_summarize(done, names)}"), file=sys.stderr)
    return 0


def _summarize(planned: Deletion, names: list[str]) -> str:
    """Return the jobs in words: those that were named, the number of their steps, and the size."""
    shown = names[0] if len(names) == 1 else f"{len(names)} jobs"
    below = len(planned.jobs) - len(names)
    steps = "" if below <= 0 else " and its step" if below == 1 else f" and {below} steps or trials"
    return f"{'job ' if len(names) == 1 else ''}{shown}{steps} ({format_size(planned.size_bytes)})"


# cancel and preempt


_EXPLAIN_AFTER_S = 2.0
"""How long a job may take to end before we ask why."""


def _cancel_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--at-once", action="store_true", help="kill its ranks without a grace period")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its end")


def _cancel(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "canceling", is_final=True)
    asked = cancel(name, at_once=arguments.at_once)
    if asked and not arguments.no_wait:
        folder = lookup.folder_of(name)
        if not wait_for_end(folder, time.monotonic() + _EXPLAIN_AFTER_S):
            why = explain_stop(folder)
            if why:
                print(f"job {name} cannot end: {why}", file=sys.stderr)
            wait_for_end(folder)
    return _print_status(name)


def _preempt_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--node", type=int, help="only this node; default: all nodes of the job")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its ranks to end")


def _preempt(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "preempting", is_final=True)
    attempt = preempt(name, arguments.node)
    if not arguments.no_wait:
        wait_for_end(lookup.folder_of(name), of_attempt=attempt)
    outcome = recovery.recover(lookup.folder_of(name))
    if len(outcome.attempts) <= attempt:
        _print_status(name)
        return 1 if outcome.is_final else 0
    ended = outcome.attempts[attempt]
    print(clean(f"job {name}: {ended.reason}; it is {outcome.status}"), file=sys.stderr)
    return 0 if ended.was_preempted else 1


def _print_status(name: str) -> int:
    outcome = recovery.recover(lookup.folder_of(name))
    reason = f": {outcome.reason}" if outcome.reason else ""
    print(clean(f"job {name} is {outcome.status}{reason}"), file=sys.stderr)
    return 0


# exec


def _exec_arguments(parser: Parser) -> None:
    parser.usage = "%(prog)s NAME [--rank RANK] [-- COMMAND ...]"
    add_name(parser, "job")
    parser.add_argument("--rank", default="0", help="the rank: 3, or ps0 for a parameter server; default: 0")
    parser.set_defaults(program=[])


def _exec(arguments: Namespace) -> int:
    from drumline.control.access import rank_commands

    sys.stdout.flush()
    return rank_commands.run_beside_rank(get_name(arguments, "job"), arguments.rank, arguments.program)


# wait


TIMED_OUT = 124


def _wait_arguments(parser: Parser) -> None:
    parser.add_argument(
        "given", nargs="*", default=[], metavar="NAME", help="the jobs' names, or give them with -n"
    )
    parser.add_argument("-n", "--name", action="append", default=[], help="a job's name")
    parser.add_argument("--timeout", metavar="TIME", help="wait no longer: 90s, 30m, 2h; then exit with 124")
    parser.add_argument("--any", action="store_true", help="wait for the first of them to end, not for all")
    add_output(parser, "print how each ended, in this format; default: a line each on standard error")


def _wait(arguments: Namespace) -> int:
    names = list(dict.fromkeys(map(find_job, [*arguments.given, *arguments.name])))
    if not names:
        raise UsageError("a job's name is missing", "drumline job wait NAME")
    seconds = times.parse_duration(arguments.timeout, "--timeout") if arguments.timeout else None
    folders = {name: lookup.folder_of(name) for name in names}
    is_explicit = arguments.output or arguments.query
    ends: dict[str, JobEnd] = {}
    deadline = None if seconds is None else time.monotonic() + seconds
    for end in wait_for_jobs(folders.values(), deadline):
        ends[end.name] = end
        if not is_explicit:
            print(_describe(end), file=sys.stderr)
        if arguments.any:
            break
    if is_explicit:
        output.show([end._asdict() for end in ends.values()], arguments.output, arguments.query)
    waiting = [folder.name for folder in folders.values() if folder.name not in ends]
    if waiting and not (arguments.any and ends):
        print(f"still under way after {arguments.timeout}: {', '.join(waiting)}", file=sys.stderr)
        return TIMED_OUT
    codes = [ends[folder.name].exit_code for folder in folders.values() if folder.name in ends]
    return next((code for code in codes if code), 0)


def _describe(end: JobEnd) -> str:
    if end.status == status.COMPLETED:
        return f"job {end.name} completed"
    return clean(f"job {end.name} {end.status.lower()} (exit code {end.exit_code}): {end.reason}")


# rerun


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


def _rerun(arguments: Namespace) -> int:
    from drumline.cli.jobs.job import follow_job
    from drumline.control.facts import description
    from drumline.control.jobs import naming
    from drumline.control.submission.planning import is_local
    from drumline.control.submission.rerun import prepare_rerun
    from drumline.control.submission.submit import submit

    # As every other verb takes it, -n alone is the job itself.
    word, new_name = arguments.given or arguments.name, arguments.name if arguments.given else None
    if not word:
        raise UsageError("a job's name is missing", "drumline job rerun NAME")
    variables.hide_set_values(arguments.set)
    changes = parse_overrides(arguments.set)
    name = find_job(word)
    reused = naming.explain_reused(word)
    again = prepare_rerun(name, changes, compute=arguments.compute, code=arguments.code, new_name=new_name)
    for note in filter(None, (reused, *again.notes)):
        print(f"note: {clean(note)}", file=sys.stderr)
    start = Standby() if again.job.type == "command" and is_local(again.job) else None
    try:
        submitted = submit(again.job, again.run, start=start)
    finally:
        if start:
            start.dismiss()
    if again.run.in_place and not (again.job.drumline or {}).get(
        "secrets"
    ):  # Whose files may lie in the folder.
        from drumline.control.jobs import stored_code

        stored_code.store_code(submitted.folder, again.run.in_place)
    output.print_warnings(submitted.warnings)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = follow_job(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        output.show(description.show_job(submitted.name), arguments.output, arguments.query)
    return code


VERBS = {
    "archive": (_archive_arguments, _archive),
    "restore": (_archive_arguments, _restore),
    "cancel": (_cancel_arguments, _cancel),
    "preempt": (_preempt_arguments, _preempt),
    "delete": (_delete_arguments, _delete),
    "exec": (_exec_arguments, _exec),
    "rerun": (_rerun_arguments, _rerun),
    "wait": (_wait_arguments, _wait),
}
