"""
The events of a job's supervisor, appended to those here: people's own changes are in the same file.

Nothing is kept of how far this went: whoever begins anew is given the supervisor's file from its beginning, and leaves
out the lines that are here.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter

from drumline.contract import events as e
from drumline.contract.folder import LONGEST_EVENT, open_plain

_BEGIN = b'{"type":"'
_ATTEMPT_ENDED = e.begin_of(e.AttemptEnded)


class SupervisorEvents:
    """Appends each line of the supervisor's file once, in one write, as all who append to events do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        """How much of the supervisor's file was taken."""

        self._rest = b""
        """Of that, the beginning of a line."""

        self._is_cut = False
        """Whether the next line may lack its beginning, which was lost."""

        self._here: Counter[bytes] | None = None
        """Lines that were here already, and have not come yet; None: not looked yet."""

        self._attempts_ended = 0

    def count_ended_attempts(self) -> int:
        """Count the attempts that have ended by the events here. Raises OSError."""
        self._look()
        return self._attempts_ended

    def take(self, at: int, data: bytes) -> None:
        """Take a piece of the supervisor's file. Raises OSError; the piece may be given again then."""
        here = self._look()
        if at > self._at:
            self._at, self._rest, self._is_cut = at, b"", True
        data = data[self._at - at :]
        while data:
            line, end, data = data.partition(b"\n")
            whole = self._rest + line + end
            if end:
                if not self._is_cut or whole.startswith(_BEGIN):
                    self._add(here, whole)
                self._is_cut, whole = False, b""
            elif len(whole) > LONGEST_EVENT:
                self._is_cut, whole = True, b""
            self._at, self._rest = self._at + len(line) + len(end), whole

    def _look(self) -> Counter[bytes]:
        if self._here is None:
            here: Counter[bytes] = Counter()
            with contextlib.suppress(FileNotFoundError), open_plain(self._path) as file:
                while (line := file.readline(LONGEST_EVENT)).endswith(b"\n"):
                    here[line] += 1
                    self._count(line)
            self._here = here
        return self._here

    def _count(self, line: bytes) -> None:
        if line.startswith(_ATTEMPT_ENDED):
            event = e.from_line(line)
            if isinstance(event, e.AttemptEnded):
                self._attempts_ended = max(self._attempts_ended, event.attempt + 1)

    def _add(self, here: Counter[bytes], line: bytes) -> None:
        if line in here:
            here[line] -= 1
            if not here[line]:
                del here[line]
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # A writer that was killed may have left the beginning of a line.
            begins = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            whole = line if begins else b"\n" + line
            if os.write(descriptor, whole) < len(whole):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"\n")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        finally:
            os.close(descriptor)
        self._count(line)
