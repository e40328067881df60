"""Chosen lines of logs on a text stream, and those of the steps of a pipeline, or the trials of a sweep."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity, status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.control import terminal
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import Follower
from drumline.control.logs.log_history import History
from drumline.control.logs.printer import Printer, prefix_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from drumline.contract.outcome import Outcome, StepOutcome
    from drumline.control.logs.follow import Block
    from drumline.control.logs.log_history import LogChoice

_LINES_POLL_S = 0.1
_OUTCOME_POLL_S = 1.0


class LogView:
    """
    A view of a job's lines. ``choice``: which lines. ``timestamps``: whether each begins with the time at which it was
    written. ``prefix`` None: where there is more than one rank.
    """

    def __init__(
        self, out: TextIO, choice: LogChoice, *, timestamps: bool = False, prefix: bool | None = None
    ) -> None:
        self.choice = choice
        self.is_empty = True
        """Whether nothing was shown so far."""

        self._printer = Printer(out)
        self._timestamps = timestamps
        self._prefix = prefix

    @property
    def is_raw(self) -> bool:
        """Return whether every byte is shown as it is."""
        return self._printer.is_raw

    def write(self, prefix: str, lines: bytes, written: float = 0.0) -> None:
        """Write those of the lines that match. ``written``: in seconds since 1970; 0: now."""
        if self.choice.matcher is not None:
            lines = self.choice.matcher.select(lines)
        if lines:
            stamp = f"{_format_time(written or time.time())} " if self._timestamps else ""
            self._printer.write(stamp + prefix, lines)
            self.is_empty = False

    def choose_prefix(self, block: Block, *, many: bool) -> str:
        """Return what the lines of a rank begin with. ``many``: whether its job has more than one."""
        return prefix_of(block) if (many if self._prefix is None else self._prefix) else ""

    def flush(self) -> None:
        self._printer.flush()


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def show_steps(folder: RunFolder, view: LogView) -> Outcome:
    """Write every chosen line of every step until the whole has ended. Blocks. Raises BrokenPipeError."""
    steps = _StepLogs(folder, "", view)
    while True:
        is_final = steps.look()
        for prefix, lines, written in steps.lines():
            view.write(prefix, lines, written)
        view.flush()
        if is_final:
            return recover(folder)
        if not steps.has_more:
            time.sleep(_LINES_POLL_S)


class _StepLogs:
    """
    The logs of a job's steps. ``prefix``: what stands before each line. Lines are returned with it, and with the time
    of ``Block``.
    """

    def __init__(self, folder: RunFolder, prefix: str, view: LogView) -> None:
        self._folder = folder
        self._prefix = prefix
        self._view = view
        self._size = -1
        self._next_look = 0.0
        self._outcome: Outcome | None = None
        self._following: dict[str, _StepLogs | _RankLogs] = {}
        self._told: set[str] = set()
        self._lines: dict[str, tuple[float, str]] = {}
        """By step under way: when to look next whether it is in line, and what was told of that."""

        self._is_final = False

    def look(self) -> bool:
        """Look which steps have begun; return whether the pipeline or sweep has ended."""
        now = time.monotonic()
        size = os.stat(self._folder.events).st_size
        if size != self._size or now >= self._next_look:
            self._size, self._next_look = size, now + _OUTCOME_POLL_S
            # Of one whose driver was killed it is this look that starts another.
            alive = process_identity.is_alive(self._folder.read_json(self._folder.supervisor))
            self._outcome = fold(self._folder.read_events()) if alive else recover(self._folder)
            self._is_final = self._outcome.is_final
        for following in self._following.values():
            if isinstance(following, _StepLogs):
                following.look()
        return self._is_final

    @property
    def has_more(self) -> bool:
        """Return whether a step had more lines than its share of one round."""
        return any(following.has_more for following in self._following.values())

    def lines(self) -> Iterator[tuple[str, bytes, float]]:
        """Yield new whole lines with their prefix; after the end, everything that is left."""
        if self._outcome is None:
            return
        why = "" if self._is_final else self._outcome.reason
        if why and why not in self._told:
            self._told.add(why)
            yield self._prefix, _line(f"job {self._folder.name} waits: {terminal.clean(why)}"), 0.0
        for step in list(self._outcome.steps.values()):
            yield from self._read_step(step)

    def _read_step(self, step: StepOutcome) -> Iterator[tuple[str, bytes, float]]:
        if step.step not in self._told:
            self._told.add(step.step)
            if step.job:
                yield self._prefix, _line(_announce(step)), 0.0
        if step.job and not step.detail.get("reused"):
            waits_for = "" if step.status else self._waits_for(step)
            if waits_for:
                yield self._prefix, _line(f"step {step.step} is in line: {terminal.clean(waits_for)}"), 0.0
            yield from self._logs(step)
        end = f"{step.step} ended"
        if step.status and end not in self._told:
            self._told.add(end)
            reason = f": {terminal.clean(step.reason)}" if step.reason else ""
            yield self._prefix, _line(f"step {step.step} {step.status.lower()}{reason}"), step.ended or 0.0

    def _waits_for(self, step: StepOutcome) -> str:
        """Return why a step does not run yet, unless that was printed already; polled at intervals."""
        next_look, told = self._lines.get(step.step, (0.0, ""))
        if time.monotonic() < next_look:
            return ""
        outcome = fold(RunFolder.for_job(step.job).read_events())
        waits = outcome.status in (status.NOT_STARTED, status.QUEUED)
        self._lines[step.step] = (time.monotonic() + _OUTCOME_POLL_S if waits else math.inf, outcome.reason)
        return outcome.reason if waits and outcome.reason != told else ""

    def _logs(self, step: StepOutcome) -> Iterator[tuple[str, bytes, float]]:
        if step.step not in self._following:
            found = self._open(step)
            if found is None:
                return
            self._following[step.step] = found
        following = self._following[step.step]
        if isinstance(following, _StepLogs):
            if step.status:
                following.look()
            yield from following.lines()
            return
        for line in following.blocks:
            if line is not None:
                yield line
            elif not step.status:
                return
            elif not following.has_more:
                time.sleep(0.01)  # Its supervisor is about to end, and then all of its lines are there.

    def _open(self, step: StepOutcome) -> _StepLogs | _RankLogs | None:
        folder = RunFolder.for_job(step.job)
        if not folder.exists():
            return None
        prefix = f"{self._prefix}[{step.step}] "
        if os.path.exists(folder.graph):
            return _StepLogs(folder, prefix, self._view)
        try:
            return _RankLogs(folder, prefix, self._view)
        except DrumlineError:
            return None


class _RankLogs:
    """
    The logs of one step's ranks. ``blocks``: prefix, whole lines and time of a job that is a step; None: no more now.
    """

    def __init__(self, folder: RunFolder, prefix: str, view: LogView) -> None:
        plan = Plan.read(folder.plan)
        attempt = len(fold(folder.read_events()).attempts)
        self._history = History(folder, plan, view.choice, attempt, raw=view.is_raw, follows=True)
        self._follower = Follower(folder, plan, self._history.labels, raw=view.is_raw, is_alone=False)
        self._view = view
        self._prefix = prefix
        self._many = len(plan.ranks) > 1
        self.blocks = self._read()

    @property
    def has_more(self) -> bool:
        return self._follower.has_more

    def _read(self) -> Iterator[tuple[str, bytes, float] | None]:
        self._follower.begin_at(self._history.take_open())
        for block in self._history.blocks():
            yield self._begin(block), block.lines, block.time
        for following in self._follower.blocks():
            yield None if following is None else (self._begin(following), following.lines, 0.0)

    def _begin(self, block: Block) -> str:
        return self._prefix + self._view.choose_prefix(block, many=self._many)


def _line(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"


def _announce(step: StepOutcome) -> str:
    if step.detail.get("reused"):
        return f"step {step.step}: job {step.job}, reused"
    why = terminal.clean(str(step.detail.get("not_reused") or ""))
    return f"step {step.step}: job {step.job}" + (f"; {why}" if why else "")
