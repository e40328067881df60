"""
Jobs whose submission was cut off, because the driver at it was killed.

What is less than a job is undone, and submitted anew; what is one is handed to its engine, once more if need be.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import identity, status
from drumline.contract.errors import EngineError
from drumline.contract.outcome import fold
from drumline.contract.secrets import list_names
from drumline.control.jobs import driver_process, lookup
from drumline.control.submission import run_folder, secrets
from drumline.engines.table import engine, is_elsewhere

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_MAKING_S = 1.0
"""More than it takes from the making of a run folder to its job.yml."""

_JOB_FILE_POLL_S = 0.02


def complete_submission(folder: RunFolder, parent: str) -> bool:
    """
    Return whether there is a job of ``parent`` in that folder, which is on its way then, or has ended.

    False: there was less than a job, which is gone now, or it is another's. Blocks for a moment.
    """
    if not folder.exists() and os.path.lexists(folder.path):
        _clear(folder, parent)
    if not folder.exists() or belongs_to_another(folder, parent):
        return False
    outcome = fold(folder.read_events())
    if outcome.is_final:
        return not _never_began(folder, outcome)
    if outcome.kind != "command":
        if not identity.is_alive(folder.read_json(folder.supervisor)):
            names = list_names(folder.read_json(folder.graph))
            driver_process.restart_driver(folder, secrets.find_held(names))
    elif is_elsewhere(outcome.engine):
        _complete_elsewhere(folder, outcome)
    elif not os.path.exists(folder.supervisor):
        # The one that is perhaps on its way and this one: the first to come has it.
        folder.adopt()
        engine(outcome.engine).submit(folder, None, _find_secrets(folder))
    return True


def belongs_to_another(folder: RunFolder, parent: str) -> bool:
    """Return whether the folder holds something that is not a job of ``parent``."""
    return os.path.lexists(folder.path) and lookup.read_spec(folder).get("parent_job_name") != parent


def _clear(folder: RunFolder, parent: str) -> None:
    """Remove a run folder that is not a job yet, unless it becomes the job of another submission meanwhile."""
    deadline = time.monotonic() + _MAKING_S
    while not os.path.exists(folder.job) and time.monotonic() < deadline:
        time.sleep(_JOB_FILE_POLL_S)
    if not folder.exists() and (not os.path.exists(folder.job) or not belongs_to_another(folder, parent)):
        run_folder.remove_folder(folder)


def _never_began(folder: RunFolder, outcome: Outcome) -> bool:
    """Return whether the job was written off before it had a supervisor."""
    is_written_off = outcome.status == status.FAILED and not is_elsewhere(outcome.engine)
    return is_written_off and not folder.read_json(folder.supervisor)


def _complete_elsewhere(folder: RunFolder, outcome: Outcome) -> None:
    """Submit the job again if its engine does not know it. Of two, the first to start claims the run folder."""
    chosen = engine(outcome.engine)
    look = None if os.path.exists(folder.engine) else chosen.view_job(folder, may_withdraw=True)
    if look is None or look.state not in ("unknown", "gone"):
        return
    try:
        chosen.submit(folder, None, _find_secrets(folder))
    except EngineError as error:
        run_folder.write_off(folder, error.message)


def _find_secrets(folder: RunFolder) -> str:
    """Return the values of the job's secrets; without one of them none, which its supervisor then says."""
    names = (folder.read_json(folder.plan) or {}).get("secrets")
    return secrets.find_all_or_none(names) if names else ""
