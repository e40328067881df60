"""The log of a job as text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.plan import Plan
from drumline.control import times
from drumline.control.jobs.recovery import recover
from drumline.control.logs.matching import Matcher
from drumline.control.logs.stream import has_ranks
from drumline.control.logs.view import LogView, choose_ranks, print_logs

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.control.logs.history import LogChoice


def read_logs(
    folder: RunFolder,
    choice: LogChoice,
    rank: str,
    grep: str | None,
    since: str | None,
    view: dict[str, bool | None],
) -> str:
    """Return the chosen lines. ``view``: ``timestamps`` and ``prefix``, as of LogView. Raises UsageError."""
    try:
        if choice.tail is not None and choice.tail < 0:
            raise UsageError(f"tail: {choice.tail} is below 0", "tail=50")
        choice = choice._replace(
            since=times.parse_moment(since, "since") if since else 0.0,
            matcher=Matcher(grep) if grep is not None else None,
        )
        if has_ranks(folder):
            latest = len(recover(folder).attempts)
            if choice.attempt is not None and not 0 <= choice.attempt <= latest:
                there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
                raise UsageError(f"attempt: there is no attempt {choice.attempt}", f"this job has {there}")
            choice = choose_ranks(Plan.read(folder.plan), choice, rank, "")
        elif rank or choice.attempt is not None:
            raise UsageError("rank: this job has no ranks, its steps have", "give the name of a step's job")
        out = io.StringIO()
        print_logs(folder, LogView(out, choice, timestamps=bool(view["timestamps"]), prefix=view["prefix"]))
    except UsageError as error:
        # What the command line calls a flag is an argument here.
        raise UsageError(error.message.removeprefix("--"), error.hint) from None
    return out.getvalue()
