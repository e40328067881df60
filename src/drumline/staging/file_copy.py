"""
Copies of the content of plain files, from descriptor to descriptor; holes stay holes.

Blocks are shared where the file system can (Btrfs, XFS, bcachefs): by FICLONE, or by copy_file_range, which does so by
itself. Files may be larger than memory: a piece is held at a time.
Source: man 2 ioctl_ficlone, man 2 copy_file_range, man 2 lseek (SEEK_DATA).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import struct
import time
from typing import TYPE_CHECKING

from drumline.contract.folder import PARTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_CHUNK = 1 << 20
_FICLONE = 0x40049409
_WORTH_CLONING_BYTES = 1 << 16
_WORTH_SEEKING_BYTES = 1 << 16
_MOST_AT_ONCE = 1 << 26
"""Whoever waits hears of progress in between."""

_CANNOT = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.ENOTTY, errno.EBADF)
_BLOCK_BYTES = 512


def create_file(path: str, mode: int) -> int:
    """Create a file, open for reading and writing whatever ``mode`` says. Raises OSError, also if the path exists."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def replace_file(source: str, target: str, told: Callable[[int], None] = lambda _: None) -> None:
    """
    Copy a plain file with its mode and times to ``target``, whole or not at all: it is written beside it. ``told`` is
    as of ``copy_content``. Raises OSError, also for a pipe or a device that it would take the place of.
    """
    import shutil

    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "not a plain file", target)

    partial = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}{PARTIAL}")
    original = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(original).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", source)
        made = create_file(partial, 0o600)
        try:
            copy_content(original, made, told)
        finally:
            os.close(made)
        shutil.copystat(source, partial)
        os.replace(partial, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError):
            error.filename, error.filename2 = error.filename or target, None
        raise
    finally:
        os.close(original)


def measure_data(facts: os.stat_result) -> int:
    """Return the bytes of a plain file that are no holes; 0 for anything else."""
    return min(facts.st_size, facts.st_blocks * _BLOCK_BYTES) if stat.S_ISREG(facts.st_mode) else 0


def copy_content(source: int, target: int, told: Callable[[int], None] = lambda _: None) -> None:
    """Copy the content into the empty file ``target``; ``told`` hears of each piece of bytes. Raises OSError."""
    facts = os.fstat(source)
    for begin, end, is_data in _list_extents(source, facts):
        if is_data:
            for at in range(begin, end, _MOST_AT_ONCE):
                part = min(end, at + _MOST_AT_ONCE)
                _copy_extent(source, target, at, part)
                told(part - at)
        else:
            os.ftruncate(target, end)
            told(end - begin)


def copy_and_digest(source: int, target: int) -> bytes:
    """
    Copy into the empty file ``target`` and return the SHA-256 of the copy: read once, or cloned and then read.

    Raises OSError.
    """
    facts = os.fstat(source)
    if facts.st_size >= _WORTH_CLONING_BYTES and _clone(source, target):
        return compute_digest(target)
    whole = hashlib.sha256()
    for begin, end, is_data in _list_extents(source, facts):
        if is_data:
            _read_extent(source, target, begin, end, whole)
        else:
            _add_zeros(whole, end - begin)
            os.ftruncate(target, end)
    return whole.digest()


def compute_digest(source: int) -> bytes:
    """Return the SHA-256 of an open file, from its beginning; holes are not read. Raises OSError."""
    whole = hashlib.sha256()
    for begin, end, is_data in _list_extents(source, os.fstat(source)):
        if is_data:
            _read_extent(source, None, begin, end, whole)
        else:
            _add_zeros(whole, end - begin)
    return whole.digest()


def _list_extents(source: int, facts: os.stat_result) -> Iterator[tuple[int, int, bool]]:
    """Yield begin, end and whether there is data, in order and without gaps."""
    size = facts.st_size
    if size < _WORTH_SEEKING_BYTES or facts.st_blocks * _BLOCK_BYTES >= size:
        if size:
            yield 0, size, True
        return
    at = 0
    while at < size:
        try:
            begin = os.lseek(source, at, os.SEEK_DATA)
            end = min(os.lseek(source, begin, os.SEEK_HOLE), size)
        except OSError as error:
            # ENXIO: there is no data any more. Else: this file system cannot say.
            begin, end = (size, size) if error.errno == errno.ENXIO else (at, size)
        if begin > at:
            yield at, min(begin, size), False
        if end > begin:
            yield begin, end, True
        at = max(end, begin)


def _read_extent(source: int, target: int | None, begin: int, end: int, whole: hashlib._Hash) -> None:
    at = begin
    while at < end:
        chunk = os.pread(source, min(_CHUNK, end - at), at)
        if not chunk:
            return  # It became shorter, which its stamp tells.
        whole.update(chunk)
        if target is not None:
            write_at(target, chunk, at)
        at += len(chunk)


def write_at(descriptor: int, data: bytes, at: int) -> None:
    """Write all of it, from that offset on. Raises OSError."""
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], at + written)


def _add_zeros(whole: hashlib._Hash, count: int) -> None:
    zeros = bytes(min(_CHUNK, count))
    while count:
        size = min(len(zeros), count)
        whole.update(zeros if size == len(zeros) else zeros[:size])
        count -= size


def _copy_extent(source: int, target: int, begin: int, end: int) -> None:
    at = begin
    while at < end:
        try:
            count = os.copy_file_range(source, target, min(end - at, _MOST_AT_ONCE), at, at)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            count = 0
        if not count:  # Some file systems say 0 for what they cannot do.
            _read_and_write(source, target, at, end)
            return
        at += count


def _read_and_write(source: int, target: int, at: int, end: int) -> None:
    while at < end and (chunk := os.pread(source, min(_CHUNK, end - at), at)):
        write_at(target, chunk, at)
        at += len(chunk)


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


# stamps, by which an unchanged file is known without being read


_STAMP = struct.Struct("<5Q")
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_SIZE = struct.Struct("<Q")
_DEVICE_AT = 32

SETTLED_S = 2.0
"""A file that was changed this recently may change again without another time stamp: FAT counts in steps of 2 s."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IS_ANOTHER = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.EISDIR, errno.ESTALE)


class ChangedError(Exception):
    """The file at ``path`` is no longer what it was when it was listed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def stamp_of(facts: os.stat_result) -> bytes:
    """
    Return size, times, number and device: 40 bytes that differ after every change, and from every other file's.

    Not told apart: two changes within one tick of the file system's clock, and what is written through a mapping of
    the file to memory before the kernel notes the time. See ``is_settled``.
    """
    return _STAMP.pack(
        facts.st_size,
        facts.st_mtime_ns & _WORD,
        facts.st_ctime_ns & _WORD,
        facts.st_ino & _WORD,
        facts.st_dev & _WORD,
    )


def is_settled(facts: os.stat_result, now_s: float | None = None) -> bool:
    """Return whether a stamp from before it was read will tell of a change after ``now_s``, when it had been read."""
    latest_s = max(facts.st_mtime, facts.st_ctime)
    return (time.time() if now_s is None else now_s) - latest_s > SETTLED_S


def mark_untrusted(stamp: bytes) -> bytes:
    """Return a stamp with its size that no file has."""
    return stamp[:_DEVICE_AT] + b"\xff" * (len(stamp) - _DEVICE_AT)


def have_equal_sizes(one: bytes, other: bytes) -> bool:
    return one[: _SIZE.size] == other[: _SIZE.size]


def size_of(stamp: bytes) -> int:
    return int(_SIZE.unpack_from(stamp)[0])


def open_unchanged(path: str, stamp: bytes) -> int:
    """
    Return a descriptor of the plain file that had this stamp; the caller closes it.

    Never waits, as for a pipe, and never leads through a link at the end of the path; a link or another folder on the
    way shows in the file's number. Raises ChangedError, and OSError for what cannot be read.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except OSError as error:
        if error.errno in _IS_ANOTHER:
            raise ChangedError(path) from error
        raise
    try:
        check_unchanged(descriptor, path, stamp)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_unchanged(descriptor: int, path: str, stamp: bytes) -> os.stat_result:
    """Return the facts of an open file. Raises ChangedError if it is not a plain file with this stamp."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or stamp_of(facts) != stamp:
        raise ChangedError(path)
    return facts
