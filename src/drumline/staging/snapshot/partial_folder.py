"""A folder that is being filled, and is moved to its place when it is whole; what a killed process left is removed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time

from drumline.contract.folder import private_folder
from drumline.staging import file_copy

_SUFFIX = ".partial"
_ABANDONED_S = 24 * 3600.0
"""Age of what nobody can be asked about: of an older version, or on a file system without locks."""


class PartialFolder:
    """A new folder below ``parent``, with ``tree`` in it; locked as long as its process lives. Raises OSError."""

    def __init__(self, parent: str) -> None:
        private_folder(parent)
        remove_abandoned(parent)
        while True:
            self._folder = os.path.join(parent, f"{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}")
            os.mkdir(self._folder, 0o700)
            if self._take():
                break
        self.tree = os.path.join(self._folder, "tree")
        os.mkdir(self.tree, 0o700)
        self._folders = {""}

    def _take(self) -> bool:
        """Return whether no other process removed it as abandoned between its creation and its lock."""
        try:
            self._lock = os.open(_lock_of(self._folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        if _lock(self._lock) is not False and os.fstat(self._lock).st_nlink:
            return True
        os.close(self._lock)
        return False

    def place_for(self, relative: str) -> str:
        """Return the path of a file to create; folders above it exist. Raises OSError."""
        self._make(os.path.dirname(relative))
        return f"{self.tree}/{relative}"

    def _make(self, folder: str) -> None:
        missing = []
        while folder not in self._folders:
            missing.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):  # Of two threads.
                os.mkdir(f"{self.tree}/{each}", 0o700)
            self._folders.add(each)

    def drop(self, relative: str) -> None:
        """Take a file out again, and the folders above it that are empty now."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.tree}/{relative}")
        folder = os.path.dirname(relative)
        with contextlib.suppress(OSError):
            while folder:
                os.rmdir(f"{self.tree}/{folder}")
                self._folders.discard(folder)
                folder = os.path.dirname(folder)

    def move_to(self, final: str) -> None:
        """Move the tree to its place, unless another process was first. Raises OSError."""
        try:
            os.rename(self.tree, final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise

    def remove(self) -> None:
        try:
            os.unlink(_lock_of(self._folder))
            os.rmdir(self._folder)
        except OSError:  # It was not moved.
            _remove(self._folder)
        os.close(self._lock)


def remove_abandoned(parent: str) -> None:
    """Remove the partial folders of killed processes."""
    with os.scandir(parent) as entries:
        folders = [entry.path for entry in entries if entry.name.endswith(_SUFFIX)]
    for folder in folders:
        with contextlib.suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: str) -> None:
    """Remove it with its lock held, so that a process that is just making it notices."""
    try:
        descriptor = os.open(_lock_of(folder), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if _is_old(folder):
            _remove(folder)
        return
    try:
        is_left = _lock(descriptor)
        if is_left or (is_left is None and _is_old(folder)):
            _remove(folder)
    finally:
        os.close(descriptor)


def _is_old(folder: str) -> bool:
    return time.time() - os.lstat(folder).st_mtime > _ABANDONED_S


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: str) -> str:
    return os.path.join(folder, "lock")


def _lock(descriptor: int) -> bool | None:
    """Return whether the lock was free; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


# The folder of a stored snapshot, and a copy of it that a job may change.


def snapshot_path(home: str, digest: str) -> str:
    """Return the folder of the snapshot with this digest."""
    return os.path.join(home, "snapshots", digest)


def copy_snapshot(home: str, digest: str, target: str) -> None:
    """
    Copy a snapshot to ``target``, which does not exist yet and which the job may change. Blocks. Raises OSError.

    Never links to what is stored: a job may write into its code, root even into files that are read-only, and what one
    job writes no other may see. Where the file system can, blocks are shared until one of them is written.
    """
    os.mkdir(target, 0o700)
    waiting = [(snapshot_path(home, digest), target)]
    while waiting:
        source, inside = waiting.pop()
        with os.scandir(source) as entries:
            for entry in entries:
                path = f"{inside}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    os.mkdir(path, 0o700)
                    waiting.append((entry.path, path))
                else:
                    _copy_file(entry.path, path)


def _copy_file(source: str, target: str) -> None:
    original = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(original)
        copy = file_copy.create_file(target, 0o700 if facts.st_mode & stat.S_IXUSR else 0o600)
        try:
            file_copy.copy_content(original, copy)
        finally:
            os.close(copy)
    finally:
        os.close(original)
