"""``drumline prune``: remove old jobs, and what nothing needs any more."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, confirm, enter_workspace
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.words import format_age, format_count, format_size
from drumline.control.terminal import clean
from drumline.control.times import parse_age, utc
from drumline.control.upkeep import pruning

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from drumline.control.upkeep.pruning import KeptJob, Pruned, PrunedJob, PruneFilter

_MOST_SHOWN = 20
_NAMES = {"data": ("downloaded file", "downloaded files")}
"""Of kinds that are not named by a noun in the plural."""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline prune",
        description="Remove jobs that ended long ago, and the snapshots, environments, images and downloaded data "
        "that nothing needs any more. Jobs that have not ended, and what they use, stay.",
    )
    parser.add_argument(
        "--older-than", metavar="TIME", help="needed: how long ago a job ended, or data was used, such as 30d"
    )
    parser.add_argument(
        "--keep-outputs",
        action="store_true",
        help="keep the jobs with their outputs and metrics; remove their logs and copies of code and inputs",
    )
    parser.add_argument(
        "--only-outputs",
        action="store_true",
        help="keep the jobs with logs and metrics; remove their outputs",
    )
    parser.add_argument(
        "--status",
        action="extend",
        nargs="+",
        default=[],
        metavar="STATUS",
        help="only jobs that ended as Completed, Failed or Canceled",
    )
    parser.add_argument("--experiment", default="", metavar="NAME", help="only jobs of this experiment")
    parser.add_argument(
        "--include-archived", action="store_true", help="archived jobs too, which stay otherwise"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be removed, and remove nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    arguments.words = argv
    with enter_workspace(arguments.workspace_name):
        return _prune(arguments)


def _prune(arguments: Namespace) -> int:
    wanted = _read_filter(arguments)
    choice = pruning.choose(wanted)
    found = pruning.measure(wanted, choice)
    is_page = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    if arguments.dry_run:
        _show(found, arguments, is_page=is_page, is_done=False)
        return 0
    if not found.is_empty and not arguments.yes:
        print(_format(found, arguments), end="", file=sys.stderr)
        if not confirm(
            "Remove them? This cannot be undone.", "drumline prune ... --yes, or --dry-run to see"
        ):
            print("nothing was removed", file=sys.stderr)
            return 1
    done = pruning.prune(wanted, choice) if not found.is_empty else choice
    _show(found._replace(choice=done), arguments, is_page=is_page, is_done=True)
    return 0


def _read_filter(arguments: Namespace) -> PruneFilter:
    if arguments.older_than is None:
        raise UsageError("--older-than is missing", "drumline prune --older-than 30d --dry-run")
    if arguments.keep_outputs and arguments.only_outputs:
        raise UsageError("--keep-outputs and --only-outputs exclude each other")
    parts = (
        pruning.KEEP_OUTPUTS
        if arguments.keep_outputs
        else pruning.ONLY_OUTPUTS
        if arguments.only_outputs
        else pruning.WHOLE
    )
    statuses = frozenset(_read_status(word) for text in arguments.status for word in text.split(",") if word)
    age = parse_age(arguments.older_than, "--older-than")
    return pruning.PruneFilter(age, statuses, arguments.experiment, arguments.include_archived, parts)


def _read_status(word: str) -> str:
    for known in sorted(status.TERMINAL):
        if word.lower() == known.lower():
            return known
    ended = ", ".join(sorted(status.TERMINAL))
    raise UsageError(f"--status: no job ends as {word!r}", f"one of {ended}")


def _show(found: Pruned, arguments: Namespace, *, is_page: bool, is_done: bool) -> None:
    if arguments.query or not is_page:
        output.show(_describe(found, is_done=is_done), arguments.output, arguments.query)
    elif is_done and not found.is_empty:
        sys.stdout.write(f"removed: {_summarize(found)}\n")
    else:
        sys.stdout.write(_format(found, arguments))
        if not found.is_empty:
            words = shlex.join(word for word in arguments.words if word != "--dry-run")
            print(clean(f"next: drumline prune {words}"), file=sys.stderr)


def _describe(found: Pruned, *, is_done: bool) -> dict[str, Any]:
    choice = found.choice
    going = {family[0] for family in choice.jobs}
    return {
        "dry_run": not is_done,
        "jobs": [family[0] for family in choice.jobs],
        "details": [{**one._asdict(), "ended": utc(one.ended)} for one in found.jobs if one.name in going],
        "kept": [{"job": kept.job, "why": kept.why} for kept in choice.kept],
        "removed": {
            kind: {"count": size.files, "size_bytes": size.size} for kind, size in found.sizes.items()
        },
        "size_bytes": found.size_bytes,
    }


def _format(found: Pruned, arguments: Namespace) -> str:
    """Format what would go: the jobs, the sizes by kind, and the jobs that stay although they are old."""
    from drumline.cli.upkeep.df import align_figures

    shown = found.jobs[:_MOST_SHOWN]
    text = ""
    if shown:
        heads = ("JOB", "AGE", "SIZE", "WHY")
        rows = [_format_job(one) for one in shown]
        text += align_figures([heads, *rows], text=(0, 3))
        if len(found.jobs) > len(shown):
            text += f"and {len(found.jobs) - len(shown):,} more jobs; -o json lists all\n"
        text += "\n"
    table = [("TYPE", "COUNT", "SIZE", "WHY")]
    table += [
        (kind, f"{size.files:,}", format_size(size.size), _explain(kind, arguments))
        for kind, size in found.sizes.items()
        if size.files
    ]
    table.append(("total", "", format_size(found.size_bytes), ""))
    text += "there is nothing to remove\n" if found.is_empty else align_figures(table, text=(0, 3))
    return text + _format_kept(found.choice.kept)


def _format_kept(kept: Sequence[KeptJob]) -> str:
    lines = [f"kept: {clean(one.job)}: {clean(one.why)}\n" for one in kept[:_MOST_SHOWN]]
    if len(kept) > _MOST_SHOWN:
        lines.append(f"and {len(kept) - _MOST_SHOWN:,} more jobs are kept; -o json lists all\n")
    if any(one.is_archived for one in kept):
        lines.append("archived jobs go too with --include-archived\n")
    return "".join(lines)


def _format_job(one: PrunedJob) -> tuple[str, ...]:
    why = f"ended as {one.status}"
    if one.jobs > 1:
        why += f", with {format_count(one.jobs - 1, 'job')} below it"
    if one.is_archived:
        why += ", archived"
    age = format_age(None if one.ended is None else time.time() - one.ended)
    return clean(one.name), age, format_size(one.size_bytes), clean(why)


def _explain(kind: str, arguments: Namespace) -> str:
    """Return why things of that kind go."""
    age = arguments.older_than
    if kind == "jobs":
        kept = "; the outputs stay" if arguments.keep_outputs else ""
        return f"ended more than {age} ago" + (
            "; all but the outputs stays" if arguments.only_outputs else kept
        )
    return f"not used for {age}" + ("" if kind == "data" else ", and nothing needs them")


def _summarize(found: Pruned) -> str:
    """
    Return what was removed in one line.
    """
    parts = [
        f"{size.files:,} {_name_kind(kind, size.files)}" for kind, size in found.sizes.items() if size.files
    ]
    return f"{', '.join(parts)}; {format_size(found.size_bytes)}" if parts else "nothing"


def _name_kind(kind: str, count: int) -> str:
    one, more = _NAMES.get(kind, (kind.removesuffix("s"), kind))
    return one if count == 1 else more
