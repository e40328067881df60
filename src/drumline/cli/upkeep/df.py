"""``drumline df``: what takes up the disk, and how much of it can go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, enter_workspace

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


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
    from drumline.control.upkeep import disk_usage

    rows = disk_usage.describe_usage()
    is_page = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    if arguments.query or not is_page:
        output.show(rows, arguments.output, arguments.query)
        return 0
    sys.stdout.write(format_usage(rows))
    _print_next(rows)
    return 0


def format_usage(rows: Sequence[dict[str, Any]]) -> str:
    """Format the rows as a table, with one unit for all sizes; memory has a line of its own."""
    on_disk = [row for row in rows if not row["is_memory"]]
    size = sum(row["size_bytes"] for row in on_disk)
    free = sum(row["reclaimable_bytes"] for row in on_disk)
    unit, scale = choose_unit(size)
    lines = [("TYPE", "COUNT", "IN USE", f"SIZE {unit}", f"RECLAIMABLE {unit}")]
    lines += [
        (
            row["type"],
            f"{row['count']:,}",
            f"{row['in_use']:,}",
            format_number(row["size_bytes"] / scale),
            format_number(row["reclaimable_bytes"] / scale),
        )
        for row in on_disk
    ]
    lines.append(("total", "", "", format_number(size / scale), format_number(free / scale)))
    memory = (_format_memory(row) for row in rows if row["is_memory"] and row["count"])
    return align_figures(lines) + "".join(memory)


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


def _format_memory(row: dict[str, Any]) -> str:
    unit, scale = choose_unit(row["size_bytes"])
    noun = row["type"] if row["count"] != 1 else row["type"].removesuffix("s")
    size = format_number(row["size_bytes"] / scale)
    return f"{row['count']} {noun}: {size} {unit} of memory; drumline warm stop ends them\n"


def choose_unit(size: int) -> tuple[str, int]:
    """
    Return the unit for a size, and its number of bytes.

    >>> choose_unit(900), choose_unit(12_400_000)
    (('B', 1), ('MB', 1000000))
    """
    scale = 1
    for unit in _UNITS:
        if size < 1000 * scale:
            return unit, scale
        scale *= 1000
    return _UNITS[-1], scale // 1000


def format_number(number: float) -> str:
    """
    Format with three significant digits.

    >>> [format_number(one) for one in (0, 0.0004, 0.13, 12.44, 105.4, 1234.0)]
    ['0', '0.00', '0.13', '12.4', '105', '1,234']
    """
    if not number:
        return "0"
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:,.{digits}f}"


def _print_next(rows: Sequence[dict[str, Any]]) -> None:
    from drumline.control.jobs import lookup

    for name, count in lookup.counts_elsewhere().items():
        jobs = "1 more job" if count == 1 else f"{count:,} more jobs"
        where = (
            f"workspace {name!r} has {jobs}: add -w {name}" if name else f"{jobs} in no workspace: add -w ''"
        )
        print(where, file=sys.stderr)
    if any(row["reclaimable_bytes"] and not row["is_memory"] for row in rows):
        print("next: drumline prune --older-than 30d --dry-run", file=sys.stderr)
