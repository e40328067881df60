"""The whole logs of chosen ranks as one text, as ``drumline job logs`` prints them to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.jobs.outcome import read_outcome
from drumline.control.logs.history import History, LogChoice
from drumline.control.logs.lines.rank_files import find_logs
from drumline.control.logs.printer import prefix_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.control.logs.lines.rank_files import ChosenLogs


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
