"""``drumline ps``, what runs and waits now with its steps and trials, and ``drumline job list``: tables of jobs."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, enter_workspace, find_job
from drumline.cli.colour import colour_of, paint
from drumline.cli.screen import (
    GAP,
    PAGE_WIDTH,
    cut,
    fit_table,
    join,
    measure,
    pad,
    print_text,
    terminal_width,
    to_line,
)
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.words import format_age, format_duration, format_number
from drumline.control.facts.jobs import JobFilters, KnownJobs, parse_statuses, parse_tags
from drumline.control.jobs import job_folders, lookup
from drumline.control.times import parse_moment

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from drumline.control.facts.jobs import JobOverview


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline ps",
        description="List what runs and waits now: jobs, pipelines with their steps, sweeps with their trials.",
    )
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _list_active(arguments)


def _list_active(arguments: Namespace) -> int:
    known = KnownJobs()
    there = job_folders.names(archived=None)
    known.load(there)
    names = [name for name in there if not known.is_known_final(name)]
    as_table = output.is_for_people(arguments.output, arguments.query)
    active = [job for job in known.overviews(names, with_metric=as_table) if not job.is_final]
    ordered = list(_order_by_parent(active))
    if as_table:
        if ordered:
            depths = [depth for _, depth in ordered]
            print_text(format_jobs([job for job, _ in ordered], find_room(), depths))
        else:
            print("nothing runs or waits; drumline job list shows what has ended", file=sys.stderr)
    else:
        described = known.describe(job.name for job, _ in ordered)
        output.show(list(described), arguments.output, arguments.query)
    known.keep()
    return 0


def _order_by_parent(jobs: list[JobOverview]) -> Iterator[tuple[JobOverview, int]]:
    """Yield each job with its depth: the newest first, the jobs of a pipeline or sweep below it, the oldest first."""
    by_parent: dict[str, list[JobOverview]] = {}
    there = {job.name for job in jobs}
    for job in jobs:
        by_parent.setdefault(job.parent if job.parent in there else "", []).append(job)
    left = [(job, 0) for job in reversed(by_parent.get("", []))]
    while left:
        job, depth = left.pop()
        yield job, depth
        # Names make no circle: a job's parent is older than it, and a forged one ends here.
        left += [(child, depth + 1) for child in by_parent.pop(job.name, [])]


_DEFAULT_MAX_RESULTS = 50
_LEAST_ON_A_SCREEN = 10
_HEADS = ("NAME", "AGE", "TIME", "SIZE", "COMPUTE", "METRIC", "STATUS")
_NAME, _AGE, _TIME, _SIZE, _COMPUTE, _METRIC, _STATUS = range(len(_HEADS))
_RIGHT = {_AGE, _TIME, _SIZE}
_LEFT_OUT = (_COMPUTE, _METRIC, _SIZE, _AGE)
"""Columns that a narrow terminal does without, in this order: names are pasted, and one looks for the status."""

_SHORT_NAME = 4
"""Letters that stay of the name of a metric, with the blank behind it."""


def list_jobs(arguments: Namespace) -> int:
    if arguments.archived_only and arguments.include_archived:
        raise UsageError("--archived-only and --include-archived exclude each other")
    filters = parse_filters(arguments)
    archived = True if arguments.archived_only else None if arguments.include_archived else False
    parent = find_job(arguments.parent_job_name) if arguments.parent_job_name else ""
    names = job_folders.names(archived=archived, parent=parent)
    known = KnownJobs()
    found = names
    if not filters.is_empty:
        found = [job.name for job in known.overviews(names) if filters.match(job)]
    as_table = output.is_for_people(arguments.output, arguments.query)
    limit, most = arguments.max_results, _DEFAULT_MAX_RESULTS
    if as_table and sys.stdout.isatty():
        # One screen, with the head, the count and the next prompt.
        most = max(_LEAST_ON_A_SCREEN, min(most, shutil.get_terminal_size().lines - 4))
    if limit is not None:
        most = limit if limit >= 0 else len(found)
    # A query is for all of them, unless a number was given.
    is_for_all = arguments.all_results == "true" or (arguments.query and limit is None)
    shown = found if is_for_all else found[:most]
    if as_table:
        jobs = list(known.overviews(shown, with_metric=True))
        if jobs:
            print_text(format_jobs(jobs, find_room()))
    else:
        output.show(list(known.describe(shown)), arguments.output, arguments.query)
    known.keep()
    if len(shown) < len(found) and limit is None:
        _print_left_out(len(shown), len(found), as_table)
    if not shown:
        _explain_nothing(names, filters)
    return 0


def parse_filters(arguments: Namespace) -> JobFilters:
    """
    Return the filters of ``job list``. Raises UsageError for an unknown status, and for a time that cannot be read.
    """
    return JobFilters(
        parse_statuses(arguments.status, "--status"),
        arguments.experiment or "",
        arguments.compute or "",
        None if arguments.since is None else parse_moment(arguments.since, "--since"),
        parse_tags(arguments.tag),
    )


def _print_left_out(shown: int, count: int, as_table: bool) -> None:
    text = (
        f"{shown} of {count:,} jobs; --all shows the rest"
        if as_table
        else f"showing {shown} of {count} jobs; --all-results shows all"
    )
    print(paint(text, "grey", sys.stderr), file=sys.stderr)


def _explain_nothing(names: list[str], filters: JobFilters) -> None:
    """Say why a list is empty: other jobs do not match, or they are in another workspace."""
    if names and not filters.is_empty:
        count = "1 job" if len(names) == 1 else f"{len(names):,} jobs"
        print(f"none of {count} matches; drumline job list shows them", file=sys.stderr)
    elif not names:
        _print_elsewhere(lookup.counts_elsewhere() if not lookup.all_names() else {})


def _print_elsewhere(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        jobs = "1 job" if count == 1 else f"{count} jobs"
        where = (
            f"workspace {name!r} has {jobs}: add -w {name}" if name else f"{jobs} in no workspace: add -w ''"
        )
        print(f"no jobs here; {where}", file=sys.stderr)


# the table


def find_room() -> int | None:
    """Return how wide a table may be: as the terminal, at most 100 columns; None where the output is piped."""
    return terminal_width(PAGE_WIDTH) if sys.stdout.isatty() else None


def format_jobs(jobs: Sequence[JobOverview], room: int | None, depths: Sequence[int] = ()) -> str:
    """Format jobs as a table that is ``room`` wide. ``depths``: how far each name is moved in."""
    rows = [_format_job(job) for job in jobs]
    rows = [
        ("  " * depth + row[0], *row[1:]) for row, depth in zip(rows, depths or [0] * len(rows), strict=True)
    ]
    figures = [_format_figure(job) for job in jobs]
    table = _fit_jobs([_HEADS, *rows], room, ["", *figures])
    lines = [paint(join(table[0]), "grey")]
    for job, row in zip(jobs, table[1:], strict=True):
        word = to_line(job.status)
        if row[-1].startswith(word):
            row[-1] = paint(word, colour_of(job.status)) + row[-1][len(word) :]
        lines.append(join(row))
    return "".join(line + "\n" for line in lines)


def _fit_jobs(rows: Sequence[Sequence[str]], room: int | None, figures: Sequence[str]) -> list[list[str]]:
    """
    Cut and pad the cells. Columns that do not fit are left out, and of a metric the name is cut, never the figure.

    ``figures``: the value of the metric of each row.
    """
    widths = [max(map(measure, column)) for column in zip(*rows, strict=True)]
    shortest = min(widths[_METRIC], max(len(_HEADS[_METRIC]), *(len(one) + _SHORT_NAME for one in figures)))
    least = {_NAME: 24, _COMPUTE: 7, _METRIC: shortest, _STATUS: 14}
    kept = list(range(len(_HEADS)))
    for column in _LEFT_OUT:
        needed = sum(min(widths[at], least.get(at, widths[at])) + len(GAP) for at in kept) - len(GAP)
        if room is not None and needed > room:
            kept.remove(column)
    order = ((_STATUS, 24), (_METRIC, shortest), (_COMPUTE, 7), (_STATUS, 14), (_NAME, 16))
    table = fit_table(
        [[row[at] for at in kept] for row in rows],
        room,
        {kept.index(at) for at in _RIGHT if at in kept},
        [(kept.index(at), width) for at, width in order if at in kept],
    )
    if _METRIC in kept:
        for cells, row, figure in zip(table, rows, figures, strict=True):
            cells[kept.index(_METRIC)] = _cut_metric(
                row[_METRIC], figure, measure(cells[kept.index(_METRIC)])
            )
    return table


def _cut_metric(text: str, figure: str, width: int) -> str:
    """Return a name and a figure in that width; the name gives up room first."""
    if figure and measure(text) > width:
        name = text.removesuffix(figure).rstrip()
        text = f"{cut(name, max(1, width - len(figure) - 1))} {figure}"
    return pad(cut(text, width), width)


def _format_figure(job: JobOverview) -> str:
    return "" if job.metric is None else format_number(job.metric[1])


def _format_job(job: JobOverview) -> tuple[str, ...]:
    now = time.time()
    took = None if job.started is None else (job.ended or now) - job.started
    metric = "-" if job.metric is None else f"{to_line(job.metric[0])} {_format_figure(job)}"
    state = to_line(job.status)
    if job.reason and job.status != status.COMPLETED:
        state += f": {to_line(job.reason)}"
    return (
        to_line(job.name),
        format_age(None if job.created is None else now - job.created),
        format_duration(took),
        to_line(job.size),
        to_line(job.compute),
        metric,
        state,
    )
