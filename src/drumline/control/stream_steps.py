"""The logs of the steps of a pipeline, or the trials of a sweep, on one text stream."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import identity, status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control import terminal
from drumline.control.follow import Follower, plan_of
from drumline.control.jobs import outcome_of
from drumline.control.printer import Printer, prefix_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from drumline.contract.outcome import Outcome, StepOutcome

_PAUSE_S = 0.1
_LOOK_S = 1.0


def follow_steps(folder: RunFolder, out: TextIO) -> Outcome:
    """Write every line of every step until the whole has ended. Blocks. Raises BrokenPipeError."""
    printer = Printer(out)
    steps = _Steps(folder, "", printer.is_raw)
    while True:
        is_final = steps.look()
        for prefix, lines in steps.lines():
            printer.write(prefix, lines)
        printer.flush()
        if is_final:
            return outcome_of(folder)
        if not steps.has_more:
            time.sleep(_PAUSE_S)


class _Steps:
    """``prefix``: what stands before each line."""

    def __init__(self, folder: RunFolder, prefix: str, raw: bool) -> None:
        self._folder = folder
        self._prefix = prefix
        self._raw = raw
        self._size = -1
        self._next_look = 0.0
        self._outcome: Outcome | None = None
        self._following: dict[str, _Steps | _Ranks] = {}
        self._told: set[str] = set()
        self._lines: dict[str, tuple[float, str]] = {}
        """By step under way: when to look next whether it is in line, and what was told of that."""

        self._is_final = False

    def look(self) -> bool:
        """See which steps have begun; whether the whole has ended."""
        now = time.monotonic()
        size = os.stat(self._folder.events).st_size
        if size != self._size or now >= self._next_look:
            self._size, self._next_look = size, now + _LOOK_S
            # Of one whose driver was killed it is this look that starts another.
            alive = identity.is_alive(self._folder.read_json(self._folder.supervisor))
            self._outcome = fold(self._folder.read_events()) if alive else outcome_of(self._folder)
            self._is_final = self._outcome.is_final
        for following in self._following.values():
            if isinstance(following, _Steps):
                following.look()
        return self._is_final

    @property
    def has_more(self) -> bool:
        """Whether there was more than a step's share of one look."""
        return any(following.has_more for following in self._following.values())

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """What is new: prefix and whole lines. After the end: everything that is left."""
        for step in list(self._outcome.steps.values()) if self._outcome else ():
            yield from self._of(step)

    def _of(self, step: StepOutcome) -> Iterator[tuple[str, bytes]]:
        if step.step not in self._told:
            self._told.add(step.step)
            if step.job:
                yield self._prefix, _line(_begun(step))
        if step.job and not step.detail.get("reused"):
            waits_for = "" if step.status else self._waits_for(step)
            if waits_for:
                yield self._prefix, _line(f"step {step.step} is in line: {terminal.clean(waits_for)}")
            yield from self._logs(step)
        end = f"{step.step} ended"
        if step.status and end not in self._told:
            self._told.add(end)
            reason = f": {terminal.clean(step.reason)}" if step.reason else ""
            yield self._prefix, _line(f"step {step.step} {step.status.lower()}{reason}")

    def _waits_for(self, step: StepOutcome) -> str:
        """Why a step under way does not run yet, where nobody was told so far; looked at now and then."""
        next_look, told = self._lines.get(step.step, (0.0, ""))
        if time.monotonic() < next_look:
            return ""
        outcome = fold(RunFolder.of(step.job).read_events())
        waits = outcome.status in (status.NOT_STARTED, status.QUEUED)
        self._lines[step.step] = (time.monotonic() + _LOOK_S if waits else math.inf, outcome.reason)
        return outcome.reason if waits and outcome.reason != told else ""

    def _logs(self, step: StepOutcome) -> Iterator[tuple[str, bytes]]:
        if step.step not in self._following:
            found = self._open(step)
            if found is None:
                return
            self._following[step.step] = found
        following = self._following[step.step]
        if isinstance(following, _Steps):
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

    def _open(self, step: StepOutcome) -> _Steps | _Ranks | None:
        folder = RunFolder.of(step.job)
        if not folder.exists():
            return None
        prefix = f"{self._prefix}[{step.step}] "
        if os.path.exists(folder.graph):
            return _Steps(folder, prefix, self._raw)
        try:
            return _Ranks(folder, prefix, self._raw)
        except DrumlineError:
            return None


class _Ranks:
    """``blocks``: prefix and whole lines of a job that is a step; None: no more now."""

    def __init__(self, folder: RunFolder, prefix: str, raw: bool) -> None:
        plan = plan_of(folder)
        self._follower = Follower(folder, plan, raw=raw, is_alone=False)
        self._prefix = prefix
        self._many = len(plan.ranks) > 1
        self.blocks = self._read()

    @property
    def has_more(self) -> bool:
        return self._follower.has_more

    def _read(self) -> Iterator[tuple[str, bytes] | None]:
        for block in self._follower.blocks():
            if block is None:
                yield None
            else:
                yield self._prefix + (prefix_of(block) if self._many else ""), block.lines


def _line(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"


def _begun(step: StepOutcome) -> str:
    if step.detail.get("reused"):
        return f"step {step.step}: job {step.job}, reused"
    return f"step {step.step}: job {step.job}"
