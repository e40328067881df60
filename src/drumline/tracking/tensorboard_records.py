"""
One record of an event file: an ``Event`` of TensorBoard, and the scalars in it.

Only the fields that scalars need are looked at, by hand: protobuf need not be there. Nesting that is not expected is
passed by, so that no input makes this recurse.

Source: https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto (event.proto, summary.proto,
tensor.proto, types.proto), https://protobuf.dev/programming-guides/encoding/ (the encoding),
https://datatracker.ietf.org/doc/html/rfc3720#appendix-B.4 (CRC-32C).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from drumline.tracking.metrics import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    Field = tuple[int, int, int | bytes]

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
_LENGTH = 8


def parse_scalars(record: bytes, run: str, kinds: dict[str, bool]) -> Iterator[tuple[str, Point]]:
    """
    Yield the scalars of a record, each with its tag and ``run`` in front; none if it has something else, or is damaged.

    ``kinds`` is known of the tags before, and grows: whether each is one of scalars.
    """
    try:
        wall_time, step, summaries = _parse_event(record)
        for value in (value for summary in summaries for value in _list_values(summary)):
            found = _parse_value(value, run, kinds)
            if found is not None:
                yield found[0], Point(step, wall_time, found[1])
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


def _list_values(summary: bytes) -> Iterator[bytes]:
    return (value for number, _, value in _parse_fields(summary) if number == 1 and isinstance(value, bytes))


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
    """Return the checksum in front of and behind a record. Lengths are few, and come again and again."""
    return _masked_crc(data) if len(data) == _LENGTH else _crc(data)


@lru_cache(maxsize=4096)
def _masked_crc(data: bytes) -> int:
    return _crc(data)


def _crc(data: bytes) -> int:
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
