"""
Recovery of jobs whose supervisor or driver was killed: the end is written down, what is left is ended, a driver is
started again, and outputs are registered that the job's nodes could not register.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import NO_ROOM, UsageError
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import examine, fold_events, is_writable
from drumline.engines.table import is_elsewhere

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_NOBODY = 0
"""The number of no process."""


def recover_kind(name: str, kind: str, lack: str) -> tuple[RunFolder, Outcome]:
    """Recover a job of that kind. Raises NotFoundError; UsageError with what a job of another kind lacks."""
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != kind:
        raise UsageError(f"job {name} is a {outcome.kind}: {lack}", f"drumline job show -n {name}")
    return folder, outcome


def recover(folder: RunFolder, secrets: str = "") -> Outcome:
    """
    Do what the job's own processes can no longer do, and return its outcome: nothing, for nearly every job.

    The first to come does it. In a folder that cannot be written to nothing is done, and the outcome is the same.
    ``secrets``: those of its steps, where this process has them (``driver_process.restart_driver``).
    """
    examined = examine(folder, may_withdraw=True)
    outcome = examined.outcome
    registers = outcome.is_final and any(one.away for one in outcome.registered.values())
    if outcome.is_final and is_elsewhere(outcome.engine):
        # Whoever wrote the end may have been killed before this.
        folder.remove_secrets()
    if not (examined.end or examined.lacks_driver or registers) or not is_writable(folder):
        return outcome
    if examined.lacks_driver:
        from drumline.control.jobs import driver_process

        outcome.reason = driver_process.restart_driver(folder, secrets) or outcome.reason
        return outcome
    if examined.end is not None:
        end = examined.end
        try:
            if not is_elsewhere(outcome.engine):
                if not _bar_supervisor(folder):
                    return fold_events(folder)
                end = _end_what_is_left(folder, end.reason)
            folder.append(end)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return outcome
    else:
        _register_outputs(folder)
    return fold_events(folder)


def _bar_supervisor(folder: RunFolder) -> bool:
    """Have a supervisor that comes too late find the job taken. Return False if one has just come. Raises OSError."""
    if folder.read_json(folder.supervisor) is None:
        folder.hand_over(_NOBODY)
    return not identity.is_alive(folder.read_json(folder.supervisor))


def _end_what_is_left(folder: RunFolder, reason: str) -> e.JobEnded:
    """End the processes of a job whose supervisor was killed, and return the event of its end."""
    from drumline.node import leftovers

    count = leftovers.clear_leftovers(folder)
    if count:
        reason += f"; {count} {'process' if count == 1 else 'processes'} that it left were ended"
    return e.JobEnded(time.time(), status.FAILED, 1, reason)


def _register_outputs(folder: RunFolder) -> None:
    """Register outputs where the job's nodes could not reach."""
    from drumline.contract.plan import Plan
    from drumline.supervisor.job import preparing

    with contextlib.suppress(OSError):
        preparing.register(folder, Plan.read(folder.plan).registers)
