"""
The output of a pod, by which its files reach whoever submitted the job: a line of JSON for each piece of a file.

A piece is written where it belongs, so that reading a pod's output once more does no harm. What a job may write to the
same output by itself is no frame, and left out.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "drumline-frame"
PIECE = 48 * 1024
"""Bytes of a file in one line. Source: container runtimes part lines above 16 kB, and join them for readers."""

_LOGS = ("user_logs", "system_logs", "system_metrics", "steps", "log_times", "logs")
_RESULTS = ("outputs", "named-outputs")
_FILES = (
    "events.jsonl",
    "clocks.json",
    "hang.json",
    "stacks.json",
    "tracking.json",
    "environment.lock",
    "uploads.json",
)
_NEVER = ("reserve", ".partial")
_DEEPEST = 12
_MOST = 1 << 40
"""Of bytes in a file, and of pieces."""


class Frame(NamedTuple):
    """
    A piece of a file. ``path``: relative to the run folder. ``begins``: the file is a new one. ``end``: the pod has no
    more to say; ``path`` is empty then. ``number``: of the pieces of its pod, from 1; 0: it has none.
    """

    path: str
    at: int = 0
    data: bytes = b""
    begins: bool = False
    end: bool = False
    number: int = 0


def encode(frame: Frame) -> str:
    """Return the line of a frame."""
    fields: dict[str, Any] = {"kind": MARK, "path": frame.path, "at": frame.at, "n": frame.number}
    if frame.data:
        fields["data"] = base64.b64encode(frame.data).decode()
    for name in ("begins", "end"):
        if getattr(frame, name):
            fields[name] = True
    return json.dumps(fields, separators=(",", ":"))


def decode(line: str) -> Frame | None:
    """Return the frame of a line; None where it has none, or one that no pod of ours would write."""
    try:
        fields = json.loads(line)
        if fields["kind"] != MARK:
            return None
        path, at, number = str(fields["path"]), fields["at"], fields.get("n", 0)
        path.encode()
        data = base64.b64decode(fields.get("data", ""), validate=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    end = fields.get("end") is True
    if not (_is_count(at) and _is_count(number) and (is_wanted(path) or (end and not path))):
        return None
    return Frame(path, at, data, fields.get("begins") is True, end, number)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def is_wanted(path: str) -> bool:
    """Return whether a file of the run folder is brought to whoever submitted the job."""
    parts = path.split("/")
    if len(parts) > _DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if parts[-1].endswith(_NEVER):
        return False
    return path in _FILES if len(parts) == 1 else parts[0] in (*_LOGS, *_RESULTS)


class Sender:
    """Finds what is new in a run folder. ``limit``: bytes of all outputs together that are sent this way."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._left = limit
        self._sent: dict[str, tuple[int, int]] = {}
        """By path: which file it was (its inode), and how much of it was sent."""

        self.left_out: list[str] = []
        """Outputs that did not fit."""

    def find_news(self, *, with_results: bool = False) -> Iterator[Frame]:
        """Yield what has been written since. Outputs come when the pod is about to end: they may change until then."""
        for path in self._list_files((*_LOGS, *_RESULTS) if with_results else _LOGS):
            yield from self._read(path)

    def _list_files(self, folders: Iterable[str]) -> Iterator[str]:
        yield from _FILES
        for name in folders:
            for place, _, files in os.walk(os.path.join(self._folder, name)):
                for file in sorted(files):
                    yield os.path.relpath(os.path.join(place, file), self._folder)

    def _read(self, path: str) -> Iterator[Frame]:
        if not is_wanted(path):
            return
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(os.path.join(self._folder, path), flags)
        except OSError:
            return
        try:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode):
                yield from self._read_from(descriptor, path, facts)
        finally:
            os.close(descriptor)

    def _read_from(self, descriptor: int, path: str, facts: os.stat_result) -> Iterator[Frame]:
        inode, at = self._sent.get(path, (0, 0))
        begins = inode != facts.st_ino or facts.st_size < at
        at = 0 if begins else at
        if path.split("/", 1)[0] in _RESULTS and not self._grant(path, facts.st_size - at):
            return
        self._sent[path] = (facts.st_ino, at)
        while at < facts.st_size or begins:
            data = os.pread(descriptor, min(PIECE, facts.st_size - at), at)
            if not data and not begins:
                return
            yield Frame(path, at, data, begins)
            at, begins = at + len(data), False
            self._sent[path] = (facts.st_ino, at)

    def _grant(self, path: str, size: int) -> bool:
        if size > self._left:
            if path not in self.left_out:
                self.left_out.append(path)
            return False
        self._left -= size
        return True
