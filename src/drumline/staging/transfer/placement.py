"""The place where ranks look: a link to a tree of the cache, or a copy that they may change; by one rename."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.folder import private_folder
from drumline.staging import file_copy
from drumline.staging.cache import trees

if TYPE_CHECKING:
    from drumline.staging.cache.folder import Cache, CachedSource


def has_copy(target: str) -> bool:
    """Return whether an earlier call has put a copy there; an empty folder does not count."""
    if os.path.islink(target):
        return False
    if os.path.isdir(target):
        with os.scandir(target) as entries:
            return next(entries, None) is not None
    return os.path.lexists(target)


def link_tree(tree: str, target: str, name: str = "") -> None:
    """Link the target to a tree, or to the one file ``name`` in it. Raises OSError."""
    private_folder(os.path.dirname(target))
    beside = f"{target}.{os.urandom(4).hex()}.partial"
    os.symlink(os.path.join(tree, name) if name else tree, beside)
    try:
        if not os.path.islink(target):
            _give_way(target)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def copy_files(cache: Cache, source: CachedSource, target: str) -> None:
    """Copy all files, or the only one if the source is a file. Raises OSError."""
    private_folder(os.path.dirname(target))
    # One name, so that what a killed process has left is found.
    beside = f"{target}.partial"
    _remove(beside)
    try:
        if source.kind == "file":
            _copy(cache.content_path(source.items[0].digest), beside)
        else:
            os.mkdir(beside, 0o700)
            trees.fill_folder(cache, source, beside, _copy)
        _give_way(target)
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(beside)
        raise


def _copy(content: str, target: str) -> None:
    source = os.open(content, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        copied = file_copy.create_file(target, 0o600)
        try:
            file_copy.copy_content(source, copied)
        finally:
            os.close(copied)
    finally:
        os.close(source)


def _give_way(target: str) -> None:
    """Remove an empty folder or an earlier link. Raises OSError for a folder that is not empty."""
    if os.path.islink(target):
        os.unlink(target)
    elif os.path.isdir(target):
        os.rmdir(target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
