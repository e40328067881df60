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


_COPIED = ("download", "eval_download")


class Values:
    """
    The values of a job's inputs and outputs, and what must be copied or made for them.

    ``kept``: by ``inputs.x`` and ``outputs.o``, of those in datastores. ``reached``: folders that the nodes have under
    the same names; local inputs elsewhere are copied to the nodes, whatever their mode. None: they have all. Raises
    PlanError for data that cannot be read or written.
    """

    def __init__(
        self,
        job: Command,
        folder: RunFolder,
        kept: Mapping[str, Kept] | None = None,
        reached: Sequence[str] | None = None,
    ) -> None:
        self._job = job
        self._folder = folder
        self._kept = kept or {}
        self._reached = reached
        self.texts: dict[str, str] = {}
        """By ``inputs.x`` and ``outputs.o``."""

        self.copies: list[InputCopy] = []
        self.fetches: list[Fetch] = []
        self.uploads: list[Upload] = []
        self.folders: list[str] = []
        """Which must be there when the ranks start."""

        self.paths: list[str] = []
        """``inputs.x``, ``outputs.o``: those values that are paths of this machine."""

        self.checks: list[tuple[str, str, str]] = []
        """(input, its absolute local path, its type) of every input that must exist."""

        for name, given in (job.inputs or {}).items():
            self._add_input(name, given)
        for name, output in (job.outputs or {}).items():
            self._add_output(name, output)

    def _add_input(self, name: str, given: Any) -> None:
        where = f"inputs.{name}"
        if not (hasattr(given, "path") and hasattr(given, "mode")):
            self.texts[where] = str(given)
            return
        if not given.path:
            raise PlanError(f"{where}: a path is missing", path=f"{where}.path")
        text = str(given.path)
        if paths.is_remote(text):
            self._add_remote_input(name, given, text)
            return
        local = self.texts[where] = paths.resolve(self._job, text)
        self.paths.append(where)
        self.checks.append((name, local, str(given.type or "uri_folder").lower()))
        is_reached = self._reached is None or is_below(local, self._reached)
        if _mode(given) in _COPIED or not is_reached:
            target = os.path.join(self._folder.inputs, name, os.path.basename(local.rstrip("/")))
            self.copies.append(InputCopy(name, local, target))
            self.texts[where] = target

    def _add_remote_input(self, name: str, given: Any, text: str) -> None:
        from drumline.contract import uris
        from drumline.contract.hiding import hide_secrets

        where, mode = f"inputs.{name}", _mode(given)
        if mode == "direct":
            self.texts[where] = text  # The script opens it by itself.
            return
        place = _place(where, text)
        kind = _kind(given)
        if place.service == uris.HTTP and kind == "folder":
            what = f"{where}: a web server has no folders, and the type of {hide_secrets(text)} is a folder's"
            raise PlanError(what, "type: uri_file", path=f"{where}.type")
        target = self.texts[where] = os.path.join(self._folder.inputs, name, place.name)
        self.paths.append(where)
        datastore = self._kept.get(where, Kept("", ""))
        wish = str(settings_of(self._job).get("mount") or "").lower()
        self.fetches.append(Fetch(where, text, kind, target, mode in _COPIED, mode, *datastore, mount=wish))

    def _add_output(self, name: str, output: Any) -> None:
        where = f"outputs.{name}"
        text = str(getattr(output, "path", None) or "")
        mode = str(getattr(output, "mode", None) or "rw_mount").lower()
        is_remote = bool(text) and paths.is_remote(text)
        if text and not is_remote:
            target = paths.resolve(self._job, text)
        elif is_remote and mode == "direct":
            self.texts[where] = text
            return
        elif name == "default":
            target = self._folder.outputs
        else:
            target = os.path.join(self._folder.named_outputs, name)
        self.texts[where] = target
        self.paths.append(where)
        self.folders.append(os.path.dirname(target) if _kind(output) == "file" else target)
        if is_remote:
            self._add_upload(where, output, text, mode)

    def _add_upload(self, where: str, output: Any, text: str, mode: str) -> None:
        from drumline.contract import uris
        from drumline.contract.hiding import hide_secrets

        place = _place(where, text)
        if place.service not in uris.WRITABLE:
            hint = "abfss://, s3:// or gs://, a datastore, or no path"
            raise PlanError(f"{where}: cannot write to {hide_secrets(text)}", hint, path=f"{where}.path")
        kind = "file" if _kind(output) == "file" else "folder"
        if not place.path and kind == "file":
            raise PlanError(f"{where}: {hide_secrets(text)} does not say which file", path=f"{where}.path")
        datastore = self._kept.get(where, Kept("", ""))
        source, always = self.texts[where], mode != "upload"
        self.uploads.append(Upload(where, source, text, kind, always, *datastore))
        if always:
            self.fetches.append(Fetch(where, text, kind, source, True, mode, *datastore, may_be_missing=True))


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


def _mode(given: Any) -> str:
    return str(given.mode or "ro_mount").lower()
