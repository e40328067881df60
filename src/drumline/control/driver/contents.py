"""A digest of what a file or a folder holds. Of a large file that has not changed it is remembered."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
from typing import Any

from drumline.contract.folder import home, open_text, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.staging import file_copy

_WORTH_BYTES = 1 << 20
"""A smaller file is read sooner than looked up."""

_MOST_KEPT = 20_000
MOST_BYTES = 4 << 30
"""Of one input; what holds more is compared by names, sizes and times, which tell every change."""

MOST_FILES = 1_000_000
MOST_S = 30.0
"""What takes longer to look through is not compared."""


class _HashedFile(NamedTuple):
    relative: str
    """Of a folder with a slash at its end."""

    path: str
    facts: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.facts.st_mode)

    @property
    def is_program(self) -> bool:
        return stat.S_ISREG(self.facts.st_mode) and bool(self.facts.st_mode & stat.S_IXUSR)

    @property
    def stamp(self) -> list[int]:
        """Return a stamp that differs after every change, and after a copy too."""
        return [self.facts.st_size, self.facts.st_mtime_ns, self.facts.st_ctime_ns, self.facts.st_ino]


def digest_of(path: str, *, by_stamp: bool = False) -> str:
    """
    Return a digest of the names and contents beneath ``path``; links are followed, but not in circles. Blocks.

    Raises OSError, also for a pipe or a device, and for more than MOST_FILES or MOST_S.

    by_stamp: read nothing; sizes and times tell of every change, and of a copy.
    """
    deadline = time.monotonic() + MOST_S
    files = [_file("", path)] if not os.path.isdir(path) else sorted(_files(path, deadline))
    by_stamp = by_stamp or sum(file.facts.st_size for file in files) > MOST_BYTES
    known = {} if by_stamp else _read_known()
    fresh: dict[str, Any] = {}
    whole = hashlib.sha256()
    try:
        for file in files:
            held = repr(file.stamp) if by_stamp and not file.is_folder else _held_by(file, known, fresh)
            mark = "x" if file.is_program else ""
            whole.update(f"{file.relative}\0{held}{mark}\n".encode("utf-8", "surrogateescape"))
            _check_time(file.path, deadline)
    finally:
        if fresh:
            _remember({**known, **fresh})
    return whole.hexdigest()


def _check_time(path: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OSError(errno.ETIMEDOUT, "too much to compare", path)


def _file(relative: str, path: str) -> _HashedFile:
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode) and os.path.exists(path):
        facts = os.stat(path)
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
        raise OSError(errno.EINVAL, "neither a file nor a folder", path)
    return _HashedFile(relative, path, facts)


def _files(root: str, deadline: float) -> list[_HashedFile]:
    found: list[_HashedFile] = []
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, (os.path.realpath(root),))]
    """Folders to look into, each with the real paths of those on the way down."""
    while waiting:
        folder, above = waiting.pop()
        _check_time(root, deadline)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    found.append(_file(os.path.relpath(entry.path, root), entry.path))
                    continue
                found.append(_HashedFile(os.path.relpath(entry.path, root) + "/", entry.path, entry.stat()))
                real = os.path.realpath(entry.path)
                if real not in above:
                    waiting.append((entry.path, (*above, real)))
        if len(found) + len(waiting) > MOST_FILES:
            raise OSError(errno.EFBIG, "too many files", root)
    return found


def _held_by(file: _HashedFile, known: dict[str, Any], fresh: dict[str, Any]) -> str:
    if file.is_folder:
        return ""  # It may be empty, and is there.
    if stat.S_ISLNK(file.facts.st_mode):
        return "to " + os.readlink(file.path)  # Which is not there.
    real = os.path.realpath(file.path)
    before = known.get(real)
    if isinstance(before, list) and before[:4] == file.stamp:
        return str(before[4])
    digest = _read(file, real)
    if file.facts.st_size >= _WORTH_BYTES and file_copy.is_settled(file.facts):
        fresh[real] = [*file.stamp, digest]
    return digest


def _read(file: _HashedFile, real: str) -> str:
    """
    Read a file's digest. Raises OSError if it is another file by now, such as a pipe in its place, or changes
    meanwhile.
    """
    stamp = file_copy.stamp_of(file.facts)
    try:
        descriptor = file_copy.open_unchanged(real, stamp)
        try:
            digest = file_copy.compute_digest(descriptor).hex()
            file_copy.check_unchanged(descriptor, real, stamp)
        finally:
            os.close(descriptor)
    except file_copy.ChangedError as error:
        raise OSError(errno.EAGAIN, "changed while it was compared", file.path) from error
    return digest


def _path() -> str:
    return os.path.join(home(), "reuse", "contents.json")


def _read_known() -> dict[str, Any]:
    try:
        with open_text(_path()) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _remember(known: dict[str, Any]) -> None:
    """Remember the digests. Of two processes at once the last wins, and the other's files are read again."""
    kept = dict(list(known.items())[-_MOST_KEPT:])
    with contextlib.suppress(OSError):
        private_folder(os.path.dirname(_path()))
        write_whole(_path(), json.dumps(kept))
