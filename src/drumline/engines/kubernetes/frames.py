"""
The output of a pod, by which its files reach whoever submitted the job: a line of JSON for each piece of a file.

A piece is written where it belongs, so that reading a pod's output once more does no harm. What a job may write to the
same output by itself is no frame, and left out.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import PARTIAL
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "drumline-frame"
PIECE = 48 * 1024
"""Bytes of a file in one line. Source: container runtimes part lines above 16 kB, and join them for readers."""

MOST_RESULTS = 4 << 20
"""Bytes of outputs that reach the client through the log of a pod, which a node keeps 10 MB of by default."""

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
_OURS = ("system_logs", "system_metrics", "steps", "log_times")
"""Folders in which Drumline alone writes; what it has begun to write there is no file yet."""

_RESERVE = "system_logs/reserve"
LEFT_OUT = "outputs-left-out-"
"""The beginning of the names of files in ``system_logs`` that list outputs which a pod did not send."""

MOST_LISTED = 1000
"""Lines of such a list."""

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
    if path == _RESERVE or (parts[0] in _OURS and path.endswith(PARTIAL)):
        return False
    return path in _FILES if len(parts) == 1 else parts[0] in (*_LOGS, *_RESULTS)


def _is_result(path: str) -> bool:
    return path.split("/", 1)[0] in _RESULTS


class _LeftOutError(Exception):
    """The reason why an output is not sent."""


class Sender:
    """Finds what is new in a run folder. ``limit``: bytes of all outputs together that are sent this way."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = self._left = limit
        self._sent: dict[str, tuple[int, int]] = {}
        """By path: which file it was (its inode), and how much of it was sent."""

        self.left_out: dict[str, str] = {}
        """Outputs that were not sent, and why."""

    def find_news(self, *, with_results: bool = False) -> Iterator[Frame]:
        """Yield what has been written since. Outputs come when the pod is about to end: they may change until then."""
        for path in (*_FILES, *self._list_files(_LOGS)):
            yield from self._read(path)
        if with_results:
            # A file goes before what is there under another name too.
            paths = list(self._list_files(_RESULTS))
            for path in sorted(paths, key=lambda path: os.path.islink(os.path.join(self._folder, path))):
                yield from self._read(path)

    def list_left_out(self, pod: str) -> Iterator[Frame]:
        """Yield a file that lists the outputs of this pod that were not sent: a line of JSON for each."""
        lines: list[Any] = [
            {"path": path, "reason": why}
            for path, why in itertools.islice(self.left_out.items(), MOST_LISTED)
        ]
        if len(self.left_out) > MOST_LISTED:
            lines.append({"more": len(self.left_out) - MOST_LISTED})
        data = "".join(json.dumps(one) + "\n" for one in lines).encode()
        for at in range(0, len(data), PIECE):
            yield Frame(f"system_logs/{LEFT_OUT}{pod}.jsonl", at, data[at : at + PIECE], begins=not at)

    def _list_files(self, folders: Iterable[str]) -> Iterator[str]:
        def note(error: OSError) -> None:
            path = os.path.relpath(str(error.filename), self._folder)
            if _is_result(path) and not isinstance(error, FileNotFoundError):
                self.left_out[path] = str(error.strerror)

        for name in folders:
            for place, inner, files in os.walk(os.path.join(self._folder, name), onerror=note):
                links = [one for one in inner if os.path.islink(os.path.join(place, one))]
                for file in sorted(files + links):
                    yield os.path.relpath(os.path.join(place, file), self._folder)

    def _read(self, path: str) -> Iterator[Frame]:
        try:
            descriptor = self._open(path)
        except (_LeftOutError, OSError) as error:
            if _is_result(path):
                self.left_out[path] = str(getattr(error, "strerror", "") or error)
            return
        try:
            yield from self._read_from(descriptor, path, os.fstat(descriptor))
        except _LeftOutError as error:
            self.left_out[path] = str(error)
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        """Open a plain file, or one that a link of the same output leads to. Raises _LeftOutError and OSError."""
        if not is_wanted(path):
            depth = path.count("/")
            raise _LeftOutError(
                f"more than {_DEEPEST - 1} folders deep" if depth >= _DEEPEST else "not wanted"
            )
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _LeftOutError("its name is not UTF-8") from None
        if _is_result(path) and os.path.islink(os.path.join(self._folder, path)):
            path = self._resolve(path)
        descriptor = _open_beneath(self._folder, path)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise _LeftOutError("no plain file")

    def _resolve(self, path: str) -> str:
        """Return what a link in an output leads to, if that is a file of the same output. Raises _LeftOutError."""
        parts = path.split("/")
        output = "/".join(parts[: 1 if parts[0] == "outputs" else 2])
        root = os.path.join(os.path.realpath(self._folder), output)
        target = os.path.realpath(os.path.join(self._folder, path))
        if not target.startswith(root + "/"):
            raise _LeftOutError("a link out of its output")
        if os.path.isdir(target):
            raise _LeftOutError("a link to a folder")
        if not os.path.exists(target):
            raise _LeftOutError("a link to nothing")
        return output + target.removeprefix(root)

    def _read_from(self, descriptor: int, path: str, facts: os.stat_result) -> Iterator[Frame]:
        inode, at = self._sent.get(path, (0, 0))
        begins = inode != facts.st_ino or facts.st_size < at
        at = 0 if begins else at
        if _is_result(path):
            size = facts.st_size - at
            if size > self._left:
                room = f"{format_size(self._left)} of {format_size(self._limit)} is left in its pod's log"
                raise _LeftOutError(f"{format_size(size)}, and {room}")
            self._left -= size
        self._sent[path] = (facts.st_ino, at)
        while at < facts.st_size or begins:
            data = os.pread(descriptor, min(PIECE, facts.st_size - at), at)
            if not data and not begins:
                return
            yield Frame(path, at, data, begins)
            at, begins = at + len(data), False
            self._sent[path] = (facts.st_ino, at)


def _open_beneath(folder: str, path: str) -> int:
    """Open a file to read it; no link is followed on the way below the folder. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.split("/")
        for one in folders:
            inner = os.open(one, flags | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, flags | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
