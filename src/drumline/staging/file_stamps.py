"""Stamps of plain files, by which an unchanged file is known without being read."""

from __future__ import annotations

import errno
import os
import stat
import struct
import time

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
