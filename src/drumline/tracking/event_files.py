"""
Scalars of TensorBoard's event files, read without it; a file that grows is read on from where it ended.

``read_scalars`` finds the files and names the tags, ``_EventFile`` splits a file into records, each parsed by itself.
A job can write anything there, so a read is limited in files, bytes and time.

Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h (the framing),
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/backend/event_processing/io_wrapper.py (the names).
"""

from __future__ import annotations

import os
import struct
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple
from drumline.tracking.metrics import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    Field = tuple[int, int, int | bytes]


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
                for tag, point in parse_scalars(data, run, self._state.kinds):
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
            last = self.points.pop()
            self._stride *= 2
            self.points = [*self.points[::2], last]


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


# one record: an ``Event`` of TensorBoard, and its scalars


_LONGEST_TAG = 500
_MOST_KINDS = 100_000
_MOST_MS = 1 << 53

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SCALARS = b"scalars"
_DATA_CLASS_SCALAR = 1

# By TensorProto.dtype: the format of one value in tensor_content, and the field that has it otherwise.
_DTYPES = {
    1: ("<f", 5),
    2: ("<d", 6),
    3: ("<i", 7),
    4: ("<B", 7),
    5: ("<h", 7),
    6: ("<b", 7),
    9: ("<q", 10),
    10: ("<?", 11),
    14: ("", 13),
    17: ("<H", 7),
    19: ("<e", 13),
    22: ("<I", 16),
    23: ("<Q", 17),
}
_BFLOAT16 = 14
_HALVES = 13
_UNSIGNED = (16, 17)
_PACKED = {5: "<f", 6: "<d"}

_SIZES = {_FIXED64: 8, _FIXED32: 4}
_ALL = (1 << 64) - 1
_LONGEST_SHIFT = 63


def parse_scalars(record: bytes, run: str, kinds: dict[str, bool]) -> Iterator[tuple[str, Point]]:
    """
    Yield the scalars of a record, each with its tag and ``run`` in front; none if it has something else, or is damaged.

    ``kinds`` is known of the tags before, and grows: whether each is one of scalars.
    """
    try:
        wall_time, step, summaries = _parse_event(record)
        for number, _, value in (field for summary in summaries for field in _parse_fields(summary)):
            scalar = _parse_value(value, run, kinds) if number == 1 and isinstance(value, bytes) else None
            if scalar is not None:
                yield scalar[0], Point(step, wall_time, scalar[1])
    except (ValueError, TypeError, IndexError, OverflowError, struct.error):
        return


def _parse_event(record: bytes) -> tuple[int, int, list[bytes]]:
    """Return the time in milliseconds since 1970, the step, and the summaries."""
    wall_time, step, summaries = 0.0, 0, []
    for number, kind, value in _parse_fields(record):
        if (number, kind) == (1, _FIXED64):
            wall_time = _unpack("<d", value)
        elif (number, kind) == (2, _VARINT):
            step = _to_signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    milliseconds = int(wall_time * 1000) if 0 <= wall_time * 1000 < _MOST_MS else 0
    return milliseconds, step, summaries


def _parse_value(data: bytes, run: str, kinds: dict[str, bool]) -> tuple[str, float] | None:
    """Return tag and value of a ``Summary.Value``; None if it is not a scalar."""
    tag, simple, tensor, metadata = "", None, None, None
    for number, kind, value in _parse_fields(data):
        if (number, kind) == (2, _FIXED32):
            simple = _unpack("<f", value)
        elif not isinstance(value, bytes):
            continue
        elif number == 1 and len(value) <= _LONGEST_TAG:
            tag = run + value.decode("utf-8", "replace")
        elif number == 8:
            tensor = value
        elif number == 9:
            metadata = value
    if not tag:
        return None
    if metadata is not None and len(kinds) < _MOST_KINDS:
        kinds.setdefault(tag, _is_of_scalars(metadata))
    if simple is None and tensor is not None and kinds.get(tag, True):
        simple = _read_tensor(tensor)
    return None if simple is None else (tag, simple)


def _is_of_scalars(metadata: bytes) -> bool:
    """Return whether ``SummaryMetadata`` says so, by plug-in or class of data. One that has neither may be."""
    plugin: int | bytes = b""
    data_class = 0
    for number, _, value in _parse_fields(metadata):
        if number == 1 and isinstance(value, bytes):
            plugin = next((name for field, _, name in _parse_fields(value) if field == 1), b"")
        elif number == 4 and isinstance(value, int):
            data_class = value
    return plugin == _SCALARS or data_class == _DATA_CLASS_SCALAR or not (plugin or data_class)


def _read_tensor(data: bytes) -> float | None:
    """Return the value of a ``TensorProto`` that holds exactly one number."""
    dtype, content = 0, b""
    repeated: dict[int, int | bytes] = {}
    for number, _, value in _parse_fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 2 and isinstance(value, bytes):
            if any(field == 2 for field, _, _ in _parse_fields(value)):
                return None  # It has dimensions.
        elif number == 4 and isinstance(value, bytes):
            content = value
        else:
            repeated[number] = value
    shape, field = _DTYPES.get(dtype, ("", 0))
    if not field:
        return None
    if content:
        if dtype == _BFLOAT16:
            return _bfloat16(int.from_bytes(content, "little")) if len(content) == 2 else None
        return _unpack(shape, content) if len(content) == struct.calcsize(shape) else None
    return _read_repeated(repeated[field], dtype, field) if field in repeated else 0.0


def _read_repeated(value: int | bytes, dtype: int, field: int) -> float | None:
    """Return one value of ``float_val`` and the like, packed or not."""
    if field in _PACKED:
        form = _PACKED[field]
        is_one = isinstance(value, bytes) and len(value) == struct.calcsize(form)
        return _unpack(form, value) if is_one else None
    if isinstance(value, bytes):
        value, _ = _varint(value, 0)
    if field == _HALVES:
        bits = value & 0xFFFF
        return _bfloat16(bits) if dtype == _BFLOAT16 else _unpack("<e", bits.to_bytes(2, "little"))
    return float(value if field in _UNSIGNED else _to_signed(value))


def _parse_fields(data: bytes) -> Iterator[Field]:
    """
    Yield each field of a message: its number, its wire type, and its value; one of fixed size as bytes.

    Raises ValueError, IndexError for what is no message.
    """
    position, size = 0, len(data)
    while position < size:
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(data, position)
            yield key >> 3, kind, number
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in _SIZES:
            length = _SIZES[kind]
        else:
            raise ValueError(f"a field of kind {kind}")
        end = position + length
        if end > size:
            raise ValueError("a field that is cut short")
        yield key >> 3, kind, data[position:end]
        position = end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number, and where the next begins. Raises IndexError, ValueError."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _ALL, position
        shift += 7
        if shift > _LONGEST_SHIFT:
            raise ValueError("a number of more than 64 bits")


def _to_signed(value: int | bytes) -> int:
    """Return a signed number of 64 bits; a negative one of 32 is written with as many."""
    if isinstance(value, bytes):
        raise TypeError("no number")
    return value - (1 << 64) if value >> 63 else value


def _unpack(form: str, value: int | bytes) -> float:
    if isinstance(value, int):
        raise TypeError("no bytes")
    return float(struct.unpack(form, value)[0])


def _bfloat16(bits: int) -> float:
    """Return the float whose upper half this is."""
    return _unpack("<f", (bits << 16).to_bytes(4, "little"))


def masked_crc(data: bytes) -> int:
    """Return the checksum in front of and behind a record."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)
