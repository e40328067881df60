"""Sizes of folders on the disk, and the homes in which a workspace keeps jobs."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, home
from drumline.contract.record import NamedTuple
from drumline.linux import mounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    Seen = set[tuple[int, int]]
    """Files with several names that were counted: device and inode."""


class Size(NamedTuple):
    """Bytes on the disk, and the number of files."""

    size: int = 0
    files: int = 0

    def plus(self, other: Size) -> Size:
        return Size(self.size + other.size, self.files + other.files)


def measure(path: str, seen: Seen | None = None, *, leave_out: Collection[str] = ()) -> Size:
    """
    Return the size of a file or folder. Links and mounts are not followed, and what cannot be read counts for nothing.

    ``seen``: a file with several names counts once in all calls with the same set.
    ``leave_out``: names in the folder itself that do not count.
    """
    known = set() if seen is None else seen
    size = files = 0
    for facts in _walk(path, leave_out):
        if not stat.S_ISDIR(facts.st_mode):
            files += 1
            if facts.st_nlink > 1:
                if (facts.st_dev, facts.st_ino) in known:
                    continue
                known.add((facts.st_dev, facts.st_ino))
        size += facts.st_blocks * 512
    return Size(size, files)


def measure_all(paths: Iterable[str], seen: Seen | None = None) -> Size:
    """Return the size of several files or folders; what they share counts once."""
    known: Seen = set() if seen is None else seen
    total = Size()
    for path in paths:
        total = total.plus(measure(path, known))
    return total


def measure_unshared(paths: Iterable[str]) -> Size:
    """Return the bytes that their removal would free: a file counts if it has no name outside of them."""
    size = files = 0
    names: dict[tuple[int, int], int] = {}
    for path in paths:
        for facts in _walk(path, ()):
            if not stat.S_ISDIR(facts.st_mode):
                files += 1
                if facts.st_nlink > 1:
                    place = (facts.st_dev, facts.st_ino)
                    names[place] = names.get(place, 0) + 1
                    if names[place] != facts.st_nlink:
                        continue
            size += facts.st_blocks * 512
    return Size(size, files)


def _walk(path: str, leave_out: Collection[str]) -> Iterator[os.stat_result]:
    """Yield the facts of the path and of all below it on the same file system."""
    try:
        top = os.lstat(path)
    except OSError:
        return
    yield top
    if not stat.S_ISDIR(top.st_mode):
        return
    # A mount of a job may belong to a server that no longer answers, so it is not even looked at.
    mounted = frozenset(mounts.list_mounts(path))
    waiting = [entry for entry in _scan(path) if entry.name not in leave_out]
    while waiting:
        entry = waiting.pop()
        if entry.path in mounted:
            continue
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if facts.st_dev == top.st_dev:
            yield facts
            if stat.S_ISDIR(facts.st_mode):
                waiting += _scan(entry.path)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def list_roots() -> list[str]:
    """Return the home of the current workspace, and those below the folders of computes, where its jobs are too."""
    from drumline.control.machine import computes

    found = [home()]
    for name in computes.names():
        try:
            folder = getattr(computes.get(name), "folder", None)
        except (DrumlineError, OSError):
            continue
        if folder:
            found.append(os.path.realpath(home(str(folder))))
    links = [one.path for one in _scan(os.path.join(home(), "jobs")) if one.is_symlink()]
    found += [RunFolder(os.path.realpath(link)).root for link in links]
    return [root for root in dict.fromkeys(found) if os.path.isdir(root)]
