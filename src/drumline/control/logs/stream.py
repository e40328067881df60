"""A job's logs on a text stream, as ``az ml job stream`` shows them, and how it ended."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.words import format_seconds, format_size
from drumline.control import terminal
from drumline.control.jobs.job_outcome import explain_pruned
from drumline.control.jobs.lookup import as_arguments, may_have_studio
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import Follower, last_lines
from drumline.control.logs.printer import LogView, has_ranks, labels_of
from drumline.control.logs.rank_log import read_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.control.progress_bar import ProgressBar


_LAST_LINES = 10
_LONGEST = 500
_NOTICE_POLL_S = 0.3


def follow(folder: RunFolder, view: LogView, ranks: str = "") -> Outcome:
    """
    Write the lines of a view, and every one that follows, until the job has ended. Blocks. ``ranks``: as of
    ``labels_of``, of a view without a choice. Raises UsageError as that does; BrokenPipeError.

    On a terminal, control sequences are left out; elsewhere the bytes are as the ranks wrote them.
    """
    if not has_ranks(folder):
        from drumline.control.logs.view import show_steps

        if ranks:
            raise UsageError(
                "--ranks: this job has no ranks, its steps have", "drumline job stream -n JOB_OF_A_STEP"
            )
        return show_steps(folder, view)
    plan = Plan.read(folder.plan)
    labels, history, told = labels_of(ranks, plan), None, 0
    if view.choice is not None:
        from drumline.control.logs.log_history import History

        told = len(recover(folder).attempts)
        history = History(folder, plan, view.choice, told, raw=view.is_raw, follows=True)
    follower = Follower(folder, plan, labels, raw=view.is_raw, history=history)
    notices = Notices(folder, told, is_quiet=not view.notices, view=view)
    many = len(plan.ranks) > 1
    for block in follower.blocks():
        if block is None:
            view.flush()
            notices.look(follower.outcome)
            continue
        notices.give_way()
        view.write(view.choose_prefix(block, many=many), block.lines, block.time)
        view.note(block.label, block.lines)
    view.flush()
    outcome = recover(folder)
    notices.end(outcome)
    return outcome


class Notices:
    """
    Says on standard error why a job waits, and that it hangs, each time that this changes. ``told``: how many attempts
    that failed need not be told of any more. ``view``: of the same reader.
    """

    def __init__(
        self,
        folder: RunFolder,
        told: int = 0,
        *,
        is_quiet: bool = False,
        view: LogView | None = None,
    ) -> None:
        self._folder = folder
        self._is_quiet = is_quiet
        self._next = time.monotonic() + _NOTICE_POLL_S
        self._size = -1
        self._waits_for = ""
        self._hang = ""
        self._attempts = told
        self._lacks: set[str] = set()
        self._warn = view.warn if view else None
        asks = functools.partial(view.progress, folder) if view and view.progress else None
        self._progress = ProgressLine(folder.name, folder=folder.path, ask=asks)

    def look(self, seen: Outcome | None) -> None:
        """Print what has changed. ``seen``: the outcome if the caller knows it already."""
        if self._is_quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _NOTICE_POLL_S
        size = _size_of(self._folder.events)
        if size == self._size and seen is None:
            self._progress.tick()
            return
        self._size = size
        outcome = seen or fold(self._folder.read_events())
        self.tell_attempts(outcome)
        self._progress.look(outcome)
        self._tell_lacks(outcome)
        waits_for = outcome.reason if outcome.status in (status.NOT_STARTED, status.QUEUED) else ""
        if waits_for and waits_for != self._waits_for:
            self._say(f"is in line: {waits_for}")
        if outcome.hang != self._hang and not outcome.is_final:
            self._say(f"hangs: {outcome.hang}" if outcome.hang else "goes on")
        self._waits_for, self._hang = waits_for, outcome.hang

    def give_way(self) -> None:
        """Clear the progress line before a line of the job, which may go to the same terminal."""
        self._progress.clear()

    def end(self, outcome: Outcome) -> None:
        """Print what has changed at the end."""
        if self._is_quiet:
            return
        self.tell_attempts(outcome)
        self._progress.look(outcome)
        self._tell_lacks(outcome)

    def _tell_lacks(self, outcome: Outcome) -> None:
        """Print the services that did not start, and what the job is warned of."""
        lacks = [f"goes on without {name}: {it.error}" for name, it in outcome.services.items() if it.error]
        warn = self._warn if outcome.is_final else None
        warnings = warn(self._folder, outcome) if warn else outcome.warnings
        for what in [*lacks, *(f"has a warning: {one.text}" for one in warnings)]:
            if what not in self._lacks:
                self._lacks.add(what)
                self._say(what)

    def tell_attempts(self, outcome: Outcome) -> None:
        """Print the attempts that failed since."""
        for attempt in outcome.attempts[self._attempts :]:
            why = "; ".join([attempt.reason, *_list_drills(outcome, attempt.attempt)])
            if attempt.was_preempted:
                self._say(f"goes on later; attempt {attempt.attempt} was ended: {why}")
            else:
                self._say(f"is started again; attempt {attempt.attempt} failed: {why}")
        self._attempts = len(outcome.attempts)

    def _say(self, what: str) -> None:
        self._progress.clear()
        print(f"job {self._folder.name} {terminal.clean(what)}", file=sys.stderr)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def header(folder: RunFolder) -> str:
    """Return the first lines of a stream. Scripts search for ``RunId:`` and ``Web View:``."""
    if not has_ranks(folder):
        title = "Streaming the logs of its steps"
        return f"{_identity(folder)}\n{title}\n{'=' * len(title)}\n\n"
    plan = Plan.read(folder.plan)
    if len(plan.ranks) == 1:
        logs = plan.ranks[0].log
    else:
        nodes = "1 node" if len(plan.nodes) == 1 else f"{len(plan.nodes)} nodes"
        logs = f"user_logs of {len(plan.ranks)} ranks on {nodes}"
    title = f"Streaming {logs}"
    return f"{_identity(folder)}\n{title}\n{'=' * len(title)}\n\n"


def summary(folder: RunFolder, outcome: Outcome, shown: LogView | None = None) -> str:
    """Return the last lines of a stream: status, one sentence, and the end of a failed rank's log."""
    return f"\nExecution Summary\n=================\n{_identity(folder)}{ending(folder, outcome, shown)}"


def _identity(folder: RunFolder) -> str:
    page = ""
    if may_have_studio():
        from drumline.control.settings import studios

        page = studios.find_page(folder.name)
    return f"RunId: {folder.name}\nWeb View: {page or f'file://{folder.path}'}\n"


def ending(folder: RunFolder, outcome: Outcome, shown: LogView | None = None) -> str:
    """
    Return ``job x failed after 2.3 s: rank 3 ...``, the end of that rank's log, and the next command to try.

    ``shown``: the view that the reader has just read, which is not repeated; None: nothing.
    """
    took = ""
    if outcome.started and outcome.ended:
        took = f" after {format_seconds(outcome.ended - outcome.started)}"
    text = f"job {folder.name} {outcome.status.lower()}{took}: {terminal.clean(outcome.reason)}\n"
    said = _list_drills(outcome) + _list_experiments(outcome)
    text += "".join(f"  {terminal.clean(sentence)}\n" for sentence in said)
    pruned = explain_pruned(outcome, ("user_logs",))
    if pruned:
        return f"{text}its logs were {pruned}\n"
    following = f"next: drumline job show {as_arguments(folder.name)}\n"
    if outcome.failed_rank is None:
        return text + (following if outcome.status == status.FAILED and outcome.kind == "command" else "")
    plan = Plan.read(folder.plan)
    label = next(task.label for task in plan.ranks if task.rank == outcome.failed_rank)
    lines = last_lines(folder, plan, outcome.failed_rank, _LAST_LINES)
    if lines and not (shown and shown.has_in_sight(label)):
        text += f"last lines of rank {label}:\n"
        text += "".join(f"  {_short(terminal.clean(terminal.decode(line)))}\n" for line in lines)
    return text + following


def _list_drills(outcome: Outcome, attempt: int | None = None) -> list[str]:
    """List the failures that were made on purpose in an attempt; None: in the latest."""
    if not outcome.drills:
        return []
    from drumline.control.jobs import drill_requests

    return drill_requests.list_sentences(outcome, attempt)


def _list_experiments(outcome: Outcome) -> list[str]:
    """List the experiments of an autotuner that failed, the first few with their causes."""
    said = outcome.list_failed_experiments()
    more = [f"and {len(said) - _LAST_LINES} more experiments failed"] if len(said) > _LAST_LINES else []
    return said[:_LAST_LINES] + more


def _short(line: str) -> str:
    more = len(line) - _LONGEST
    return line if more <= 0 else f"{line[:_LONGEST]} ... ({more:,} more characters)"


# The progress shown on standard error while data is on its way and an environment is being made.


_TAIL_BYTES = 4096


class ProgressLine:
    """
    A line on a terminal that is drawn over itself; elsewhere a line when something begins, and when it is done.

    ``folder``: the run folder, where the tools that build an environment write their log. ``ask``: returns how far the
    ranks are; empty: that is not known.
    """

    def __init__(
        self, job: str, out: TextIO | None = None, folder: str = "", ask: Callable[[], str] | None = None
    ) -> None:
        self._ask = ask
        self._job = job
        self._out = out or sys.stderr
        self._folder = folder
        self._bar: ProgressBar | None = None
        self._build: e.EnvironmentBuilding | None = None
        self._told: set[tuple[str, float]] = set()

    def look(self, outcome: Outcome) -> None:
        for name, transfer in outcome.transfers.items():
            if isinstance(transfer, e.Transferred) and transfer.file_count:
                self._tell(name, transfer.time, describe_transfer(transfer))
            elif isinstance(transfer, e.TransferProgress) and not self._find_bar().is_drawn:
                files = "1 file" if transfer.total_files == 1 else f"{transfer.total_files:,} files"
                self._tell(name, 0.0, f"{name}: {format_size(transfer.total_bytes)} in {files} on the way")
        self._look_at_environment(outcome.environment)
        for name, service in outcome.services.items():
            if service.url:
                self._tell(name, service.time, f"{name}: {service.url}")
        moving = [one for one in outcome.transfers.values() if isinstance(one, e.TransferProgress)]
        if outcome.is_final:
            moving, self._build = [], None
        self._draw(moving)

    def tick(self) -> None:
        """
        Draw a build again, with its time and what its tools said last, or how far the ranks are: to be called now and
        then.
        """
        if self._build is None:
            if self._ask is not None and self._find_bar().is_drawn:
                self._find_bar().show_text(self._ask())
            return
        log = os.path.join(self._folder, self._build.log) if self._folder and self._build.log else ""
        self._find_bar().show_work(
            f"environment: {self._build.what}", time.time() - self._build.time, read_last_line(log)
        )

    def clear(self) -> None:
        """Take the line away before anything else is written."""
        if self._bar is not None:
            self._bar.clear()

    def _look_at_environment(self, environment: e.EnvironmentBuilding | e.EnvironmentReady | None) -> None:
        self._build = None
        if isinstance(environment, e.EnvironmentBuilding):
            if self._find_bar().is_drawn:
                self._build = environment
            else:
                self._tell("environment", environment.time, f"environment: {environment.what}")
        elif environment is not None and not environment.reused:
            self._tell(
                "environment",
                environment.time,
                f"environment: ready after {format_seconds(environment.seconds)}",
            )

    def _find_bar(self) -> ProgressBar:
        if self._bar is None:
            # Most jobs have nothing to draw.
            from drumline.control.progress_bar import ProgressBar

            self._bar = ProgressBar(self._out)
        return self._bar

    def _tell(self, name: str, when: float, text: str) -> None:
        if (name, when) in self._told:
            return
        self._told.add((name, when))
        self.clear()
        self._out.write(terminal.clean(f"job {self._job}: {text}") + "\n")
        self._out.flush()

    def _draw(self, moving: list[e.TransferProgress]) -> None:
        if moving:
            latest = max(moving, key=lambda one: one.time)
            self._find_bar().show_bytes(latest.name, latest.done_bytes, latest.total_bytes)
        elif self._build is not None:
            self.tick()
        elif self._bar is not None:
            self._bar.close()


def read_last_line(path: str) -> str:
    """
    Return what a tool said last in its log; empty before it has said anything.

    Lines of our own begin with ``#``, and each command with ``$``: what comes before one is of another step.
    """
    from drumline.staging.environments.tool import hide_secrets

    for line in reversed(re.split(r"[\r\n]", terminal.decode(read_end(path, _TAIL_BYTES)))):
        said = terminal.clean(line).strip()
        if said:
            return "" if said.startswith(("# ", "$ ")) else hide_secrets(said)
    return ""


def describe_transfer(one: e.Transferred) -> str:
    """Describe a transfer: ``inputs.digits: 3.4 GiB in 12 files from s3://lab/digits in 9 s``."""
    files = "1 file" if one.file_count == 1 else f"{one.file_count:,} files"
    way = "to" if one.name.startswith("outputs.") and not one.note.startswith("from") else "from"
    text = f"{one.name}: {format_size(one.size_bytes)} in {files} {way} {one.uri} in {format_seconds(one.seconds)}"
    if one.size_bytes and one.cached_bytes >= one.size_bytes:
        text += ", all of it from the cache"
    elif one.cached_bytes:
        text += f", {format_size(one.cached_bytes)} of it from the cache"
    # What a mount was never expected for need not be told of each time; `job show` has it.
    note = "" if one.note.startswith("not mounted:") else one.note
    return text + (f" ({note})" if note else "")
