"""``drumline prune``: remove old jobs, and what nothing needs any more."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, confirm, enter_workspace
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.control.terminal import clean
from drumline.staging.sizes import format_size

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.control.upkeep.pruning import Pruned, PruneFilter

_MOST_SHOWN = 20


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
    from drumline.control.upkeep import pruning

    wanted = _read_filter(arguments)
    choice = pruning.choose(wanted)
    found = pruning.measure(wanted, choice)
    is_page = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    if arguments.dry_run:
        _show(found, arguments, is_page=is_page, is_done=False)
        return 0
    if not found.is_empty and not arguments.yes:
        print(_format(found), end="", file=sys.stderr)
        if not confirm(
            "Remove them? This cannot be undone.", "drumline prune ... --yes, or --dry-run to see"
        ):
            return 1
    done = pruning.prune(wanted, choice) if not found.is_empty else choice
    _show(found._replace(choice=done), arguments, is_page=is_page, is_done=True)
    return 0


def _read_filter(arguments: Namespace) -> PruneFilter:
    from drumline.control.times import parse_age
    from drumline.control.upkeep import pruning

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
    elif is_done:
        sys.stdout.write(f"removed: {_summarize(found)}\n")
    else:
        sys.stdout.write(_format(found))
        if not found.is_empty:
            words = shlex.join(word for word in arguments.words if word != "--dry-run")
            print(clean(f"next: drumline prune {words}"), file=sys.stderr)


def _describe(found: Pruned, *, is_done: bool) -> dict[str, Any]:
    choice = found.choice
    return {
        "dry_run": not is_done,
        "jobs": [family[0] for family in choice.jobs],
        "kept": [kept._asdict() for kept in choice.kept],
        "removed": {
            kind: {"count": size.files, "size_bytes": size.size} for kind, size in found.sizes.items()
        },
        "size_bytes": found.size_bytes,
    }


def _format(found: Pruned) -> str:
    """Format what would go: the jobs, the sizes by kind, and the jobs that stay although they are old."""
    from drumline.cli.upkeep.df import choose_unit, format_number

    names = [family[0] for family in found.choice.jobs]
    lines = [f"  {clean(name)}" for name in names[:_MOST_SHOWN]]
    if len(names) > _MOST_SHOWN:
        lines.append(f"  and {len(names) - _MOST_SHOWN:,} more; -o json lists all")
    if lines:
        lines.insert(0, "jobs, the oldest first:")
    unit, scale = choose_unit(found.size_bytes)
    table = [("", "COUNT", f"SIZE {unit}")]
    table += [
        (kind, f"{size.files:,}", format_number(size.size / scale))
        for kind, size in found.sizes.items()
        if size.files
    ]
    table.append(("total", "", format_number(found.size_bytes / scale)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *rest in table if not found.is_empty else ():
        cells = [
            first.ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    lines += [f"kept: {clean(kept.job)}: {clean(kept.why)}" for kept in found.choice.kept]
    if found.is_empty:
        lines.append("there is nothing to remove")
    return "\n".join(lines) + "\n"


def _summarize(found: Pruned) -> str:
    """
    Return what was removed in one line.
    """
    parts = [
        f"{size.files:,} {_name_kind(kind, size.files)}" for kind, size in found.sizes.items() if size.files
    ]
    return f"{', '.join(parts)}; {format_size(found.size_bytes)}" if parts else "nothing"


def _name_kind(kind: str, count: int) -> str:
    if kind == "data":
        return "downloaded file" if count == 1 else "downloaded files"
    return kind.removesuffix("s") if count == 1 else kind
