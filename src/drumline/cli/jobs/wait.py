"""``drumline job wait``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_output, find_job
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.control import times
from drumline.control.jobs import lookup
from drumline.control.jobs.waiting import JobEnd, wait_for_jobs
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

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


VERBS = {"wait": (_wait_arguments, _wait)}
