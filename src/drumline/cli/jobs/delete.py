"""``drumline job delete``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, confirm, find_job
from drumline.contract.errors import UsageError
from drumline.contract.words import format_size
from drumline.control.jobs import lookup
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.control.upkeep.deletion import Deletion


def _delete_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="jobs that have ended")
    parser.add_argument("-n", "--name", help="one more")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _delete(arguments: Namespace) -> int:
    from drumline.control.upkeep import deletion

    words = [*arguments.names, *([arguments.name] if arguments.name else [])]
    if not words:
        raise UsageError("a job's name is missing", "drumline job delete NAME")
    is_asked = not arguments.yes
    names = list(
        dict.fromkeys(find_job(word, "selected", is_final=True, is_asked=is_asked) for word in words)
    )
    planned = deletion.plan_deletion(names)
    for need in planned.needs:
        print(clean(f"warning: {need.what}"), file=sys.stderr)
    if not arguments.yes:
        hint = f"drumline job delete {' '.join(names)}{lookup.workspace_arguments()} --yes"
        if not confirm(f"Delete {_summarize(planned, names)}? This cannot be undone.", hint):
            return 1
    done = deletion.delete_jobs(names)
    print(clean(f"deleted {_summarize(done, names)}"), file=sys.stderr)
    return 0


def _summarize(planned: Deletion, names: list[str]) -> str:
    """Return the jobs in words: those that were named, the number of their steps, and the size."""
    shown = names[0] if len(names) == 1 else f"{len(names)} jobs"
    below = len(planned.jobs) - len(names)
    steps = "" if below <= 0 else " and its step" if below == 1 else f" and {below} steps or trials"
    return f"{'job ' if len(names) == 1 else ''}{shown}{steps} ({format_size(planned.size_bytes)})"


VERBS = {"delete": (_delete_arguments, _delete)}
