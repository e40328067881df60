"""Copies of local inputs, which a job may change."""

from __future__ import annotations

import errno
import os
import stat

from drumline.contract.folder import private_folder
from drumline.contract.record import NamedTuple
from drumline.staging import file_copy

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
