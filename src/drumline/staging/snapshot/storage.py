"""The folder of a stored snapshot, and a copy of it that a job may change."""

from __future__ import annotations

import os
import stat

from drumline.staging import file_copy


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
