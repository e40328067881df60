"""The progress shown on standard error while data is on its way and an environment is being made."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.words import format_seconds, format_size
from drumline.control import terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from drumline.contract.outcome import Outcome
    from drumline.control.progress_bar import ProgressBar

_TAIL_BYTES = 4096


class ProgressLine:
    """
    A line on a terminal that is drawn over itself; elsewhere a line when something begins, and when it is done.

    ``folder``: the run folder, where the tools that build an environment write their log. ``ask``: returns how far the
    ranks are; empty: that is not known.
    """

    def __init__(
        self, job: str, out: TextIO | None = None, folder: str = "", ask: Callable[[], str] | None = None
    ) -> None:
        self._ask = ask
        self._job = job
        self._out = out or sys.stderr
        self._folder = folder
        self._bar: ProgressBar | None = None
        self._build: e.EnvironmentBuilding | None = None
        self._told: set[tuple[str, float]] = set()

    def look(self, outcome: Outcome) -> None:
        for name, transfer in outcome.transfers.items():
            if isinstance(transfer, e.Transferred) and transfer.file_count:
                self._tell(name, transfer.time, describe_transfer(transfer))
            elif isinstance(transfer, e.TransferProgress) and not self._find_bar().is_drawn:
                files = "1 file" if transfer.total_files == 1 else f"{transfer.total_files:,} files"
                self._tell(name, 0.0, f"{name}: {format_size(transfer.total_bytes)} in {files} on the way")
        self._look_at_environment(outcome.environment)
        for name, service in outcome.services.items():
            if service.url:
                self._tell(name, service.time, f"{name}: {service.url}")
        moving = [one for one in outcome.transfers.values() if isinstance(one, e.TransferProgress)]
        if outcome.is_final:
            moving, self._build = [], None
        self._draw(moving)

    def tick(self) -> None:
        """
        Draw a build again, with its time and what its tools said last, or how far the ranks are: to be called now and
        then.
        """
        if self._build is None:
            if self._ask is not None and self._find_bar().is_drawn:
                self._find_bar().show_text(self._ask())
            return
        log = os.path.join(self._folder, self._build.log) if self._folder and self._build.log else ""
        self._find_bar().show_work(
            f"environment: {self._build.what}", time.time() - self._build.time, read_last_line(log)
        )

    def clear(self) -> None:
        """Take the line away before anything else is written."""
        if self._bar is not None:
            self._bar.clear()

    def _look_at_environment(self, environment: e.EnvironmentBuilding | e.EnvironmentReady | None) -> None:
        self._build = None
        if isinstance(environment, e.EnvironmentBuilding):
            if self._find_bar().is_drawn:
                self._build = environment
            else:
                self._tell("environment", environment.time, f"environment: {environment.what}")
        elif environment is not None and not environment.reused:
            self._tell(
                "environment",
                environment.time,
                f"environment: ready after {format_seconds(environment.seconds)}",
            )

    def _find_bar(self) -> ProgressBar:
        if self._bar is None:
            # Most jobs have nothing to draw.
            from drumline.control.progress_bar import ProgressBar

            self._bar = ProgressBar(self._out)
        return self._bar

    def _tell(self, name: str, when: float, text: str) -> None:
        if (name, when) in self._told:
            return
        self._told.add((name, when))
        self.clear()
        self._out.write(terminal.clean(f"job {self._job}: {text}") + "\n")
        self._out.flush()

    def _draw(self, moving: list[e.TransferProgress]) -> None:
        if moving:
            latest = max(moving, key=lambda one: one.time)
            self._find_bar().show_bytes(latest.name, latest.done_bytes, latest.total_bytes)
        elif self._build is not None:
            self.tick()
        elif self._bar is not None:
            self._bar.close()


def read_last_line(path: str) -> str:
    """
    Return what a tool said last in its log; empty before it has said anything.

    Lines of our own begin with ``#``, and each command with ``$``: what comes before one is of another step.
    """
    from drumline.control.logs.rank_log import read_end
    from drumline.staging.environments.tool import hide_secrets

    for line in reversed(re.split(r"[\r\n]", terminal.decode(read_end(path, _TAIL_BYTES)))):
        said = terminal.clean(line).strip()
        if said:
            return "" if said.startswith(("# ", "$ ")) else hide_secrets(said)
    return ""


def describe_transfer(one: e.Transferred) -> str:
    """Describe a transfer: ``inputs.digits: 3.4 GiB in 12 files from s3://lab/digits in 9 s``."""
    files = "1 file" if one.file_count == 1 else f"{one.file_count:,} files"
    way = "to" if one.name.startswith("outputs.") and not one.note.startswith("from") else "from"
    text = f"{one.name}: {format_size(one.size_bytes)} in {files} {way} {one.uri} in {format_seconds(one.seconds)}"
    if one.size_bytes and one.cached_bytes >= one.size_bytes:
        text += ", all of it from the cache"
    elif one.cached_bytes:
        text += f", {format_size(one.cached_bytes)} of it from the cache"
    # What a mount was never expected for need not be told of each time; `job show` has it.
    note = "" if one.note.startswith("not mounted:") else one.note
    return text + (f" ({note})" if note else "")
