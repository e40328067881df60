"""The outputs of steps, and those of the whole, which are links to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.folder import RunFolder, private_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def link_output(folder: RunFolder, name: str, target: str) -> None:
    """Link ``target`` as the output ``name`` of a pipeline or a sweep; the name was checked. Raises OSError."""
    private_folder(folder.named_outputs)
    partial = os.path.join(folder.path, f"output.{os.urandom(4).hex()}.partial")
    os.symlink(target, partial)
    os.replace(partial, os.path.join(folder.named_outputs, name))


def output_path(job: str, output: str) -> str:
    """Return where the job writes its output by its plan; for a pipeline or a sweep, where its link leads."""
    folder = RunFolder.for_job(job)
    plan = folder.read_json(folder.plan) or {}
    planned = _variables(plan).get(f"AZURE_ML_OUTPUT_{output}")
    if planned:
        return str(planned)
    if output == "default":
        return folder.outputs
    return os.path.realpath(os.path.join(folder.named_outputs, output))


def _variables(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    known = plan.get("user_env")
    return known if isinstance(known, dict) else {}
