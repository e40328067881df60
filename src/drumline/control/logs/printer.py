"""Which lines of ranks are shown, and how: on a text stream, each behind its prefix."""

from __future__ import annotations

import io
import os
import select
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.contract.words import name_several, parse_ranges
from drumline.control import terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from drumline.contract.events import JobWarned
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.control.logs.matching import Matcher
    from drumline.control.logs.rank_log import Block

_SCREEN = 24
"""Lines: what was printed before as many others is in sight."""


class LogChoice(NamedTuple):
    """The lines to show. None: no limit. ``labels``: of ranks. ``since``: seconds since 1970."""

    labels: frozenset[str] | None = None
    attempt: int | None = None
    tail: int | None = None
    """For each rank, so many of the last lines, of those that match."""

    since: float = 0.0
    matcher: Matcher | None = None


class LogView:
    """
    A view of a job's lines. ``choice``: which lines; None: all, as each rank wrote them. ``timestamps``: whether each
    begins with the time at which it was written. ``prefix`` None: where there is more than one rank.
    ``notices``: whether standard error says why the job waits or hangs; not where the reader sees its status.
    ``progress``: returns a line about how far the job is, for a terminal; empty: that is not known.
    ``warn``: lists what the job is warned of, at its end too; None: not what is only known then.
    """

    def __init__(
        self,
        out: TextIO,
        choice: LogChoice | None = None,
        *,
        timestamps: bool = False,
        prefix: bool | None = None,
        notices: bool = True,
        progress: Callable[[RunFolder], str] | None = None,
        warn: Callable[[RunFolder, Outcome], list[JobWarned]] | None = None,
    ) -> None:
        self.choice = choice
        self.warn = warn
        self.notices = notices
        self.progress = progress
        self.is_empty = True
        """Whether nothing was shown so far."""

        self._printer = Printer(out)
        self._timestamps = timestamps
        self._prefix = prefix
        self._count = 0
        self._last: dict[str, int] = {}

    @property
    def is_raw(self) -> bool:
        """Return whether every byte is shown as it is."""
        return self._printer.is_raw

    def write(self, prefix: str, lines: bytes, written: float = 0.0) -> None:
        """Write those of the lines that match. ``written``: in seconds since 1970; 0: now."""
        if self.choice is not None and self.choice.matcher is not None:
            lines = self.choice.matcher.select(lines)
        if lines:
            moment = time.gmtime(written or time.time()) if self._timestamps else None
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", moment) if moment else ""
            self._printer.write(stamp + prefix, lines)
            self.is_empty = False

    def choose_prefix(self, block: Block, *, many: bool) -> str:
        """Return what the lines of a rank begin with. ``many``: whether its job has more than one."""
        return prefix_of(block) if (many if self._prefix is None else self._prefix) else ""

    def flush(self) -> None:
        self._printer.flush()

    def note(self, label: str, lines: bytes) -> None:
        """Note which lines of that rank were shown."""
        self._count += lines.count(b"\n")
        self._last[label] = self._count

    def has_in_sight(self, label: str) -> bool:
        """Return whether the last lines of that rank are still on the screen."""
        return label in self._last and self._count - self._last[label] < _SCREEN


class Printer:
    """
    Prints lines without control sequences for a person, else byte by byte.

    Waits for a slow reader, whose memory the lines then take, not ours. Raises BrokenPipeError.
    """

    def __init__(self, out: TextIO) -> None:
        # Bytes go past the text layer, and must not overtake what is still in there.
        out.flush()
        self._out = out
        self._is_for_person = out.isatty()
        self._binary = getattr(out, "buffer", None)
        self.is_raw = self._binary is not None and not self._is_for_person

    def write(self, prefix: str, lines: bytes) -> None:
        """Write whole lines, each with its newline."""
        if self.is_raw:
            self._write(put_behind(prefix.encode(), lines))
            return
        text = terminal.clean_lines(lines, colours=self._is_for_person)
        if prefix:
            text = prefix + text[:-1].replace("\n", "\n" + prefix) + "\n"
        if self._binary is None:
            self._out.write(text)
        else:
            self._write(text.encode(self._out.encoding, self._out.errors or "strict"))

    def flush(self) -> None:
        while True:
            try:
                self._out.flush()
            except BlockingIOError:
                self._wait()
            else:
                return

    def _write(self, data: bytes) -> None:
        """
        Write all of the data; another process with the same pipe or terminal may have made it one that does not wait.
        """
        assert self._binary is not None
        view = memoryview(data)
        while view:
            try:
                written = self._binary.write(view)
            except BlockingIOError as error:
                written = error.characters_written
                self._wait()
            else:
                if not isinstance(self._binary, io.RawIOBase):
                    return
                # That of PYTHONUNBUFFERED, which takes a part, or None where it would have to wait.
                if written is None:
                    self._wait()
            view = view[written or 0 :]

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._out.fileno(), select.POLLOUT)
        poller.poll()


def put_behind(prefix: bytes, lines: bytes) -> bytes:
    """Return whole lines, each behind the prefix."""
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n" if prefix else lines


def prefix_of(block: Block) -> str:
    return f"[{block.label}|node-{block.node}] "


def has_ranks(folder: RunFolder) -> bool:
    """Return whether the job has ranks; a pipeline or a sweep has jobs."""
    return not os.path.exists(folder.graph)


def labels_of(ranks: str, plan: Plan, option: str = "--ranks") -> frozenset[str] | None:
    """Return the labels that ``0,3-5`` or ``ps0`` names; None for all. Raises UsageError for one that the job lacks."""
    if not ranks:
        return None
    known = {task.label for task in plan.ranks}
    chosen = set(parse_ranges(ranks))
    missing = sorted(chosen - known)
    if missing:
        raise UsageError(
            f"{option}: there is no rank {missing[0]!r}",
            f"this job has {name_several('rank', [task.label for task in plan.ranks])}",
        )
    return frozenset(chosen)
