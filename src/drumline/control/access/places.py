"""The folders of a job that a person wants to look into."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import NotFoundError
from drumline.control.jobs import lookup

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

PLACES = ("run", "outputs", "logs", "code")


def find_place(name: str, place: str) -> str:
    """Return the absolute path of one of ``PLACES``. Raises NotFoundError for one that is not there, DrumlineError."""
    folder = lookup.folder_of(name)
    if place == "run":
        return folder.path
    has_ranks = os.path.exists(folder.plan)
    cwd = lookup.read_plan(folder).cwd if has_ranks else folder.code
    paths = {
        "outputs": _choose_outputs(folder) if has_ranks else folder.named_outputs,
        "logs": folder.user_logs,
        "code": cwd,
    }
    path = paths[place]
    if not os.path.isdir(path) or (place == "logs" and not has_ranks):
        whose = "" if has_ranks else "; its steps may have some"
        raise NotFoundError(
            f"job {name} has no {place}{whose}", f"drumline job open {lookup.as_arguments(name)} run"
        )
    return path


def _choose_outputs(folder: RunFolder) -> str:
    kept, beside = folder.outputs, find_outputs_beside(folder)
    return beside if os.path.isdir(beside) and not (os.path.isdir(kept) and os.listdir(kept)) else kept


def find_outputs_beside(folder: RunFolder) -> str:
    """
    Return where a job writes ``./outputs``, by its plan: with `drumline run`, which takes no copy of the code, in the
    folder where that was called. Raises DrumlineError.
    """
    cwd = lookup.read_plan(folder).cwd if os.path.exists(folder.plan) else folder.code
    return os.path.join(cwd, "outputs")
