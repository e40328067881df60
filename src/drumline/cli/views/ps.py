"""``drumline ps``: what runs and waits now, jobs of all kinds with their steps and trials."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, enter_workspace
from drumline.cli.screen import print_text
from drumline.cli.views.listing import find_room, format_jobs
from drumline.control.facts.jobs import KnownJobs
from drumline.control.jobs import job_folders

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

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
