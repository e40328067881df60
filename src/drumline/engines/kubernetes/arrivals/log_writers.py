"""The pod that has written each log: the log of a lost pod is kept when its replacement writes another."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE = "courier-logs.jsonl"
_LOG = re.compile(r"user_logs/(?!(?:.*/)?attempt-\d+/).+|system_logs/node-\d+\.log", re.DOTALL)


def is_log(path: str) -> bool:
    """Return whether each attempt writes a file of that name."""
    return _LOG.fullmatch(path) is not None


class Writer(NamedTuple):
    """A pod, and how many attempts had ended by the events here when its first piece came."""

    pod: str
    ended: int


class LogWriters:
    """The pods by log. It survives the process, as a line is written down before the log is."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _FILE)
        self._known: dict[str, Writer] | None = None

    def find(self, path: str) -> Writer | None:
        """Return who has written a log last; None: nobody whom this knows. Raises OSError."""
        if self._known is None:
            self._known = dict(self._load())
        return self._known.get(path)

    def note(self, path: str, writer: Writer) -> None:
        """Write down who writes a log from now on. Raises OSError."""
        if self.find(path) == writer or self._known is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o600), "ab", buffering=0) as file:
            # The line before may be torn.
            file.write(b"\n" + json.dumps([path, *writer]).encode())
        self._known[path] = writer

    def _load(self) -> Iterator[tuple[str, Writer]]:
        try:
            with open_plain(self._path) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                path, pod, ended = json.loads(line)
            except (ValueError, TypeError):
                continue
            yield str(path), Writer(str(pod), int(ended))
