"""``drumline job logs``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name
from drumline.contract.errors import UsageError
from drumline.control import times
from drumline.control.jobs import lookup
from drumline.control.jobs.job_outcome import explain_pruned
from drumline.control.jobs.recovery import recover
from drumline.control.logs import view
from drumline.control.logs.printer import LogChoice, LogView
from drumline.control.logs.stream import ending, follow

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.contract.folder import RunFolder
    from drumline.control.logs.matching import Matcher

_INTERRUPTED = 130


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


def _logs(arguments: Namespace) -> int:
    folder = lookup.folder_of(get_name(arguments, "job"))
    if arguments.grep is None:
        return _show(arguments, folder, None)
    from drumline.control.logs.matching import Matcher

    with Matcher(arguments.grep) as matcher:
        return _show(arguments, folder, matcher)


def _show(arguments: Namespace, folder: RunFolder, matcher: Matcher | None) -> int:
    choice = _choose(arguments, folder)._replace(matcher=matcher)
    shown = LogView(sys.stdout, choice, timestamps=arguments.timestamps, prefix=arguments.prefix)
    if not _follows(arguments, folder):
        view.print_logs(folder, shown)
        pruned = explain_pruned(recover(folder), ("user_logs",))
        why = f"the logs were {pruned}" if pruned else view.explain_link(folder)
        if shown.is_empty and (why or sys.stderr.isatty()):
            print(why or "no lines to show", file=sys.stderr)
        return 0
    try:
        outcome = follow(folder, shown)
    except KeyboardInterrupt:
        named = lookup.as_arguments(folder.name)
        print(
            f"\njob {folder.name} is still running; to stop it: drumline job cancel {named}", file=sys.stderr
        )
        return _INTERRUPTED
    sys.stderr.write(ending(folder, outcome))
    return 0


def _follows(arguments: Namespace, folder: RunFolder) -> bool:
    if arguments.attempt is not None:
        if arguments.follow:
            raise UsageError(
                "--attempt and --follow exclude each other", "leave out --attempt to follow the latest"
            )
        return False
    if arguments.follow is False:
        return False
    return (arguments.follow or sys.stdout.isatty()) and not recover(folder).is_final


def _choose(arguments: Namespace, folder: RunFolder) -> LogChoice:
    since = times.parse_moment(arguments.since, "--since") if arguments.since else 0.0
    choice = LogChoice(attempt=arguments.attempt, tail=arguments.tail, since=since)
    return view.check_choice(folder, choice, arguments.rank, arguments.node)


VERBS = {"logs": (_logs_arguments, _logs)}
