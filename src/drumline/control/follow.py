"""
The logs of all ranks as they grow, line by line, and the end of the job.

Files are read, never pipes: whoever watches cannot slow the ranks, and may come and go.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from drumline.contract import identity
from drumline.contract.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

LINE_LIMIT = 64 * 1024
"""Bytes of a line that a person is shown; the file has all of them."""

RAW_LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of a line that go to a pipe or file: it is held in memory, so that lines of several ranks do not mix."""

_CHUNK = 1 << 18
_PROGRESS_S = 1.0
"""How often a progress bar that never ends its line is shown."""

_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.1

_LOOK_S = 1.0
"""Between two looks at what became of a job whose supervisor is on another machine."""


class Line(NamedTuple):
    """``text``: bytes as the rank wrote them, without the line's end."""

    label: str
    node: int
    text: bytes


class _Log:
    """
    One rank's files, those of all attempts one after the other, read from where they were left.

    ``raw``: lines as they are, progress bars too.
    """

    def __init__(self, path: str, label: str, node: int, *, raw: bool = False) -> None:
        self._path = path
        self._label = label
        self._node = node
        self._raw = raw
        self._limit = RAW_LINE_LIMIT if raw else LINE_LIMIT
        self._file: int | None = None
        self._rest = b""
        self._cut = 0
        self._shown = 0.0

    def read(self) -> Iterator[Line]:
        """The lines that were completed since, and of an unfinished progress bar its newest state now and then."""
        while data := self._more():
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                yield self._line(line)
            if len(self._rest) > self._limit:
                self._cut += len(self._rest) - self._limit
                self._rest = self._rest[: self._limit]
        if not self._raw and b"\r" in self._rest and time.monotonic() - self._shown > _PROGRESS_S:
            self._shown = time.monotonic()
            progress, _, newest = self._rest.rpartition(b"\r")
            yield self._line(progress)
            self._rest = newest

    def finish(self) -> Iterator[Line]:
        """Everything that is left, a last line without its end included."""
        yield from self.read()
        self._open_again()
        yield from self.read()
        if self._rest:
            yield self._line(self._rest)
            self._rest = b""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_again(self) -> None:
        """A network file system shows how long a file is by now to whoever opens it, not to whoever has it open."""
        if self._file is None or not _is_same(self._path, self._file):
            return
        with contextlib.suppress(OSError):
            again = _open_log(self._path)
            os.lseek(again, os.lseek(self._file, 0, os.SEEK_CUR), os.SEEK_SET)
            os.close(self._file)
            self._file = again

    def _more(self) -> bytes:
        if self._file is None:
            self._file = self._open_next()
            if self._file is None:
                return b""
        while not (data := os.read(self._file, _CHUNK)):
            newer = self._open_next()
            if newer is None:
                return b""
            # Between the last look and the other file's coming it may have grown. Now nobody writes to it any more.
            rest = os.read(self._file, _CHUNK) or (b"\n" if self._rest else b"")
            if rest:
                os.close(newer)
                return rest
            os.close(self._file)
            self._file = newer
        return data

    def _open_next(self) -> int | None:
        """The file after this one, or the first; by now that attempt may have ended too."""
        path = self._next()
        if path is None:
            return None
        try:
            descriptor = _open_log(path)
        except OSError:
            return None
        path = self._next()
        if path is not None and _is_same(path, descriptor):
            return descriptor
        os.close(descriptor)  # It was put aside at this moment: the next look finds it.
        return None

    def _next(self) -> str | None:
        """Where the file of the attempt after this one is, or of the first attempt; None while there is none."""
        if self._file is not None and _is_same(self._path, self._file):
            return None
        folder, name = os.path.split(self._path)
        numbers = sorted(
            int(entry.removeprefix("attempt-"))
            for entry in os.listdir(folder)
            if entry.startswith("attempt-") and entry.removeprefix("attempt-").isdecimal()
        )
        places = [os.path.join(folder, f"attempt-{number}", name) for number in numbers]
        places = [place for place in [*places, self._path] if _is_log(place)]
        if self._file is None:
            return places[0] if places else None
        ours = next((index for index, place in enumerate(places) if _is_same(place, self._file)), len(places))
        return places[ours + 1] if ours + 1 < len(places) else None

    def _line(self, text: bytes) -> Line:
        if not self._raw:
            # A carriage return overwrites: what a terminal would show is what came after the last one.
            text = text.removesuffix(b"\r").rpartition(b"\r")[2]
        if len(text) > self._limit or self._cut:
            left_out = self._cut + max(0, len(text) - self._limit)
            text = text[: self._limit] + b" ... (%d bytes more)" % left_out
            self._cut = 0
        return Line(self._label, self._node, text)


def _is_log(path: str) -> bool:
    """Whether it is a plain file: a job can put a pipe or a link there, and many attempts."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _open_log(path: str) -> int:
    """Raises OSError, and never blocks."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_same(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


class Follower:
    """
    ``labels``: the ranks to follow, by label; None: all of them.
    ``raw``: every byte as it is; else long lines are cut, and of a progress bar the newest state is shown.
    ``longest_pause_s``: how long ``lines`` waits for more before it says None; 0 for whoever has other jobs to look at.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        labels: frozenset[str] | None = None,
        *,
        raw: bool = False,
        longest_pause_s: float = _LONGEST_PAUSE_S,
    ) -> None:
        self._folder = folder
        self._longest_pause_s = longest_pause_s
        self._logs = [
            _Log(
                os.path.join(folder.path, task.log),
                task.label,
                node.node,
                raw=raw,
            )
            for node in plan.nodes
            for task in node.ranks
            if labels is None or task.label in labels
        ]
        self._supervisor: int | None = None
        self._next_look = 0.0
        self.outcome: Outcome | None = None
        """At the last look, of a job whose engine runs its supervisor elsewhere; None for others."""

    def lines(self) -> Iterator[Line | None]:
        """
        Every line from the beginning, until the job's supervisor has ended and all was read. Blocks.

        None: nothing new now; whoever asks may look at something else, or flush.
        """
        pause = _SHORTEST_PAUSE_S
        while self._runs():
            any_new = False
            for log in self._logs:
                for line in log.read():
                    any_new = True
                    yield line
            yield None
            pause = _SHORTEST_PAUSE_S if any_new else pause * 1.5
            pause = min(pause, self._longest_pause_s)
            self._wait(pause)
        for log in self._logs:
            yield from log.finish()

    def _runs(self) -> bool:
        if self._supervisor is None:
            return self._find_supervisor()
        if not _readable(self._supervisor, 0.0):
            return True
        os.close(self._supervisor)
        self._supervisor = None
        # Another may follow it, on other nodes.
        return self._find_supervisor()

    def _find_supervisor(self) -> bool:
        """False when there is none any more."""
        from drumline.control.jobs import outcome_of
        from drumline.engines.table import is_elsewhere

        who = self._folder.read_json(self._folder.supervisor)
        self._supervisor = identity.open_pidfd(who)
        if self._supervisor is not None:
            return True
        # None yet, or none any more: the outcome tells, and ends a job whose supervisor was killed. Of one on another
        # machine it is all that there is to see.
        if time.monotonic() < self._next_look:
            return True
        outcome = outcome_of(self._folder)
        if is_elsewhere(outcome.engine):
            self.outcome = outcome
            self._next_look = time.monotonic() + _LOOK_S
        return not outcome.is_final

    def _wait(self, seconds: float) -> None:
        _readable(self._supervisor, seconds)


def _readable(descriptor: int | None, seconds: float) -> bool:
    """Whether it becomes so in that time; None: never. By poll, which takes descriptors above 1023 too."""
    poller = select.poll()
    if descriptor is not None:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def plan_of(folder: RunFolder) -> Plan:
    return Plan.read(folder.plan)


def last_lines(folder: RunFolder, plan: Plan, rank: int, count: int) -> list[bytes]:
    """The last lines of a rank that are not blank, at most ``count``."""
    log = next((task.log for task in plan.ranks if task.rank == rank), None)
    path = os.path.join(folder.path, log or "")
    if not _is_log(path):
        return []
    try:
        with open(_open_log(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LINE_LIMIT))
            lines = file.read().splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]


def wait_for_end(folder: RunFolder, deadline: float | None = None, *, of_attempt: int | None = None) -> bool:
    """
    Block until the job has ended, or that attempt of it; False when ``deadline`` (monotonic seconds) came first.
    """
    from drumline.control.jobs import outcome_of

    while not (outcome := outcome_of(folder)).is_final:
        if of_attempt is not None and len(outcome.attempts) > of_attempt:
            return True
        longest = 1.0 if of_attempt is None else _LONGEST_PAUSE_S
        left = longest if deadline is None else min(longest, deadline - time.monotonic())
        if left <= 0:
            return False
        supervisor = identity.open_pidfd(folder.read_json(folder.supervisor))
        if supervisor is None:
            time.sleep(min(left, _LONGEST_PAUSE_S))
            continue
        _readable(supervisor, left)
        os.close(supervisor)
    return True
