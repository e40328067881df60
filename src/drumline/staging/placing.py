"""From the cache to where the ranks look: a link to a tree, or a copy that they may change. By a rename, in one go."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.folder import private_folder
from drumline.staging import cache_trees, copying

if TYPE_CHECKING:
    from drumline.staging.cache import Cache, Source


def is_there(target: str) -> bool:
    """Whether an earlier call has put a copy there; an empty folder is none."""
    if os.path.islink(target):
        return False
    if os.path.isdir(target):
        with os.scandir(target) as entries:
            return next(entries, None) is not None
    return os.path.lexists(target)


def link(tree: str, target: str, name: str = "") -> None:
    """``name``: of the one file that is meant; empty: all of the tree. Raises OSError."""
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


def copy(cache: Cache, source: Source, target: str) -> None:
    """Of all files, or of the one that there is when it is one. Raises OSError."""
    private_folder(os.path.dirname(target))
    # One name, so that what a killed process has left is found.
    beside = f"{target}.partial"
    _remove(beside)
    try:
        if source.kind == "file":
            _copy(cache.path_of(source.items[0].digest), beside)
        else:
            os.mkdir(beside, 0o700)
            cache_trees.fill(cache, source, beside, _copy)
        _give_way(target)
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(beside)
        raise


def _copy(content: str, target: str) -> None:
    source = os.open(content, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        copied = copying.create(target, 0o600)
        try:
            copying.copy(source, copied)
        finally:
            os.close(copied)
    finally:
        os.close(source)


def _give_way(target: str) -> None:
    """An empty folder, and the link of an earlier time. Raises OSError for a folder that is not empty."""
    if os.path.islink(target):
        os.unlink(target)
    elif os.path.isdir(target):
        os.rmdir(target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
