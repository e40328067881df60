"""
The content of each file of a folder when its code was last taken, so that unchanged files are not read again.

A file a folder of code, ``<home>/snapshot-index/<digest of its path>``: the digest of the snapshot, and for every file
its stamp, the SHA-256 of its content and its relative path. It can be removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct

from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple

_MAGIC = b"drumline snapshot index 1\n"
_STAMP_BYTES = 40
_DIGEST_BYTES = 32
_RECORD_BYTES = _STAMP_BYTES + _DIGEST_BYTES
_HEAD = struct.Struct("<32sQ")
_MOST_FOLDERS = 200


class IndexedFile(NamedTuple):
    stamp: bytes
    content: bytes


class SnapshotIndex:
    """The files of one snapshot. ``snapshot``: its digest; empty if there is none."""

    def __init__(self, snapshot: str = "", records: bytes = b"", names: list[str] | None = None) -> None:
        self.snapshot = snapshot
        self._records = records
        self._at = {name: at for at, name in enumerate(names or ())}

    def __len__(self) -> int:
        return len(self._at)

    def has(self, relative: str, stamp: bytes) -> bool:
        """Return whether the file with this stamp is known, and its content unchanged."""
        at = self._at.get(relative)
        return at is not None and self._records.startswith(stamp, at * _RECORD_BYTES)

    def get(self, relative: str) -> IndexedFile | None:
        at = self._at.get(relative)
        if at is None:
            return None
        begin = at * _RECORD_BYTES
        middle, end = begin + _STAMP_BYTES, begin + _RECORD_BYTES
        return IndexedFile(self._records[begin:middle], self._records[middle:end])


def read_index(home: str, root: str) -> SnapshotIndex:
    """Read the index of a folder; an empty one if there is none, or a damaged one."""
    try:
        with open(_path(home, root), "rb") as file:
            data = file.read()
    except OSError:
        return SnapshotIndex()
    body, check = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    head_end = len(_MAGIC) + _HEAD.size
    if not body.startswith(_MAGIC) or len(body) < head_end or hashlib.sha256(body).digest() != check:
        return SnapshotIndex()
    snapshot, count = _HEAD.unpack(body[len(_MAGIC) : head_end])
    names_at = head_end + count * _RECORD_BYTES
    names = body[names_at:].decode("utf-8", "surrogateescape").split("\0")
    return SnapshotIndex(snapshot.hex(), body[head_end:names_at], names if count else [])


def write_index(home: str, root: str, snapshot: str, files: list[tuple[str, IndexedFile]]) -> None:
    """Write all of it or nothing; of two at once the last one wins. An index that cannot be written is no harm."""
    body = b"".join((
        _MAGIC,
        _HEAD.pack(bytes.fromhex(snapshot), len(files)),
        b"".join(held.stamp + held.content for _, held in files),
        "\0".join(relative for relative, _ in files).encode("utf-8", "surrogateescape"),
    ))  # fmt: skip
    path = _path(home, root)
    with contextlib.suppress(OSError):
        private_folder(os.path.dirname(path))
        write_whole(path, body + hashlib.sha256(body).digest())
        _prune(os.path.dirname(path))


def _path(home: str, root: str) -> str:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return os.path.join(home, "snapshot-index", name)


def _prune(folder: str) -> None:
    """Remove the indexes of folders that were not taken for long, and partial files of killed processes."""
    names = os.listdir(folder)
    if len(names) <= _MOST_FOLDERS:
        return
    with os.scandir(folder) as entries:
        by_age = sorted(entries, key=lambda entry: entry.stat().st_mtime)
    for entry in by_age[: len(names) - _MOST_FOLDERS // 2]:
        os.unlink(entry.path)
