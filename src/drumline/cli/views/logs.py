"""``drumline job logs``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import get_name
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


def show_logs(arguments: Namespace) -> int:
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
