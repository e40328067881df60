"""
What activating an environment that was built would set, besides PATH. Scripts of its own are not run.

Source: https://docs.python.org/3/library/venv.html#how-venvs-work,
https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#activating-an-environment
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Build

_OF_OTHERS = {
    "uv": ("PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    "conda": ("PYTHONHOME", "VIRTUAL_ENV"),
}


def variables(build: Build | None, own: Mapping[str, str]) -> dict[str, str]:
    """``own``: those that its conda file sets."""
    if build is not None and build.kind == "uv":
        return {"VIRTUAL_ENV": build.prefix, **own}
    if build is not None and build.kind == "conda":
        # What the user has installed for another Python of the same version is not part of it.
        named = {"CONDA_PREFIX": build.prefix, "CONDA_DEFAULT_ENV": build.prefix, "PYTHONNOUSERSITE": "1"}
        return {**named, **own}
    return dict(own)


def unset(build: Build | None) -> tuple[str, ...]:
    """What the environment of whoever submits has left in the surroundings."""
    return _OF_OTHERS.get(build.kind, ()) if build is not None else ()
