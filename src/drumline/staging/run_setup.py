"""The folders of a run before its ranks start: code in the working folder, copies of inputs, output folders."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder
from drumline.contract.record import NamedTuple
from drumline.staging import file_copy
from drumline.staging.snapshot.partial_folder import copy_snapshot

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _CopiedFolder(NamedTuple):
    source: str
    target: str
    is_within: bool
    """Of the input itself, not of something that a link in it leads to."""

    above: tuple[tuple[int, int], ...]
    """The folders on the way to it, so that links out of the input cannot lead in a circle."""


def copy_input(source: str, target: str) -> None:
    """
    Copy a file, or a folder, with modes and times to ``target``, which does not exist yet. Blocks.

    Links within the folder are links within the copy; what others lead to is copied, and those to nothing lead there
    still. Pipes, sockets and devices are left out. Raises OSError, also for an input that is none of these.
    """
    private_folder(os.path.dirname(target))
    facts = os.stat(source)
    if not stat.S_ISDIR(facts.st_mode):
        _copy_file(source, target)
        return
    root = os.path.realpath(source)
    waiting = [_CopiedFolder(root, target, True, ())]
    while waiting:
        waiting += _copy_folder(root, waiting.pop())


def _copy_folder(root: str, folder: _CopiedFolder) -> list[_CopiedFolder]:
    """Copy the files of a folder, and return the folders in it, which are not copied yet."""
    facts = os.stat(folder.source)
    identity = (facts.st_dev, facts.st_ino)
    if identity in folder.above:
        return []
    os.mkdir(folder.target, 0o700)
    os.chmod(folder.target, stat.S_IMODE(facts.st_mode) & 0o777 | 0o700)
    above = (*folder.above, identity)
    found = []
    with os.scandir(folder.source) as entries:
        for entry in entries:
            target = f"{folder.target}/{entry.name}"
            is_within = folder.is_within
            if entry.is_symlink():
                if not os.path.exists(entry.path) or (
                    is_within and _is_in(root, os.path.realpath(entry.path))
                ):
                    os.symlink(_link_of(folder, entry), target)
                    continue
                is_within = False
            if entry.is_dir():
                found.append(_CopiedFolder(entry.path, target, is_within, above))
            elif entry.is_file():
                _copy_file(entry.path, target)
    return found


def _is_in(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _link_of(folder: _CopiedFolder, entry: os.DirEntry[str]) -> str:
    """Return where a link leads: a relative path if that is within the copy too."""
    link = os.readlink(entry.path)
    if not os.path.exists(entry.path):
        return link
    return os.path.relpath(os.path.realpath(entry.path), folder.source)


def _copy_file(source: str, target: str) -> None:
    original = os.open(source, _OPEN)
    try:
        facts = os.fstat(original)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "neither a file nor a folder", source)
        made = file_copy.create_file(target, 0o600)
        try:
            file_copy.copy_content(original, made)
            os.fchmod(made, stat.S_IMODE(facts.st_mode) & 0o777)
            os.utime(made, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        finally:
            os.close(made)
    except OSError as error:
        error.filename = error.filename or source
        raise
    finally:
        os.close(original)


def prepare_run(folder: RunFolder, plan: Plan) -> None:
    """Put code, inputs and output folders in place, once a run, before its ranks start. Blocks. Raises NodeError."""
    try:
        if plan.cwd == folder.code:
            _make_working_folder(folder, plan.snapshot, plan.beside)
        for path in plan.folders:
            private_folder(path)
        for copy in plan.copies:
            copy_input(copy.source, copy.target)
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
