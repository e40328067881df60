"""Verbs of ``drumline job`` that end, wait for or change jobs: ``archive`` and ``restore``, ``cancel`` and ``preempt``,
``delete``, ``exec`` and ``wait``.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import (
    confirm,
    find_job,
    get_name,
)
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


def archive_job(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "archiving", changes=True)
    if not job_folders.set_archived(name, archived=True):
        print(f"job {name} is archived already", file=sys.stderr)
    return 0


def restore_job(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "restoring", changes=True)
    if not job_folders.set_archived(name, archived=False):
        print(f"job {name} is not archived", file=sys.stderr)
    return 0


# delete


def delete_jobs(arguments: Namespace) -> int:
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


def cancel_job(arguments: Namespace) -> int:
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


def preempt_job(arguments: Namespace) -> int:
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


def run_beside_rank(arguments: Namespace) -> int:
    from drumline.control.access import rank_commands

    sys.stdout.flush()
    return rank_commands.run_beside_rank(get_name(arguments, "job"), arguments.rank, arguments.program)


# wait


TIMED_OUT = 124


def wait_jobs(arguments: Namespace) -> int:
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


# update
