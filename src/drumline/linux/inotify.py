"""The kernel's word that a file was written to. Source: inotify(7)."""

from __future__ import annotations

import os
import struct

from drumline.contract.record import NamedTuple

_MODIFY = 0x2
_MOVED_FROM = 0x40
_MOVED_TO = 0x80
_CREATE = 0x100
_DELETE = 0x200
_OVERFLOW = 0x4000
_ONLY_FOLDER = 0x01000000
_ONCE = 0x80000000

_HEADER = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 18


class FileEvent(NamedTuple):
    """
    An event in a watched file or folder. ``name``: of what came or went in a folder. ``lost``: there were more events
    than the kernel keeps. ``written``: a file was.
    """

    watch: int
    name: str
    lost: bool
    written: bool


class Inotify:
    """A connection to inotify. Raises OSError where there is none, or no more of it for this user."""

    def __init__(self) -> None:
        try:
            import ctypes

            self._errno = ctypes.get_errno
            libc = ctypes.CDLL(None, use_errno=True)
            self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
            self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
            self.descriptor = self._check_result(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except (ImportError, AttributeError) as error:
            raise OSError(str(error)) from None

    def watch_folder(self, path: str) -> int:
        """Watch for names that come and go, until told to stop. Raises OSError."""
        mask = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _ONLY_FOLDER
        return self._check_result(self._add(self.descriptor, os.fsencode(path), mask))

    def watch_file(self, descriptor: int) -> int:
        """Watch for the next write to this very file, whatever its name is by now. Raises OSError."""
        # Once only: a rank that writes all the time costs an event for each look at its log, not for each write.
        return self.watch_path(f"/proc/self/fd/{descriptor}", once=True)

    def watch_path(self, path: str, *, once: bool) -> int:
        """Watch for the next write to the file there, or for each one. Raises OSError."""
        return self._check_result(
            self._add(self.descriptor, os.fsencode(path), _MODIFY | (_ONCE if once else 0))
        )

    def forget(self, watch: int) -> None:
        self._remove(self.descriptor, watch)

    def events(self) -> list[FileEvent]:
        """Return events that have come, as many as fit. Does not block."""
        try:
            return _parse_events(os.read(self.descriptor, _BUFFER_BYTES))
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self.descriptor)

    def _check_result(self, result: int) -> int:
        if result < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return result


def _parse_events(data: bytes) -> list[FileEvent]:
    found = []
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        found.append(FileEvent(watch, name, bool(mask & _OVERFLOW), bool(mask & _MODIFY)))
    return found
