"""The folder that the Pythons of ranks find first: what is in it notes how they fail, and holds warm interpreters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.folder import STEPS

if TYPE_CHECKING:
    from collections.abc import MutableMapping

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")


def add_hook(variables: MutableMapping[str, str], notes: str, steps: str = "") -> None:
    """
    Have the Pythons of a rank note their failures in the file ``notes``, unless ``DRUMLINE_HOOK`` is 0.

    ``steps``: the file for the steps of its training loop; empty: they are not followed.
    """
    if variables.get("DRUMLINE_HOOK") == "0" or not notes or os.pathsep in HOOK or not os.path.isdir(HOOK):
        return
    others = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join((HOOK, others) if others else (HOOK,))
    variables["DRUMLINE_FAILURES"] = notes
    if steps:
        variables[STEPS] = steps
