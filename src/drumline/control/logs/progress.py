"""The progress shown on standard error while data is on its way and an environment is being made."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.control import terminal

if TYPE_CHECKING:
    from typing import TextIO

    from drumline.contract.outcome import Outcome

_BAR = 24
_ERASE = "\r\x1b[K"


class ProgressLine:
    """A bar on a terminal that is drawn over itself; elsewhere a line when something is done."""

    def __init__(self, job: str, out: TextIO | None = None) -> None:
        self._job = job
        self._out = out or sys.stderr
        self._has_bar = False
        self._told: set[tuple[str, float]] = set()
        self._last: dict[str, e.TransferProgress] = {}

    def look(self, outcome: Outcome) -> None:
        for name, transfer in outcome.transfers.items():
            if isinstance(transfer, e.Transferred) and transfer.file_count:
                self._tell(name, transfer.time, describe_transfer(transfer))
            elif isinstance(transfer, e.TransferProgress) and not self._out.isatty():
                files = "1 file" if transfer.total_files == 1 else f"{transfer.total_files:,} files"
                self._tell(name, 0.0, f"{name}: {size(transfer.total_bytes)} in {files} on the way")
        environment = outcome.environment
        if isinstance(environment, e.EnvironmentBuilding):
            self._tell("environment", environment.time, f"environment: {environment.what}")
        elif environment is not None and not environment.reused:
            self._tell(
                "environment", environment.time, f"environment: ready after {environment.seconds:.0f} s"
            )
        for name, service in outcome.services.items():
            if service.url:
                self._tell(name, service.time, f"{name}: {service.url}")
        self._draw([one for one in outcome.transfers.values() if isinstance(one, e.TransferProgress)])
        if outcome.is_final:
            self.clear()

    def clear(self) -> None:
        """Remove the bar before anything else is written."""
        if self._has_bar:
            self._write(_ERASE)
            self._has_bar = False

    def _tell(self, name: str, when: float, text: str) -> None:
        if (name, when) in self._told:
            return
        self._told.add((name, when))
        self.clear()
        self._write(terminal.clean(f"job {self._job}: {text}") + "\n")

    def _draw(self, moving: list[e.TransferProgress]) -> None:
        if not moving or not self._out.isatty():
            self.clear()
            return
        latest = max(moving, key=lambda one: one.time)
        width = shutil.get_terminal_size().columns
        self._write(_ERASE + terminal.clean(self._bar(latest))[: width - 1])
        self._has_bar = True

    def _bar(self, now: e.TransferProgress) -> str:
        before = self._last.get(now.name)
        rate = ""
        if before is not None and now.time > before.time:
            rate = f"  {size((now.done_bytes - before.done_bytes) / (now.time - before.time))}/s"
        if before is None or now.time > before.time:
            self._last[now.name] = now
        share = min(1.0, now.done_bytes / now.total_bytes) if now.total_bytes else 0.0
        filled = round(share * _BAR)
        amount = f"{size(now.done_bytes)} of {size(now.total_bytes)}"
        return f"{now.name}  [{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}  {amount}{rate}"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def describe_transfer(one: e.Transferred) -> str:
    """Describe a transfer: ``inputs.digits: 3.4 GB in 12 files from s3://lab/digits in 9 s``."""
    files = "1 file" if one.file_count == 1 else f"{one.file_count:,} files"
    way = "to" if one.name.startswith("outputs.") and not one.note.startswith("from") else "from"
    text = f"{one.name}: {size(one.size_bytes)} in {files} {way} {one.uri} in {one.seconds:.1f} s"
    if one.size_bytes and one.cached_bytes >= one.size_bytes:
        text += ", all of it from the cache"
    elif one.cached_bytes:
        text += f", {size(one.cached_bytes)} of it from the cache"
    # What a mount was never expected for need not be told of each time; `job show` has it.
    note = "" if one.note.startswith("not mounted:") else one.note
    return text + (f" ({note})" if note else "")


def size(count: float) -> str:
    """
    Return a number of bytes with its unit.

    >>> size(999), size(1234567), size(0)
    ('999 B', '1.2 MB', '0 B')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
