"""What a transfer says on its standard output: a JSON object a line, from any thread."""

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

_EVERY_S = 0.5


class Progress:
    """Of one transfer; said at most twice a second. ``total_bytes`` and ``total_files`` are set by whoever lists."""

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

    def begin_again(self) -> None:
        with self._count:
            self.done_bytes = self._files = self.total_bytes = self.total_files = 0

    def begin(self) -> None:
        """To be called when it is known how much there is."""
        with self._count:
            self._said = 0.0
            self._say()

    def add(self, count: int) -> None:
        """So many bytes more; fewer, where what had come was of no use."""
        with self._count:
            self.done_bytes += count
            self._say()

    def add_file(self) -> None:
        with self._count:
            self._files += 1
            self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said < _EVERY_S:
            return
        self._said = now
        say(
            "progress",
            name=self.name,
            done_bytes=self.done_bytes,
            total_bytes=max(self.total_bytes, self.done_bytes),
            done_files=self._files,
            total_files=max(self.total_files, self._files),
        )


@contextmanager
def named(name: str) -> Iterator[None]:
    """What is said of a mistake within begins with the input or output that it is about."""
    try:
        yield
    except NodeError as error:
        if error.message.startswith(f"{name}:"):
            raise
        raise NodeError(f"{name}: {error.message}", error.hint) from error


_writing = threading.Lock()


def say(kind: str, **fields: Any) -> None:
    """Ends the process where nobody listens any more."""
    line = json.dumps({"type": kind, **fields}).encode() + b"\n"
    with _writing:
        try:
            while line:
                line = line[os.write(1, line) :]
        except OSError:
            os._exit(1)


def warn(text: str) -> None:
    """To the log."""
    print(f"warning: {text}", file=sys.stderr, flush=True)  # noqa: T201 - its standard error is a log
