"""
Chosen lines of a job's logs on a text stream: those written so far, and those of the steps of a pipeline or the trials
of a sweep as they grow.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity, status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.words import is_number, name_several, parse_ranges
from drumline.control import terminal
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import Follower
from drumline.control.logs.log_history import History
from drumline.control.logs.printer import LogChoice, has_ranks, labels_of
from drumline.control.logs.rank_log import list_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.outcome import Outcome, StepOutcome
    from drumline.control.logs.printer import LogView

_DEEPEST = 8
_LINES_POLL_S = 0.1
_OUTCOME_POLL_S = 1.0


def check_choice(folder: RunFolder, choice: LogChoice, ranks: str, nodes: str) -> LogChoice:
    """Return the choice of these ranks and nodes. Raises UsageError for what the job lacks."""
    if has_ranks(folder):
        latest = len(recover(folder).attempts)
        if choice.attempt is not None and not 0 <= choice.attempt <= latest:
            there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
            raise UsageError(f"--attempt: there is no attempt {choice.attempt}", f"this job has {there}")
        return choice._replace(labels=choose_labels(Plan.read(folder.plan), ranks, nodes))
    for option, value in (("rank", ranks), ("node", nodes), ("attempt", choice.attempt)):
        if value not in ("", None):
            raise UsageError(
                f"--{option}: this job has no ranks, its steps have", "drumline job logs NAME_OF_A_STEPS_JOB"
            )
    return choice


def choose_labels(plan: Plan, ranks: str, nodes: str) -> frozenset[str] | None:
    """
    Return the labels of these ranks on these nodes, each such as ``0,3-5``, empty for all; None: all ranks. Raises
    UsageError for one that the job lacks.
    """
    labels = labels_of(ranks, plan, "--rank")
    if not nodes:
        return labels
    numbers = parse_ranges(nodes)
    for number in numbers:
        if not is_number(number):
            raise UsageError(f"--node: {number!r} is not a node", "--node 0,2-3")
    chosen = set(map(int, numbers))
    missing = sorted(chosen - {node.node for node in plan.nodes})
    if missing:
        there = name_several("node", [node.node for node in plan.nodes])
        raise UsageError(f"--node: there is no node {missing[0]}", f"this job has {there}")
    return frozenset(task.label for node, task in list_ranks(plan, labels) if node in chosen)


def print_logs(folder: RunFolder, view: LogView, prefix: str = "", depth: int = 0) -> None:
    """Write what was written so far; of a pipeline or a sweep, step after step. Raises BrokenPipeError."""
    outcome = recover(folder)
    if has_ranks(folder):
        plan = Plan.read(folder.plan)
        history = History(folder, plan, view.choice or LogChoice(), len(outcome.attempts), raw=view.is_raw)
        many = len(plan.ranks) > 1
        for block in history.blocks():
            written = view.choose_prefix(block, many=many)
            view.write(prefix + written, block.lines, block.time)
        view.flush()
        return
    for step in list(outcome.steps.values()):
        inner = RunFolder.for_job(step.job) if step.job and not step.detail.get("reused") else None
        if inner is not None and inner.exists() and depth < _DEEPEST:
            print_logs(inner, view, f"{prefix}[{step.step}] ", depth + 1)


def explain_link(folder: RunFolder) -> str:
    """Return why no line is shown although there may be some; empty if the logs are where the job was to write them."""
    if os.path.islink(folder.user_logs):
        return f"user_logs of job {folder.name} is a link, which is not followed"
    return ""


# those of the steps of a pipeline, or the trials of a sweep, as they grow


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
        choice = view.choice or LogChoice()
        history = History(folder, plan, choice, attempt, raw=view.is_raw, follows=True)
        self._follower = Follower(folder, plan, raw=view.is_raw, is_alone=False, history=history)
        many = len(plan.ranks) > 1
        self.blocks = (
            block and (prefix + view.choose_prefix(block, many=many), block.lines, block.time)
            for block in self._follower.blocks()
        )

    @property
    def has_more(self) -> bool:
        return self._follower.has_more


def _line(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"


def _announce(step: StepOutcome) -> str:
    if step.detail.get("reused"):
        return f"step {step.step}: job {step.job}, reused"
    why = terminal.clean(str(step.detail.get("not_reused") or ""))
    return f"step {step.step}: job {step.job}" + (f"; {why}" if why else "")
