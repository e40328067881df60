"""Folders of hard links to content, which the ranks of several jobs read: made beside, renamed, and then left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING

from drumline.contract.folder import private_folder
from drumline.staging.cache import is_whole, touch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.staging.cache import Cache, Source

_NO_LINK = (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP)
"""Of a content that as many files are as can be, or of a file system without hard links."""


def path_of(cache: Cache, source: Source) -> str:
    return os.path.join(cache.trees, source.tree)


def provide(cache: Cache, source: Source) -> str:
    """The path of its tree, made or mended where need be; its content was used just now. Raises OSError."""
    path = path_of(cache, source)
    with cache.in_use():
        if not os.path.isdir(path):
            _make(cache, source, path)
        else:
            _mend(cache, source, path)
    return path


def remove(path: str, beside: str) -> None:
    """Out of sight at once. ``beside``: a folder on the same file system. Raises OSError."""
    away = os.path.join(beside, f"{os.path.basename(path)}.{os.urandom(4).hex()}.removed")
    os.rename(path, away)
    discard(away)


def discard(path: str) -> None:
    """A tree that nobody else knows of. Raises OSError."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)


def fill(cache: Cache, source: Source, folder: str, put: Callable[[str, str], None]) -> None:
    """``put``, given the path in the cache and that in ``folder``, for every file; folders are made. Raises OSError."""
    made = {""}
    for item in source.items:
        inside = os.path.dirname(item.path)
        if inside not in made:
            private_folder(os.path.join(folder, inside))
            made.add(inside)
        put(cache.path_of(item.digest), os.path.join(folder, item.path))


def _make(cache: Cache, source: Source, path: str) -> None:
    partial = os.path.join(cache.partial, f"{source.tree}.{os.getpid()}-{os.urandom(4).hex()}.tree")
    os.mkdir(partial, 0o700)
    try:
        fill(cache, source, partial, _link)
        _close(partial)
        try:
            os.rename(partial, path)
        except OSError:
            if not os.path.isdir(path):
                raise
    finally:
        # Somebody else made the same at the same time, or it could not be made.
        if os.path.isdir(partial):
            discard(partial)


def _mend(cache: Cache, source: Source, path: str) -> None:
    """Who runs as root can write to a tree. Whatever is not as it was made is put right, and nothing else touched."""
    wanted = {item.path: item for item in source.items}
    there = set()
    for relative, found in list(_files(path)):
        item = wanted.get(relative)
        if item is not None and is_whole(found, item.size):
            there.add(relative)
        elif item is None:
            with _open(os.path.dirname(os.path.join(path, relative))):
                os.unlink(os.path.join(path, relative))
    for item in source.items:
        if item.path not in there:
            target = os.path.join(path, item.path)
            with _open(_made(path, os.path.dirname(item.path))):
                beside = f"{target}.{os.urandom(4).hex()}"
                _link(cache.path_of(item.digest), beside)
                os.replace(beside, target)


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """What is in it and no folder, by relative path."""
    for folder, _, _ in os.walk(root):
        with os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    yield os.path.relpath(entry.path, root), found


def _made(root: str, inside: str) -> str:
    """The folder, made where missing. What stands there and is none goes."""
    path = root
    for part in filter(None, inside.split("/")):
        above, path = path, os.path.join(path, part)
        if not os.path.lexists(path) or os.path.islink(path) or not os.path.isdir(path):
            with _open(above):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.mkdir(path, 0o500)
    return path


@contextlib.contextmanager
def _open(folder: str) -> Iterator[None]:
    """For changes in it."""
    os.chmod(folder, 0o700)
    try:
        yield
    finally:
        os.chmod(folder, 0o500)


def _link(content: str, target: str) -> None:
    try:
        os.link(content, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(content, target)
        os.chmod(target, 0o400)
        touch(target)


def _close(root: str) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        os.chmod(folder, 0o500)
