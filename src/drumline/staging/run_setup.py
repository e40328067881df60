"""The folders of a run before its ranks start: code in the working folder, copies of inputs, output folders."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder
from drumline.staging import local_inputs
from drumline.staging.snapshot.partial_folder import copy_snapshot

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


def prepare_run(folder: RunFolder, plan: Plan) -> None:
    """Put code, inputs and output folders in place, once a run, before its ranks start. Blocks. Raises NodeError."""
    try:
        if plan.cwd == folder.code:
            _make_working_folder(folder, plan.snapshot, plan.beside)
        for path in plan.folders:
            private_folder(path)
        for copy in plan.copies:
            local_inputs.copy_input(copy.source, copy.target)
    except OSError as error:
        path = error.filename2 or error.filename
        raise NodeError(f"could not put the job in place: {error.strerror}: {path}") from error
    except shutil.Error as error:
        raise NodeError(f"could not put the job in place: {error}") from error


def clear_run(folder: RunFolder, plan: Plan) -> None:
    """Remove the result of a ``prepare_run`` that was killed, so that it can be called once more."""
    for path in (folder.code if plan.cwd == folder.code else "", *(copy.target for copy in plan.copies)):
        if path and os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif path:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _make_working_folder(folder: RunFolder, digest: str, beside: str) -> None:
    if digest:
        copy_snapshot(folder.root, digest, folder.code)
    else:
        os.mkdir(folder.code, 0o700)
    # What a job writes to ./outputs and ./logs is its artifacts, and stays when the working folder goes.
    for name, target in (("outputs", folder.outputs), ("logs", os.path.join(folder.path, "logs"))):
        inside = os.path.join(folder.code, name)
        private_folder(target)
        if os.path.isdir(inside):
            shutil.copytree(inside, target, dirs_exist_ok=True)
            shutil.rmtree(inside)
        if not os.path.lexists(inside):
            os.symlink(os.path.relpath(target, folder.code), inside)
    if beside and os.path.isdir(beside):
        _link_others(beside, folder.code)


_NEVER_LINKED = (".git", "__pycache__")
"""Git and Python would write there, and take the code for that of the other folder."""


def _link_others(source: str, target: str) -> None:
    """Link what is in ``source`` and not in ``target``: data that lies beside the code, and is not stored with it."""
    with os.scandir(source) as entries:
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.name in _NEVER_LINKED:
                continue
            if not os.path.lexists(path):
                os.symlink(entry.path, path)
            elif entry.is_dir(follow_symlinks=False) and os.path.isdir(path) and not os.path.islink(path):
                _link_others(entry.path, path)
