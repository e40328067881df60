"""The jobs that ``MLClient.jobs.list()`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import folder
from drumline.contract.words import format_count
from drumline.control.facts import description
from drumline.sdk.operations import Operations, from_description

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.jobs.command import Command

_MOST_ROWS = 30


class JobList(Operations):
    """Jobs, read one by one as they are asked for; in a notebook a table of the first ones."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._jobs: Iterator[Command] = map(from_description, description.show_jobs(names))

    def __iter__(self) -> Iterator[Command]:
        return self

    def __next__(self) -> Command:
        with folder.workspace(self._workspace):
            return next(self._jobs)

    def __repr__(self) -> str:
        return f"<{format_count(len(self._names), 'job')}: iterate over them, or list() them>"

    def _repr_html_(self) -> str:
        from drumline.control.facts.jobs import KnownJobs
        from drumline.sdk.notebook.notebook_page import render_jobs

        with folder.workspace(self._workspace):
            known = KnownJobs()
            rows = list(known.overviews(self._names[:_MOST_ROWS], with_metric=True))
            known.keep()
        return render_jobs(rows, len(self._names))
