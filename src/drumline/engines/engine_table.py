"""Engine names, and the module of each, imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError

if TYPE_CHECKING:
    from drumline.engines.base import Engine

ENGINES = {
    "local": "drumline.engines.local.engine",
    "slurm": "drumline.engines.slurm.engine",
    "kubernetes": "drumline.engines.kubernetes.engine",
}


def is_elsewhere(name: str) -> bool:
    """
    Return whether an engine, by its name as an event has it, runs its supervisors on other machines than this one.
    """
    return name not in ("", "local")


def engine(name: str) -> Engine:
    """Return the engine of that name. Raises PlanError for a name that no engine has."""
    if name not in ENGINES:
        known = ", ".join(ENGINES)
        raise PlanError(f"there is no engine {name!r}", f"engines of this version: {known}")
    found: Engine = import_module(ENGINES[name]).ENGINE
    return found
