"""``drumline df``: what takes up the disk, and how much of it can go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, enter_workspace
from drumline.contract.words import format_count, format_size
from drumline.control.jobs import lookup
from drumline.control.upkeep import disk_usage

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Sequence


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline df",
        description="Show what jobs, code, environments and downloaded data take up on the disk, "
        "and how much of it drumline prune could free.",
    )
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _df(arguments)


def _df(arguments: Namespace) -> int:
    rows = disk_usage.describe_usage()
    is_page = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    if arguments.query or not is_page:
        output.show(rows, arguments.output, arguments.query)
        return 0
    sys.stdout.write(format_usage(rows))
    _print_next(rows)
    return 0


def format_usage(rows: Sequence[dict[str, Any]]) -> str:
    """Format the rows as a table; memory has a line of its own."""
    on_disk = [row for row in rows if not row["is_memory"]]
    size = sum(row["size_bytes"] for row in on_disk)
    free = sum(row["reclaimable_bytes"] for row in on_disk)
    lines = [("TYPE", "COUNT", "IN USE", "SIZE", "RECLAIMABLE")]
    lines += [
        (
            row["type"],
            f"{row['count']:,}",
            f"{row['in_use']:,}",
            format_size(row["size_bytes"]),
            format_size(row["reclaimable_bytes"]),
        )
        for row in on_disk
    ]
    lines.append(("total", "", "", format_size(size), format_size(free)))
    text = align_figures(lines)
    for row in rows:
        if row["is_memory"] and row["count"]:
            held = format_count(row["count"], row["type"].removesuffix("s"))
            text += f"{held}: {format_size(row['size_bytes'])} of memory; drumline warm stop ends them\n"
    return text


def align_figures(rows: Sequence[Sequence[str]], text: Collection[int] = (0,)) -> str:
    """Return the rows as a table; the columns ``text`` begin at the left, figures end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if at in text else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(line.rstrip() + "\n" for line in lines)


def _print_next(rows: Sequence[dict[str, Any]]) -> None:
    for name, count in lookup.counts_elsewhere().items():
        jobs = format_count(count, "more job")
        where = (
            f"workspace {name!r} has {jobs}: add -w {name}" if name else f"{jobs} in no workspace: add -w ''"
        )
        print(where, file=sys.stderr)
    if any(row["reclaimable_bytes"] and not row["is_memory"] for row in rows):
        print("next: drumline prune --older-than 30d --dry-run", file=sys.stderr)
