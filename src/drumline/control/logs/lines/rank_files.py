"""The logs of a job that a viewer has chosen: of some ranks or nodes, in one attempt."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.jobs.outcome import read_outcome
from drumline.control.logs.history import History, LogChoice
from drumline.control.logs.lines.merged import MergedLog, RankFile
from drumline.control.logs.printer import prefix_of
from drumline.control.logs.rank_log import list_earlier
from drumline.control.logs.view import choose_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder


READ_S = 2.0
"""At most so long are logs read before there is an answer; the next one goes on from there."""

_MOST_KEPT = 8


class ChosenLogs(NamedTuple):
    """The logs of ranks and nodes such as ``0,3-5``, empty for all; ``attempt``, counted from 0, None: the latest."""

    ranks: str = ""
    nodes: str = ""
    attempt: int | None = None


ALL = ChosenLogs()


class JobLogs(NamedTuple):
    """The chosen logs of a job. ``attempt``: counted from 0."""

    folder: RunFolder
    attempt: int
    files: list[RankFile]

    def find(self, rank: int) -> int:
        """Return the place of a rank among the files. Raises UsageError."""
        for place, file in enumerate(self.files):
            if file.rank == rank:
                return place
        raise UsageError(
            f"job {self.folder.name} has no rank {rank}", "the ranks of a job are counted from 0"
        )


def find_logs(name: str, chosen: ChosenLogs) -> JobLogs:
    """
    Return the chosen logs of a job; a pipeline or a sweep has none.

    Raises NotFoundError, UsageError for a rank or an attempt that the job lacks.
    """
    folder = folder_of(name)
    latest = len(read_outcome(folder).attempts)
    number = latest if chosen.attempt is None else chosen.attempt
    if not 0 <= number <= latest:
        there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
        raise UsageError(f"job {name} has no attempt {number}", f"it has {there}")
    if not os.path.exists(folder.plan):
        return JobLogs(folder, number, [])
    plan = read_plan(folder)
    try:
        choice = choose_ranks(plan, LogChoice(), chosen.ranks, chosen.nodes)
    except UsageError as error:
        # What the command line calls a flag is a parameter here.
        raise UsageError(error.message.removeprefix("--"), error.hint.removeprefix("--node ")) from None
    files = [
        RankFile(
            task.rank, task.label, node.node, _path_of(os.path.join(folder.path, task.log), number, latest)
        )
        for node in plan.nodes
        for task in node.ranks
        if (choice.labels is None or task.label in choice.labels)
        and (choice.nodes is None or node.node in choice.nodes)
    ]
    return JobLogs(folder, number, sorted(files))


def _path_of(path: str, attempt: int, latest: int) -> str:
    if attempt == latest:
        return path
    return dict(list_earlier(path)).get(
        attempt, os.path.join(os.path.dirname(path), f"attempt-{attempt}", "-")
    )


_merged: OrderedDict[tuple[object, ...], tuple[object, MergedLog]] = OrderedDict()
_merged_lock = threading.Lock()


def merge(logs: JobLogs, limit_s: float = READ_S) -> MergedLog:
    """Return the lines of these logs in one order, as they are now. What is known of them is kept for a while."""
    nodes = {file.node for file in logs.files}
    looks = {node: logs.folder.log_times_path(logs.attempt, node) for node in nodes}
    key = (logs.folder.path, logs.attempt, tuple(file.rank for file in logs.files))
    stamp = tuple(map(_stamp, [*(file.path for file in logs.files), *looks.values()]))
    with _merged_lock:
        known = _merged.get(key)
        if known is not None and known[0] == stamp and known[1].is_whole:
            _merged.move_to_end(key)
            return known[1]
    made = MergedLog(logs.files, looks, time.monotonic() + limit_s)
    with _merged_lock:
        _merged[key] = (stamp, made)
        _merged.move_to_end(key)
        while len(_merged) > _MOST_KEPT:
            _merged.popitem(last=False)
    return made


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        known = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return known.st_ino, known.st_size, known.st_mtime_ns


# all of the logs as one text


def read_whole(name: str, chosen: ChosenLogs) -> Iterator[bytes]:
    """
    Return what these ranks have written so far, in the order of time as far as it is known, each line behind its rank
    where the job has several.

    Raises NotFoundError, UsageError for a rank or an attempt that the job lacks.
    """
    logs = find_logs(name, chosen)
    if not logs.files:
        return iter(())
    folder = folder_of(name)
    plan = read_plan(folder)
    choice = LogChoice(labels=frozenset(file.label for file in logs.files), attempt=logs.attempt)
    latest = len(read_outcome(folder).attempts)
    history = History(folder, plan, choice, latest)
    if len(plan.ranks) == 1:
        return (block.lines for block in history.blocks())
    return (_put_behind(prefix_of(block), block.lines) for block in history.blocks())


def _put_behind(prefix: str, lines: bytes) -> bytes:
    start = prefix.encode()
    return start + lines[:-1].replace(b"\n", b"\n" + start) + b"\n"
