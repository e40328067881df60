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
from drumline.control.stream import write_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from drumline.contract.outcome import Outcome, StepOutcome

_PAUSE_S = 0.1
_LOOK_S = 1.0


def follow_steps(folder: RunFolder, out: TextIO) -> Outcome:
    """Write every line of every step until the whole has ended. Blocks. Raises BrokenPipeError."""
    steps = _Steps(folder, "")
    out.flush()
    while True:
        is_final = steps.look()
        for prefix, text in steps.lines():
            write_line(out, prefix, text)
        out.flush()
        if is_final:
            return outcome_of(folder)
        time.sleep(_PAUSE_S)


class _Steps:
    """``prefix``: what stands before each line."""

    def __init__(self, folder: RunFolder, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._size = -1
        self._next_look = 0.0
        self._outcome: Outcome | None = None
        self._following: dict[str, _Steps | Iterator[tuple[str, bytes] | None]] = {}
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

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """What is new: prefix and text. After the end: everything that is left."""
        for step in list(self._outcome.steps.values()) if self._outcome else ():
            yield from self._of(step)

    def _of(self, step: StepOutcome) -> Iterator[tuple[str, bytes]]:
        if step.step not in self._told:
            self._told.add(step.step)
            if step.job:
                yield self._prefix, _begun(step).encode("utf-8", "replace")
        if step.job and not step.detail.get("reused"):
            waits_for = "" if step.status else self._waits_for(step)
            if waits_for:
                text = f"step {step.step} is in line: {terminal.clean(waits_for)}"
                yield self._prefix, text.encode("utf-8", "replace")
            yield from self._logs(step)
        end = f"{step.step} ended"
        if step.status and end not in self._told:
            self._told.add(end)
            reason = f": {terminal.clean(step.reason)}" if step.reason else ""
            yield self._prefix, f"step {step.step} {step.status.lower()}{reason}".encode("utf-8", "replace")

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
        for line in following:
            if line is not None:
                yield line
            elif not step.status:
                return
            else:
                time.sleep(0.01)  # Its supervisor is about to end, and then all of its lines are there.

    def _open(self, step: StepOutcome) -> _Steps | Iterator[tuple[str, bytes] | None] | None:
        folder = RunFolder.of(step.job)
        if not folder.exists():
            return None
        prefix = f"{self._prefix}[{step.step}] "
        if os.path.exists(folder.graph):
            return _Steps(folder, prefix)
        try:
            return _of_ranks(folder, prefix)
        except DrumlineError:
            return None


def _of_ranks(folder: RunFolder, prefix: str) -> Iterator[tuple[str, bytes] | None]:
    plan = plan_of(folder)
    many = len(plan.ranks) > 1
    for line in Follower(folder, plan, raw=True, longest_pause_s=0.0).lines():
        if line is None:
            yield None
        else:
            yield prefix + (f"[{line.label}|node-{line.node}] " if many else ""), line.text


def _begun(step: StepOutcome) -> str:
    if step.detail.get("reused"):
        return f"step {step.step}: job {step.job}, reused"
    return f"step {step.step}: job {step.job}"
