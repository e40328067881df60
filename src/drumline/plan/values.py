"""
What ``${{inputs.x}}`` and ``${{outputs.o}}`` stand for on the nodes, and what must be copied or made for that.

References such as ``azureml:digits:1`` are paths already (``control/references.py``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from drumline.contract.errors import PlanError
from drumline.contract.plan import InputCopy
from drumline.spec import paths

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.spec.command import Command


class Values(NamedTuple):
    inputs: dict[str, str]
    outputs: dict[str, str]
    copies: tuple[InputCopy, ...]
    folders: tuple[str, ...]
    """Which must be there when the ranks start."""

    paths: tuple[str, ...]
    """``inputs.x``, ``outputs.o``: those values that are paths of this machine."""

    checks: tuple[tuple[str, str, str], ...]
    """(input, its absolute local path, its type) of every input that must exist."""


def of(job: Command, folder: RunFolder) -> Values:
    """Raises PlanError for data that is neither on this machine nor passed as it is."""
    inputs: dict[str, str] = {}
    copies = []
    checks = []
    for name, given in (job.inputs or {}).items():
        if not _is_data(given):
            inputs[name] = str(given)
            continue
        place = _place(job, name, given)
        inputs[name] = place
        if paths.is_remote(place):
            continue
        checks.append((name, place, str(given.type or "uri_folder").lower()))
        if _mode(given) in ("download", "eval_download"):
            target = os.path.join(folder.inputs, name, os.path.basename(place.rstrip("/")))
            copies.append(InputCopy(name, place, target))
            inputs[name] = target
    outputs = {name: _output(job, name, output, folder) for name, output in (job.outputs or {}).items()}
    folders = [_made(outputs[name], output) for name, output in (job.outputs or {}).items()]
    local = [f"inputs.{name}" for name, _, _ in checks] + [f"outputs.{name}" for name in outputs]
    return Values(inputs, outputs, tuple(copies), tuple(folders), tuple(local), tuple(checks))


def variable_of(name: str) -> str:
    """``inputs.x`` as the variable that every rank has: ``AZURE_ML_INPUT_x``."""
    kind, _, key = name.partition(".")
    return f"AZURE_ML_{kind.removesuffix('s').upper()}_{key}"


def _is_data(given: Any) -> bool:
    return hasattr(given, "path") and hasattr(given, "mode")


def _mode(given: Any) -> str:
    return str(given.mode or "ro_mount").lower()


def _place(job: Command, name: str, given: Any) -> str:
    """An absolute local path, or a URI that the script opens by itself."""
    if not given.path:
        raise PlanError(f"inputs.{name}: a path is missing", path=f"inputs.{name}.path")
    text = str(given.path)
    if paths.is_remote(text):
        if _mode(given) == "direct":
            return text
        raise PlanError(
            f"inputs.{name}: {text!r} is not on this machine, and fetching it is not supported yet",
            "give a local path, or mode: direct where the script opens the address by itself",
            path=f"inputs.{name}.path",
        )
    return paths.resolve(job, text)


def _output(job: Command, name: str, output: Any, folder: RunFolder) -> str:
    path = getattr(output, "path", None)
    if path and not paths.is_remote(str(path)):
        return paths.resolve(job, str(path))
    return folder.outputs if name == "default" else os.path.join(folder.named_outputs, name)


def _made(path: str, output: Any) -> str:
    is_file = str(getattr(output, "type", None) or "").lower() == "uri_file"
    return os.path.dirname(path) if is_file else path
