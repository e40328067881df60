"""What is in place before the ranks start: the code in its working folder, copies of inputs, folders of outputs."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder
from drumline.staging import inputs, snapshot

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


def prepare(folder: RunFolder, plan: Plan) -> None:
    """To be called once a run, before its ranks start. Blocks. Raises NodeError that names the path."""
    try:
        if plan.cwd == folder.code:
            _working_folder(folder, plan.snapshot)
        for path in plan.folders:
            private_folder(path)
        for copy in plan.copies:
            inputs.copy(copy.source, copy.target)
    except OSError as error:
        path = error.filename2 or error.filename
        raise NodeError(f"could not put the job in place: {error.strerror}: {path}") from error
    except shutil.Error as error:
        raise NodeError(f"could not put the job in place: {error}") from error


def clear(folder: RunFolder, plan: Plan) -> None:
    """After a ``prepare`` that was killed: so that it can be called once more."""
    for path in (folder.code if plan.cwd == folder.code else "", *(copy.target for copy in plan.copies)):
        if path and os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif path:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _working_folder(folder: RunFolder, digest: str) -> None:
    if digest:
        snapshot.lay_out(folder.root, digest, folder.code)
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
