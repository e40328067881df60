"""Messages of a transfer on its standard output: a JSON object a line, from any thread."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRESS_INTERVAL_S = 0.5


class ProgressReport:
    """The progress of one transfer, sent at most twice a second. The caller sets both totals."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total_bytes = 0
        self.total_files = 0
        self.done_bytes = 0
        self._files = 0
        self._began = time.monotonic()
        self._said = 0.0
        self._count = threading.Lock()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def restart(self) -> None:
        with self._count:
            self.done_bytes = self._files = self.total_bytes = self.total_files = 0

    def begin(self) -> None:
        """Send the totals, once they are known."""
        with self._count:
            self._said = 0.0
            self._send()

    def add(self, count: int) -> None:
        """Count so many more bytes; fewer, if bytes that came were of no use."""
        with self._count:
            self.done_bytes += count
            self._send()

    def add_file(self) -> None:
        with self._count:
            self._files += 1
            self._send()

    def _send(self) -> None:
        now = time.monotonic()
        if now - self._said < _PROGRESS_INTERVAL_S:
            return
        self._said = now
        send(
            "progress",
            name=self.name,
            done_bytes=self.done_bytes,
            total_bytes=max(self.total_bytes, self.done_bytes),
            done_files=self._files,
            total_files=max(self.total_files, self._files),
        )


@contextmanager
def prefix_errors(name: str) -> Iterator[None]:
    """Begin the message of an error raised within with the input or output that it is about."""
    try:
        yield
    except NodeError as error:
        if error.message.startswith(f"{name}:"):
            raise
        raise NodeError(f"{name}: {error.message}", error.hint) from error


_writing = threading.Lock()


def send(kind: str, **fields: Any) -> None:
    """Send a message; exit the process if nobody listens any more."""
    line = json.dumps({"type": kind, **fields}).encode() + b"\n"
    with _writing:
        try:
            while line:
                line = line[os.write(1, line) :]
        except OSError:
            os._exit(1)


def log_warning(text: str) -> None:
    """Write a warning to the log."""
    print(f"warning: {text}", file=sys.stderr, flush=True)  # noqa: T201 - its standard error is a log
