"""``drumline job diff``: what differs between two jobs, and what came of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.colour import paint
from drumline.cli.screen import PAGE_WIDTH, measure, pad, print_text, terminal_width, to_line
from drumline.contract.status import COMPLETED
from drumline.contract.words import format_number
from drumline.control.comparing import SECTIONS, compare_jobs
from drumline.control.jobs import naming
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drumline.cli.colour import Colour
    from drumline.control.comparing import CodeDifferences


_COLOURS: Mapping[str, Colour] = {"+": "green", "-": "red", "@": "grey"}
"""Of the lines of a unified diff, by their first letters."""


def show_differences(given: Namespace) -> int:
    # Found before one is remembered: `-` means what it meant before this command.
    a, b = naming.find_name(given.a), naming.find_name(given.b)
    told = compare_jobs(a, b)
    naming.remember(b)
    if not output.is_for_people(given.output, given.query):
        output.show(told, given.output, given.query)
        return 0

    print_text("".join(f"{line}\n" for line in _format(told, terminal_width(PAGE_WIDTH))))
    return 0


def _format(told: dict[str, Any], width: int) -> Iterator[str]:
    yield from _format_jobs(told["jobs"])
    same = []
    for section, key in SECTIONS.items():
        if section == "code":
            lines = list(_format_code(told["code"]))
        else:
            lines = [
                clean(line)
                for difference in told[section]
                for line in _format_difference(str(difference[key]), difference["a"], difference["b"], width)
            ]
        if lines:
            yield from ("", section, *lines)
        else:
            same.append(section)
    if told["metrics"]:
        heads = ("metrics", "a", "b", "b - a")
        yield from _align(heads, "metric", told["metrics"], ("a", "b", "difference"))
    times = [{**row, "time": row["time"].removesuffix("_s").replace("_", " ")} for row in told["times"]]
    yield from _align(("seconds", "a", "b"), "time", times, ("a", "b"))
    if told["phases"]:
        yield from _align(("seconds of the start", "a", "b"), "phase", told["phases"], ("a", "b"))
    if same:
        yield from ("", "the same: " + ", ".join(same))


def _format_jobs(jobs: list[dict[str, Any]]) -> Iterator[str]:
    wide = max(len(job["name"]) for job in jobs)
    for letter, job in zip("ab", jobs, strict=True):
        reason = f": {job['reason']}" if job["reason"] and job["status"] != COMPLETED else ""
        yield clean(f"{letter}  {job['name']:<{wide}}  {job['status']}{reason}").replace("\n", " ")


def _format_code(code: CodeDifferences) -> Iterator[str]:
    yield from (clean(f"  {note}") for note in code.notes)
    for file in code.files:
        # A name may hold a line break, and its file no line that differs.
        if file.diff:
            yield from (paint(clean(line), _COLOURS.get(line[:1])) for line in file.diff.split("\n")[:-1])
        else:
            hashes = " -> ".join(side or "none" for side in (file.a, file.b))
            yield clean(f"  {file.path}: {file.change}, {hashes}").replace("\n", " ")
    if code.left_out:
        yield f"  and {code.left_out} files more"


def _format_difference(name: str, a: Any, b: Any, width: int) -> Iterator[str]:
    left, right = _to_text(a), _to_text(b)
    line = f"  {name}  {left} -> {right}"
    if len(line) <= width and "\n" not in line:
        yield line
        return
    yield f"  {name}"
    for letter, text in (("a", left), ("b", right)):
        for index, part in enumerate(text.splitlines() or [""]):
            yield f"    {letter if index == 0 else ' '}  {part}"


def _to_text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _align(
    heads: tuple[str, ...], key: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> Iterator[str]:
    """Format a head and rows: names on the left, numbers to the right."""
    listed = [
        heads,
        *((f"  {to_line(row[key])}", *(format_number(row[at], 5) for at in columns)) for row in rows),
    ]
    widths = [max(measure(row[column]) for row in listed) for column in range(len(heads))]
    yield ""
    for name, *cells in listed:
        numbers = "".join(
            f"  {pad(cell, width, right=True)}" for cell, width in zip(cells, widths[1:], strict=True)
        )
        yield f"{pad(name, widths[0])}{numbers}"
