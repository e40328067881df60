"""
The values of ``${{inputs.x}}`` and ``${{outputs.o}}`` on the nodes, and what must be copied or made for that.

References such as ``azureml:digits:1`` are paths already (``control/assets/references.py``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, SpecError
from drumline.contract.plan import Fetch, InputCopy, Upload, is_below
from drumline.contract.record import NamedTuple
from drumline.plan.request import settings_of
from drumline.spec import paths
from drumline.spec.kinds.values import PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.uris import Place
    from drumline.spec.jobs.command import Command


class Kept(NamedTuple):
    """Data in a datastore: whose record has the credentials, and the home that it is in."""

    datastore: str
    home: str


class Values(NamedTuple):
    inputs: dict[str, str]
    outputs: dict[str, str]
    copies: tuple[InputCopy, ...]
    fetches: tuple[Fetch, ...]
    uploads: tuple[Upload, ...]
    folders: tuple[str, ...]
    """Which must be there when the ranks start."""

    paths: tuple[str, ...]
    """``inputs.x``, ``outputs.o``: those values that are paths of this machine."""

    checks: tuple[tuple[str, str, str], ...]
    """(input, its absolute local path, its type) of every input that must exist."""


_COPIED = ("download", "eval_download")


def resolve_values(
    job: Command,
    folder: RunFolder,
    kept: Mapping[str, Kept] | None = None,
    reached: Sequence[str] | None = None,
) -> Values:
    """
    Resolve ``kept``, by ``inputs.x`` and ``outputs.o``. ``reached``: folders that the nodes have under the same names;
    local inputs elsewhere are copied to the nodes, whatever their mode. None: they have all. Raises PlanError for data
    that cannot be read or written.
    """
    work = _ValueCollector(job, folder, kept or {}, reached)
    for name, given in (job.inputs or {}).items():
        work.add_input(name, given)
    for name, output in (job.outputs or {}).items():
        work.add_output(name, output)
    return Values(
        work.inputs,
        work.outputs,
        tuple(work.copies),
        tuple(work.fetches),
        tuple(work.uploads),
        tuple(work.folders),
        tuple(work.paths),
        tuple(work.checks),
    )


class _ValueCollector:
    def __init__(
        self, job: Command, folder: RunFolder, kept: Mapping[str, Kept], reached: Sequence[str] | None
    ) -> None:
        self._job = job
        self._folder = folder
        self._kept = kept
        self._reached = reached
        self.inputs: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.copies: list[InputCopy] = []
        self.fetches: list[Fetch] = []
        self.uploads: list[Upload] = []
        self.folders: list[str] = []
        self.paths: list[str] = []
        self.checks: list[tuple[str, str, str]] = []

    def add_input(self, name: str, given: Any) -> None:
        if not _is_data(given):
            self.inputs[name] = str(given)
            return
        where = f"inputs.{name}"
        if not given.path:
            raise PlanError(f"{where}: a path is missing", path=f"{where}.path")
        text = str(given.path)
        if paths.is_remote(text):
            self._add_elsewhere(name, given, text)
            return
        place = self.inputs[name] = paths.resolve(self._job, text)
        self.paths.append(where)
        self.checks.append((name, place, str(given.type or "uri_folder").lower()))
        if _mode(given) in _COPIED or not self._is_reached(place):
            target = os.path.join(self._folder.inputs, name, os.path.basename(place.rstrip("/")))
            self.copies.append(InputCopy(name, place, target))
            self.inputs[name] = target

    def _is_reached(self, path: str) -> bool:
        return self._reached is None or is_below(path, self._reached)

    def _add_elsewhere(self, name: str, given: Any, text: str) -> None:
        from drumline.contract import uris
        from drumline.contract.hiding import hide_secrets

        where, mode = f"inputs.{name}", _mode(given)
        if mode == "direct":
            self.inputs[name] = text  # The script opens it by itself.
            return
        place = _place(where, text)
        kind = _kind(given)
        if place.service == uris.HTTP and kind == "folder":
            what = f"{where}: a web server has no folders, and the type of {hide_secrets(text)} is a folder's"
            raise PlanError(what, "type: uri_file", path=f"{where}.type")
        target = self.inputs[name] = os.path.join(self._folder.inputs, name, place.name)
        self.paths.append(where)
        known = self._kept.get(where, Kept("", ""))
        wish = str(settings_of(self._job).get("mount") or "").lower()
        self.fetches.append(Fetch(where, text, kind, target, mode in _COPIED, mode, *known, mount=wish))

    def add_output(self, name: str, output: Any) -> None:
        where = f"outputs.{name}"
        text = str(getattr(output, "path", None) or "")
        mode = str(getattr(output, "mode", None) or "rw_mount").lower()
        self.outputs[name] = text
        if text and not paths.is_remote(text):
            self.outputs[name] = paths.resolve(self._job, text)
        elif text and mode == "direct":
            return
        elif name == "default":
            self.outputs[name] = self._folder.outputs
        else:
            self.outputs[name] = os.path.join(self._folder.named_outputs, name)
        self.paths.append(where)
        self.folders.append(_find_folder(self.outputs[name], output))
        if text and paths.is_remote(text):
            self._add_upload(where, output, text, mode)

    def _add_upload(self, where: str, output: Any, text: str, mode: str) -> None:
        from drumline.contract import uris
        from drumline.contract.hiding import hide_secrets

        place = _place(where, text)
        if place.service not in uris.WRITABLE:
            hint = "abfss://, s3:// or gs://, a datastore, or no path"
            raise PlanError(f"{where}: cannot write to {hide_secrets(text)}", hint, path=f"{where}.path")
        if not place.path and _kind(output) == "file":
            raise PlanError(f"{where}: {hide_secrets(text)} does not say which file", path=f"{where}.path")
        known = self._kept.get(where, Kept("", ""))
        kind = "file" if _kind(output) == "file" else "folder"
        source, always = self.outputs[where[len("outputs.") :]], mode != "upload"
        self.uploads.append(Upload(where, source, text, kind, always, *known))
        if always:
            self.fetches.append(Fetch(where, text, kind, source, True, mode, *known, may_be_missing=True))


def _kind(given: Any) -> str:
    """
    Return the kind of a value: a custom model is the file or folder that is there; an output of a literal, a file.
    """
    return {"uri_file": "file", "custom_model": "any", **dict.fromkeys(PRIMITIVES, "file")}.get(
        str(getattr(given, "type", None) or "").lower(), "folder"
    )


def _place(where: str, text: str) -> Place:
    """Return the place of an address. Raises PlanError for one at no service that is known here."""
    from drumline.contract import uris

    try:
        return uris.parse_uri(text)
    except SpecError as error:
        problem = error.problems[0]
        raise PlanError(f"{where}: {problem.what}", problem.hint, path=f"{where}.path") from error


def variable_of(name: str) -> str:
    """Return the variable of ``inputs.x`` that every rank has: ``AZURE_ML_INPUT_x``."""
    kind, _, key = name.partition(".")
    return f"AZURE_ML_{kind.removesuffix('s').upper()}_{key}"


def _is_data(given: Any) -> bool:
    return hasattr(given, "path") and hasattr(given, "mode")


def _mode(given: Any) -> str:
    return str(given.mode or "ro_mount").lower()


def _find_folder(path: str, output: Any) -> str:
    return os.path.dirname(path) if _kind(output) == "file" else path
