"""A job in a notebook while it runs: one output that is drawn again, with the last lines of its log."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from drumline.contract import events
from drumline.contract.outcome import fold
from drumline.contract.words import format_size
from drumline.control.facts.job import JobFacts
from drumline.control.facts.metrics import MetricsReader
from drumline.control.jobs.lookup import find_plan
from drumline.control.logs import printer, stream
from drumline.sdk.notebook.notebook_page import render_job

if TYPE_CHECKING:
    from typing import TextIO

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.sdk.notebook.look import Markup
    from drumline.tracking.metrics import Series

_LAST_LINES = 20
_LONGEST_LINE = 2000
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.3, 2.0
_SLOWER = 0.01
"""Of the time that a job has run: how long its page then stays as it is."""

_METRICS_PAUSE_S = 2.0
_METRICS_S = 0.5


def follow(folder: RunFolder) -> Outcome:
    """Show the job until it has ended. Blocks."""
    page = LivePage(folder)
    try:
        return stream.follow(folder, printer.LogView(cast("TextIO", page), notices=False))
    finally:
        page.draw()


def describe_preparation(outcome: Outcome) -> str:
    """Return what a job whose ranks have not started is busy with; empty for nothing that takes long."""
    if outcome.started is not None or outcome.is_final:
        return ""
    parts = [
        f"{name}: {format_size(one.done_bytes)} of {format_size(one.total_bytes)}"
        for name, one in sorted(outcome.transfers.items())
        if isinstance(one, events.TransferProgress)
    ]
    if isinstance(outcome.environment, events.EnvironmentBuilding):
        parts.append(f"environment: {outcome.environment.what}")
    return "; ".join(parts)


class LivePage:
    """The page of a job in the cell's output, a text stream: what is written to it are the last lines of the log."""

    def __init__(self, folder: RunFolder) -> None:
        from IPython.display import HTML, display

        self._folder = folder
        self._plan = find_plan(folder)
        self._make_html = HTML
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = ""
        self._metrics = MetricsReader(folder)
        self._series: list[Series] = []
        self._began = time.monotonic()
        self._next = self._next_metrics = 0.0
        self._shown: Markup | None = None
        self._handle: Any = display(HTML(""), display_id=True)
        self.draw()

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines.extend(line[:_LONGEST_LINE] for line in whole[-_LAST_LINES:])
        return len(text)

    def flush(self) -> None:
        if time.monotonic() >= self._next:
            self.draw()

    def isatty(self) -> bool:
        return False

    def draw(self) -> None:
        """Draw the page again if it has changed."""
        outcome = fold(self._folder.read_events())
        now = time.monotonic()
        if now >= self._next_metrics or outcome.is_final:
            self._series = self._metrics.look(_METRICS_S).series if outcome.started else []
            self._next_metrics = time.monotonic() + _METRICS_PAUSE_S
        facts = JobFacts(self._folder, outcome)
        facts.plan = self._plan
        page = render_job(facts, self._series, tuple(self._lines), describe_preparation(outcome))
        if page != self._shown:
            self._shown = page
            self._handle.update(self._make_html(page))
        pause = (now - self._began) * _SLOWER
        self._next = time.monotonic() + min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, pause))
