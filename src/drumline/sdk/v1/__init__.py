"""
azureml-core's objects, for the jobs of this machine: workspace, experiment, run and compute.

Each module imports those below it: the layers are in ``pyproject.toml``. One call goes up, ``Run.get_context()``:
the run of a rank leads to its workspace, and a workspace makes runs. It goes through ``open_context``.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def open_context(*, allow_offline: bool) -> Any:
    """Return the run that this process is part of: ``drumline.sdk.v1.context``, imported on first use."""
    return import_module("drumline.sdk.v1.context").open_context(allow_offline=allow_offline)
