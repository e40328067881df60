"""
Jobs whose submission was cut off, because the driver at it was killed.

What is less than a job is undone, and submitted anew; what is one is handed to its engine, once more if need be.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import EngineError
from drumline.contract.outcome import fold
from drumline.control import jobs
from drumline.engines.table import engine, is_elsewhere

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_SLOW_S = 1.0
"""More than it takes from the making of a run folder to its job.yml."""

_PAUSE_S = 0.02


def completed(folder: RunFolder, parent: str) -> bool:
    """
    Whether there is a job of ``parent`` in that folder, which is on its way then, or has ended.

    False: there was less than a job, which is gone now, or it is another's. Blocks for a moment.
    """
    if not folder.exists() and os.path.lexists(folder.path):
        _clear(folder, parent)
    if not folder.exists() or is_others(folder, parent):
        return False
    outcome = fold(folder.read_events())
    if outcome.is_final:
        return not _never_began(folder, outcome)
    if outcome.kind != "command":
        if not identity.is_alive(folder.read_json(folder.supervisor)):
            from drumline.control.driver import start

            start.revive(folder)
    elif is_elsewhere(outcome.engine):
        _complete_elsewhere(folder, outcome)
    elif not os.path.exists(folder.supervisor):
        # The one that is perhaps on its way and this one: the first to come has it.
        engine(outcome.engine).submit(folder, None)
    return True


def is_others(folder: RunFolder, parent: str) -> bool:
    """Whether there is something in that folder that is not of ``parent``."""
    return os.path.lexists(folder.path) and jobs.read_spec(folder).get("parent_job_name") != parent


def _clear(folder: RunFolder, parent: str) -> None:
    """What there is of a job that was none yet; somebody else's who is at it becomes one meanwhile."""
    from drumline.control.submit import remove_folder

    deadline = time.monotonic() + _SLOW_S
    while not os.path.exists(folder.job) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    if not folder.exists() and (not os.path.exists(folder.job) or not is_others(folder, parent)):
        remove_folder(folder)


def _never_began(folder: RunFolder, outcome: Outcome) -> bool:
    """Whether somebody who looked at it took it for dead before it had a supervisor."""
    is_written_off = outcome.status == status.FAILED and not is_elsewhere(outcome.engine)
    return is_written_off and not os.path.exists(folder.supervisor)


def _complete_elsewhere(folder: RunFolder, outcome: Outcome) -> None:
    """Two of one job in a queue are no harm: the first to start claims the run folder."""
    chosen = engine(outcome.engine)
    look = None if os.path.exists(folder.engine) else chosen.look(folder)
    if look is None or look.state not in ("unknown", "gone"):
        return
    try:
        chosen.submit(folder, None)
    except EngineError as error:
        folder.append(e.JobEnded(time.time(), status.FAILED, 1, error.message))
