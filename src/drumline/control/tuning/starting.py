"""A tuning that begins, or goes on where the command that began it was killed."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.record import NamedTuple
from drumline.contract.secrets import list_names
from drumline.control.jobs import lookup
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.recovery import recover
from drumline.control.submission import driven
from drumline.control.submission import secrets as submitted_secrets
from drumline.control.submission.submit import submit
from drumline.control.tuning.request import name_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.outcome import Outcome
    from drumline.spec.jobs.sweep import SweepJob

BEGINS, GOES_ON, WAS_MEASURED = "begins", "goes on", "was measured before"

_POLL_S = 0.5


class StartedTuning(NamedTuple):
    """``how``: one of the words above. ``warnings``: of a tuning that begins."""

    folder: RunFolder
    how: str
    warnings: tuple[str, ...] = ()


def start(sweep: SweepJob, *, again: bool = False) -> StartedTuning:
    """
    Start the tuning, unless it is there: then it goes on, or was measured. ``again``: whatever was measured.

    Raises SpecError, PlanError, EngineError.
    """
    graph, _ = driven.prepare(sweep)
    sweep._snapshots = graph["snapshots"]
    wanted = name_after(sweep, sweep._snapshots)
    known, name = _find_last(wanted)
    if known is not None:
        outcome = recover(known, _find_secrets(known))
        if not outcome.is_final:
            return StartedTuning(known, GOES_ON)
        if outcome.status == status.COMPLETED and not again:
            return StartedTuning(known, WAS_MEASURED)
    sweep.name = name
    try:
        submitted = submit(sweep)  # type: ignore[arg-type]
    except DrumlineError:
        # The same command in another window was faster.
        if not RunFolder.for_job(name).exists():
            raise
        return StartedTuning(RunFolder.for_job(name), GOES_ON)
    return StartedTuning(submitted.folder, BEGINS, submitted.warnings)


def _find_last(wanted: str) -> tuple[RunFolder | None, str]:
    """Return the newest tuning of that name, and the name of the next. Older ones may have been deleted."""
    numbers = [_read_number(name, wanted) for name in lookup.all_names()]
    last = max(numbers, default=0)
    if not last:
        return None, wanted
    return RunFolder.for_job(wanted if last == 1 else f"{wanted}-{last}"), f"{wanted}-{last + 1}"


def _read_number(name: str, wanted: str) -> int:
    """
    Return which tuning of the wanted name a job is, from 1 on; 0: none.

    >>> _read_number("tune-x", "tune-x"), _read_number("tune-x-3", "tune-x"), _read_number("tune-x_0", "tune-x")
    (1, 3, 0)
    """
    if name == wanted:
        return 1
    head, _, number = name.rpartition("-")
    return int(number) if head == wanted and re.fullmatch("[1-9][0-9]{0,8}", number) else 0


def _find_secrets(folder: RunFolder) -> str:
    """Return the secrets of the settings' jobs; without one of them none, which the next job then says."""
    names = list_names(folder.read_json(folder.graph))
    return submitted_secrets.find_all_or_none(names) if names else ""


def follow(folder: RunFolder, tell: Callable[[str], None]) -> Outcome:
    """Wait for the end of the tuning. Blocks. ``tell`` takes a line for each setting that is measured from now on."""
    secrets = _find_secrets(folder)
    outcome = recover(folder, secrets)
    told = {name for name, step in outcome.steps.items() if step.status}
    while True:
        is_over = wait_for_end(folder, time.monotonic() + _POLL_S)
        outcome = recover(folder, secrets)
        for name, step in outcome.steps.items():
            if step.status and name not in told:
                told.add(name)
                shown = ", ".join(f"{key} {value}" for key, value in step.detail["params"].items())
                once_more = "; it is measured once more" if step.detail.get("again") else ""
                tell(f"{shown}: {step.reason}{once_more}")
        if is_over:
            return outcome
