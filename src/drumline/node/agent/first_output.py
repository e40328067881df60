"""
The moments at which a rank says its first word, has its first process group, its first optimizer, and an
exception that ends its program.

The kernel tells of the first write to a log, and of notes in a rank's file for them (``failures.py``), by inotify.
Where it cannot, as on some file systems, files are looked at in the agent's idle moments, and when their rank has
ended.
A log is not watched any more once it has been told; notes may go on until the rank's end.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.record import NamedTuple
from drumline.linux.inotify import Inotify
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POLL_INTERVAL_S = 0.9
"""Between two looks at files; less than the agent's idle second, so that each of those has one."""

_MAX_BYTES = 1 << 16

_OLDER_STORE = (
    "this PyTorch was built without libuv, so Drumline set USE_LIBUV=0 for it: "
    "the store of its process group is the older one, in which many ranks take longer to meet"
)


class _AwaitedFile(NamedTuple):
    """A file that is awaited to grow. ``size``: of the file, before."""

    file: str
    size: int
    since: float


class FirstOutputWatcher:
    """
    Watches for the first output of ranks. ``tell`` sends a message to the supervisor. ``given``: what to watch with,
    which is somebody else's to close; None: one of our own, while there is something to watch.
    """

    def __init__(
        self, poller: select.epoll, tell: Callable[[m.FromAgent], object], given: Inotify | None = None
    ) -> None:
        self._poller = poller
        self._tell = tell
        self._given = given
        self._inotify: _WatchedFiles | None = None
        self._logs: dict[int, _AwaitedFile] = {}
        self._notes: dict[int, _AwaitedFile] = {}
        self._noted: dict[int, set[type]] = {}
        """By rank, the kinds of notes that were told."""

        self._looked = 0.0

    def expect(self, rank: int, log: str, notes: str) -> None:
        """Expect output of a rank that is to be started. ``notes`` may be empty. Never raises."""
        self.forget(rank)
        now = time.monotonic()
        for awaited, file in ((self._logs, log), (self._notes, notes)):
            if file:
                awaited[rank] = _AwaitedFile(file, _create_file(file), now)
                # The first of the notes may be another: of a program that has ended.
                self._watch(file, once=awaited is self._logs)

    def look(self, ready: Sequence[int]) -> None:
        """
        Look for new output. ``ready``: descriptors. Cheap where none is ours; to be called in each idle moment too.
        """
        changed: set[str] = set()
        if self._inotify is not None and self._inotify.descriptor in ready:
            changed = self._inotify.read_changed()
        elif time.monotonic() < self._looked + _POLL_INTERVAL_S or not (self._logs or self._notes):
            return
        else:
            self._looked = time.monotonic()
        for rank, awaited in list(self._logs.items()):
            if awaited.file in changed or (not changed and read_size(awaited.file) > awaited.size):
                self._tell_output(rank)
        for rank, awaited in list(self._notes.items()):
            if awaited.file in changed or (not changed and read_size(awaited.file) > awaited.size):
                self._tell_notes(rank)
        self._close_when_done()

    def note_end(self, rank: int, at: float) -> None:
        """
        Look for the last time for output of a rank that ended by ``at`` at the latest; to be called before that is
        told.
        """
        log = self._logs.get(rank)
        if log and read_size(log.file) > log.size:
            self._tell_output(rank, at)
        notes = self._notes.get(rank)
        if notes and read_size(notes.file) > notes.size:
            self._tell_notes(rank)
        self.forget(rank)
        self._close_when_done()

    def forget(self, rank: int) -> None:
        """Forget a rank; what was not told of it yet never is."""
        self._noted.pop(rank, None)
        for awaited in (self._logs.pop(rank, None), self._notes.pop(rank, None)):
            if awaited is not None and self._inotify is not None:
                self._inotify.leave(awaited.file)

    def _tell_output(self, rank: int, at: float | None = None) -> None:
        awaited = self._logs.pop(rank)
        if self._inotify is not None:
            self._inotify.leave(awaited.file)
        self._tell(e.FirstOutput(time.monotonic() if at is None else at, rank, m.HERE))

    def _tell_notes(self, rank: int) -> None:
        """Tell of the first group and optimizer, and of each exception: that of a child may be an expected one."""
        awaited = self._notes[rank]
        size = read_size(awaited.file)
        now, lines = time.monotonic(), failures.read_lines(awaited.file)
        if failures.has_training(lines, awaited.since, now):
            self._tell_once(m.TrainingSeen(rank))
        group = failures.find_first_group(lines, awaited.since, now)
        if group is not None:
            formed_at, backend, has_older_store = group
            is_new = self._tell_once(e.GroupFormed(formed_at, rank, m.HERE, backend))
            if is_new and has_older_store:
                self._tell(e.JobWarned(formed_at, "libuv", _OLDER_STORE))
        if failures.ends_with_exception(lines, awaited.since, now):
            self._tell(m.ExceptionSeen(rank))
        if size < _MAX_BYTES:
            self._notes[rank] = awaited._replace(size=size)
            return
        del self._notes[rank]
        if self._inotify is not None:
            self._inotify.leave(awaited.file)

    def _tell_once(self, message: m.TrainingSeen | e.GroupFormed) -> bool:
        """Tell of it, unless one of its kind was told of this rank; return whether it was told."""
        told = self._noted.setdefault(message.rank, set())
        is_new = type(message) not in told
        if is_new:
            told.add(type(message))
            self._tell(message)
        return is_new

    def _watch(self, file: str, *, once: bool) -> None:
        if self._inotify is None:
            with contextlib.suppress(OSError):
                self._inotify = _WatchedFiles(self._given or Inotify())
                self._poller.register(self._inotify.descriptor, select.EPOLLIN)
        if self._inotify is not None:
            self._inotify.watch(file, once=once)

    def _close_when_done(self) -> None:
        if self._inotify is not None and not self._logs and not self._notes:
            self._poller.unregister(self._inotify.descriptor)
            if self._given is None:
                self._inotify.close()
            self._inotify = None


class _WatchedFiles:
    """The files that the kernel tells of."""

    def __init__(self, inotify: Inotify) -> None:
        self._inotify = inotify
        self.descriptor = self._inotify.descriptor
        self.close = self._inotify.close
        self._files: dict[int, str] = {}

    def watch(self, file: str, *, once: bool) -> None:
        """Watch a file; one that cannot be watched is left to those who look."""
        with contextlib.suppress(OSError):
            self._files[self._inotify.watch_path(file, once=once)] = file

    def leave(self, file: str) -> None:
        for number in [number for number, name in self._files.items() if name == file]:
            del self._files[number]
            # One whose only event has come is gone already, which does no harm.
            self._inotify.forget(number)

    def read_changed(self) -> set[str]:
        events = self._inotify.events()
        return {self._files[one.watch] for one in events if one.written and one.watch in self._files}


def _create_file(file: str) -> int:
    """Create a file for its owner alone, or take the one that is there; return its size, 0 where that cannot be."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return read_size(file)


def read_size(file: str) -> int:
    """Return the size of a file, 0 where it cannot be read."""
    try:
        return os.stat(file).st_size
    except OSError:
        return 0
