"""
Scalars of TensorBoard's event files, read without it; a file that grows is read on from where it ended.

``read_scalars`` finds the files and names the tags, ``_EventFile`` splits a file into records, and
``tensorboard_records`` parses one. A job can write anything there, so a read is limited in files, bytes and time.

Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h (the framing),
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/backend/event_processing/io_wrapper.py (the names).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple
from drumline.tracking import tensorboard_records
from drumline.tracking.tensorboard_records import masked_crc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.tracking.metrics import Point

MOST_FILES = 1000
MOST_TAGS = 2000
MOST_POINTS = 4096
"""Of one tag in one answer; of more, evenly chosen ones and the last."""

_MOST_ENTRIES = 50_000
_DEEPEST = 16
_MOST_BYTES = 64 << 20
"""In one answer."""

_READ_LIMIT_S = 4.0
_CHUNK = 1 << 20
_HEADER = 12
_LARGEST = 8 << 20
"""Of a record that is looked into; images and graphs may be larger, and are passed by."""

_CHECKED = 1024
"""Up to this size a record's content is compared with its checksum: scalars are smaller."""


class ReadState:
    """
    The point up to which the files of a folder have been read. ``behind``: there was more than one answer may hold.
    """

    def __init__(self) -> None:
        self.behind = False
        self.positions: dict[str, _FilePosition] = {}
        self.kinds: dict[str, bool] = {}
        """Whether a tag is one of scalars; its plug-in is named in its first record alone."""


class _FilePosition(NamedTuple):
    inode: int
    offset: int


def is_there(folder: str) -> bool:
    """Return whether there is any event file beneath the folder."""
    return next(_list_files(folder), None) is not None


def read_scalars(
    folder: str, state: ReadState | None = None, *, limit_s: float = _READ_LIMIT_S
) -> dict[str, list[Point]]:
    """
    Return the new points beneath that folder since the last call with ``state``, by tag, in the files' order.

    Tags are as TensorBoard shows them, with the run in front: ``version_0/loss`` of a file in ``version_0``. Of a tag
    with more than MOST_POINTS new points some are left out. Blocks for up to ``limit_s``; ``state.behind`` then says to
    call again. Never raises: a folder or a file that cannot be read has nothing in it, what is damaged ends a file
    there, and a record that is not whole yet is read when it is.
    """
    state = ReadState() if state is None else state
    work = _ScalarRead(state, time.monotonic() + limit_s)
    for path in sorted(_list_files(folder)):
        relative = os.path.relpath(os.path.dirname(path), folder)
        work.read(path, "" if relative == "." else _text(relative) + "/")
    state.behind = work.is_over
    return {tag: line.points for tag, line in sorted(work.lines.items())}


class _ScalarRead:
    """One answer that is being put together."""

    def __init__(self, state: ReadState, deadline: float) -> None:
        self._state = state
        self._deadline = deadline
        self._left = _MOST_BYTES
        self.lines: dict[str, _TagPoints] = {}
        self.is_over = False
        """Whether a limit was met."""

    def read(self, path: str, run: str) -> None:
        """Go on reading one file."""
        if self.is_over:
            return
        try:
            with open_plain(path) as file:
                self._read(_EventFile(file.fileno(), path), run)
        except OSError:
            return

    def _read(self, file: _EventFile, run: str) -> None:
        inode = os.fstat(file.descriptor).st_ino
        before = self._state.positions.get(file.path)
        file.offset = before.offset if before and before.inode == inode else 0
        begun = file.offset
        for data in file.records():
            if data is not None:
                for tag, point in tensorboard_records.parse_scalars(data, run, self._state.kinds):
                    self._add(tag, point)
            self._state.positions[file.path] = _FilePosition(inode, file.offset)
            if file.offset - begun > self._left or time.monotonic() > self._deadline:
                self.is_over = True
                break
        self._left -= file.offset - begun

    def _add(self, tag: str, point: Point) -> None:
        line = self.lines.get(tag)
        if line is None:
            if len(self.lines) >= MOST_TAGS:
                return
            line = self.lines[tag] = _TagPoints()
        line.add(point)


class _TagPoints:
    """The points of a tag: all of them while they are few, then every second, every fourth; and always the last."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._stride = 1
        self._count = 0
        """Of those added."""

    def add(self, point: Point) -> None:
        if self._count and (self._count - 1) % self._stride:
            self.points[-1] = point
        else:
            self.points.append(point)
        self._count += 1
        if len(self.points) > MOST_POINTS:
            last = self.points[-1]
            self._stride *= 2
            self.points = self.points[::2]
            if (self._count - 1) % self._stride:
                self.points.append(last)


class _EventFile:
    """An open event file, and where its next record begins."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self.offset = 0
        self._chunk = b""
        self._start = 0
        """The chunk's own offset."""

    def records(self) -> Iterator[bytes | None]:
        """
        Yield the content of each whole record from ``offset`` on, and move that behind it; None for a skipped one.

        Ends at the end of the file, at a record that is still being written, and for good where a length is damaged.
        """
        size = os.fstat(self.descriptor).st_size
        while self.offset + _HEADER <= size:
            header = self._at(self.offset, _HEADER)
            if len(header) < _HEADER or masked_crc(header[:8]) != int.from_bytes(header[8:], "little"):
                return
            length = int.from_bytes(header[:8], "little")
            end = self.offset + _HEADER + length + 4
            if end > size:
                return
            data = self._content(length)
            self.offset = end
            yield data

    def _content(self, length: int) -> bytes | None:
        if length > _LARGEST:
            return None
        data = self._at(self.offset + _HEADER, length + 4)
        if len(data) < length + 4:
            return None
        content, crc = data[:length], int.from_bytes(data[length:], "little")
        return content if length > _CHECKED or masked_crc(content) == crc else None

    def _at(self, offset: int, count: int) -> bytes:
        """Read at an offset; fewer bytes at the end of the file."""
        begin = offset - self._start
        if begin < 0 or begin + count > len(self._chunk):
            self._chunk = os.pread(self.descriptor, max(_CHUNK, count), offset)
            self._start, begin = offset, 0
        return self._chunk[begin : begin + count]


def _list_files(folder: str) -> Iterator[str]:
    """Yield event files beneath it, at most MOST_FILES; links are not followed."""
    count = looked_at = 0
    folders = [(folder, 0)]
    while folders:
        place, depth = folders.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    looked_at += 1
                    if looked_at > _MOST_ENTRIES:
                        return
                    if entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                        folders.append((entry.path, depth + 1))
                    elif ".tfevents." in entry.name and entry.is_file(follow_symlinks=False):
                        count += 1
                        yield entry.path
                        if count >= MOST_FILES:
                            return
        except OSError:
            continue


def _text(name: str) -> str:
    """Return a folder's name, which need not be Unicode."""
    return os.fsencode(name).decode("utf-8", "replace")
