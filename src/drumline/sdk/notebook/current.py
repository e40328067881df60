"""The page of a stored job, as it is when it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import folder
from drumline.contract.errors import DrumlineError
from drumline.contract.plan import Plan
from drumline.control import terminal
from drumline.control.facts import description
from drumline.control.facts.metrics import read_metrics
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import last_lines
from drumline.sdk.notebook.page import render_job

if TYPE_CHECKING:
    from drumline.sdk.notebook.markup import Markup

_METRICS_S = 2.0
_LAST_LINES = 10


def render_current(name: str, workspace: str | None) -> Markup | None:
    """Return the page; None for a job that is gone. ``workspace``: as ``folder.workspace`` takes it."""
    with folder.workspace(workspace):
        try:
            found = folder_of(name)
            outcome = recover(found)
            described = description.describe(found, outcome, brief=True)
            # The trials of a sweep have theirs in its table.
            series = [] if outcome.kind == "sweep" else read_metrics(found, (), _METRICS_S).series
            lines = []
            if outcome.failed_rank is not None:
                raw = last_lines(found, Plan.read(found.plan), outcome.failed_rank, _LAST_LINES)
                lines = [terminal.clean(terminal.decode(line)) for line in raw]
        except (
            DrumlineError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ):  # The last three: of a damaged plan.
            return None
    return render_job(described, series, lines)
