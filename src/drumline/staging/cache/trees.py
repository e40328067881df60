"""Folders of hard links to content, which the ranks of several jobs read: made beside, renamed, and then left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING

from drumline.contract.folder import private_folder
from drumline.staging.cache.cache_folder import is_whole, mark_used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.staging.cache.cache_folder import Cache, CachedSource

_NO_LINK = (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP)
"""Of a content that as many files are as can be, or of a file system without hard links."""


def tree_path(cache: Cache, source: CachedSource) -> str:
    return os.path.join(cache.trees, source.tree)


def make_tree(cache: Cache, source: CachedSource) -> str:
    """Return the path of its tree, made or repaired if needed, whose content was used just now. Raises OSError."""
    path = tree_path(cache, source)
    with cache.in_use():
        if not os.path.isdir(path):
            _make(cache, source, path)
        else:
            _mend(cache, source, path)
    return path


def remove_tree(path: str, beside: str) -> None:
    """Remove a tree from sight at once, then for good. ``beside``: a folder on the same file system. Raises OSError."""
    away = os.path.join(beside, f"{os.path.basename(path)}.{os.urandom(4).hex()}.removed")
    _move(path, away)
    delete_tree(away)


def delete_tree(path: str) -> None:
    """Delete a tree that no other process knows. Raises OSError."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)


def fill_folder(cache: Cache, source: CachedSource, folder: str, put: Callable[[str, str], None]) -> None:
    """Make the folders, and call ``put`` with cached and new path of every file. Raises OSError."""
    made = {""}
    for item in source.items:
        inside = os.path.dirname(item.path)
        if inside not in made:
            private_folder(os.path.join(folder, inside))
            made.add(inside)
        put(cache.content_path(item.digest), os.path.join(folder, item.path))


def _make(cache: Cache, source: CachedSource, path: str) -> None:
    partial = os.path.join(cache.partial, f"{source.tree}.{os.getpid()}-{os.urandom(4).hex()}.tree")
    os.mkdir(partial, 0o700)
    try:
        fill_folder(cache, source, partial, _link)
        for folder, _, _ in os.walk(partial, topdown=False):
            os.chmod(folder, 0o500)
        try:
            _move(partial, path)
        except OSError:
            if not os.path.isdir(path):
                raise
        else:
            os.chmod(path, 0o500)
    finally:
        # Somebody else made the same at the same time, or it could not be made.
        if os.path.isdir(partial):
            delete_tree(partial)


def _mend(cache: Cache, source: CachedSource, path: str) -> None:
    """Put right what a user with root's rights wrote to a tree, and touch nothing else."""
    wanted = {item.path: item for item in source.items}
    there = set()
    for relative, found in list(_files(path)):
        item = wanted.get(relative)
        if item is not None and is_whole(found, item.size):
            there.add(relative)
        elif item is None:
            with _writable(os.path.dirname(os.path.join(path, relative))):
                os.unlink(os.path.join(path, relative))
    for item in source.items:
        if item.path not in there:
            target = os.path.join(path, item.path)
            with _writable(_make_folder(path, os.path.dirname(item.path))):
                beside = f"{target}.{os.urandom(4).hex()}"
                _link(cache.content_path(item.digest), beside)
                os.replace(beside, target)


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path of everything in it but folders."""
    for folder, _, _ in os.walk(root):
        with os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    yield os.path.relpath(entry.path, root), found


def _make_folder(root: str, inside: str) -> str:
    """Return the folder, created if missing; a file in its place is removed."""
    path = root
    for part in filter(None, inside.split("/")):
        above, path = path, os.path.join(path, part)
        if not os.path.lexists(path) or os.path.islink(path) or not os.path.isdir(path):
            with _writable(above):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.mkdir(path, 0o500)
    return path


@contextlib.contextmanager
def _writable(folder: str) -> Iterator[None]:
    """Allow changes in a folder."""
    os.chmod(folder, 0o700)
    try:
        yield
    finally:
        os.chmod(folder, 0o500)


def _move(tree: str, place: str) -> None:
    """Rename a tree, which needs the right to write the folder itself where its parent changes."""
    os.chmod(tree, 0o700)
    os.rename(tree, place)


def _link(content: str, target: str) -> None:
    try:
        os.link(content, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(content, target)
        os.chmod(target, 0o400)
        mark_used(target)
