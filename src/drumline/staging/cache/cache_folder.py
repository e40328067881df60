"""
The cache of fetched files, by their content: kept once, for all jobs of this user on this machine.

``$DRUMLINE_CACHE``, else ``cache`` in the base home, or in the folder of a compute that has one; its owner's alone::

    content/ab/abcd...    the files, by their SHA-256, read-only; last used: their access time
    index/ab/abcd...      which content an object had: by its address, version and size
    sources/abcd...       which files an input had, by its address and the versions of all of them
    trees/abcd...         an input as a folder of hard links to ``content``, by the names and contents of its files
    chunks/ab/abcd...     parts of files that are read through a mount, by address, version and place in the file
    partial/abcd...       what is being fetched, with the chunks that are there; continued after a kill
    locks/, leases/       who fetches what; which trees running jobs use
    settings.json         the limit

Every content has one modification time, so a file that was written to is told from one that was not.
Nothing is synchronised to the disk: what a power failure cuts short has another size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import base_home, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.staging.cache import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from drumline.staging.stores.store import Object

PATH_VARIABLE = "DRUMLINE_CACHE"

STAMP_NS = 946_684_800 * 10**9
"""The modification time of all content: the first second of 2000."""

_MOST_BYTES = 256 << 20
_FOLDERS = ("content", "index", "sources", "trees", "chunks", "partial", "locks", "leases")


class SourceFile(NamedTuple):
    """One file of a source."""

    path: str
    """Relative, safe to make beneath a folder."""

    digest: str
    size: int


class CachedSource(NamedTuple):
    """The files that an address held when it was fetched. ``key`` is its file's name; ``used`` seconds since 1970."""

    key: str
    uri: str
    """Without secrets."""

    kind: str
    items: tuple[SourceFile, ...]
    used: float = 0.0

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def tree(self) -> str:
        """Return the name of its tree, whether that exists or not."""
        whole = hashlib.sha256()
        for item in self.items:
            whole.update(f"{item.path}\0{item.digest}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()


def cache_path(base: str = "") -> str:
    """Return the absolute path of the cache. ``base``: the folder of a compute; empty: the base home."""
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return os.path.realpath(os.path.expanduser(named))
    return os.path.join(os.path.realpath(base) if base else base_home(), "cache")


def key_of(*parts: object) -> str:
    """Return a file name for these values."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Cache:
    """A cache whose methods several threads and processes may call. Each raises OSError, as for a full disk."""

    def __init__(self, path: str = "") -> None:
        self.path = path or cache_path()
        self.content = os.path.join(self.path, "content")
        self.index = os.path.join(self.path, "index")
        self.sources = os.path.join(self.path, "sources")
        self.trees = os.path.join(self.path, "trees")
        self.chunks = os.path.join(self.path, "chunks")
        self.partial = os.path.join(self.path, "partial")
        self.locks = os.path.join(self.path, "locks")
        self.leases = os.path.join(self.path, "leases")
        self.settings = os.path.join(self.path, "settings.json")

    def make(self) -> None:
        """Create the folders. Raises NodeError."""
        try:
            private_folder(self.path)
            for name in _FOLDERS:
                private_folder(os.path.join(self.path, name))
        except OSError as error:
            raise NodeError(
                f"could not make the cache in {self.path}: {error.strerror}",
                f"set {PATH_VARIABLE} to another folder",
            ) from error

    def in_use(self) -> AbstractContextManager[None]:
        """Keep content from being removed while it is looked up and marked as used."""
        return locks.hold_lock(os.path.join(self.path, "removing"), shared=True)

    def removing(self) -> AbstractContextManager[None]:
        """Wait until nobody is ``in_use``, and keep others out while content is removed."""
        return locks.hold_lock(os.path.join(self.path, "removing"))

    def try_lock(self, name: str) -> locks.Lock | None:
        """Return the lock of an object, by its ``key_of``; None while another process fetches it."""
        return locks.try_lock(os.path.join(self.locks, name))

    # content

    def content_path(self, digest: str) -> str:
        return os.path.join(self.content, digest[:2], digest)

    def chunk_path(self, key: str) -> str:
        return os.path.join(self.chunks, key[:2], key)

    def use(self, digest: str, size: int) -> bool:
        """Return whether that content is there and whole, and mark it as used. To be called ``in_use``."""
        path = self.content_path(digest)
        try:
            if not is_whole(os.lstat(path), size):
                return False
            mark_used(path)
        except FileNotFoundError:
            return False
        return True

    def adopt(self, file: str, digest: str, size: int) -> None:
        """Move a file with content of that digest into the cache."""
        path = self.content_path(digest)
        os.chmod(file, 0o400)
        mark_used(file)
        with self.in_use():
            if self.use(digest, size):
                os.unlink(file)
                return
            private_folder(os.path.dirname(path))
            os.replace(file, path)

    # the index

    def find_digest(self, name: str, found: Object) -> str:
        """Return the digest of an object that is there and whole; empty if none is, or it has no version."""
        if not found.version or found.size < 0:
            return ""
        digest = str((read_json(self._entry_path(name, found)) or {}).get("digest", ""))
        if not is_digest(digest):
            return ""
        with self.in_use():
            return digest if self.use(digest, found.size) else ""

    def note_digest(self, name: str, uri: str, found: Object, digest: str) -> None:
        """Note which content an object has. ``uri``: without secrets."""
        if not found.version or found.size < 0:
            return
        path = self._entry_path(name, found)
        private_folder(os.path.dirname(path))
        text = {"uri": uri, "path": found.path, "size": found.size, "digest": digest}
        write_whole(path, json.dumps(text))

    def _entry_path(self, name: str, found: Object) -> str:
        key = key_of(name, found.version, found.size)
        return os.path.join(self.index, key[:2], key)

    # sources

    def read_source(self, key: str) -> CachedSource | None:
        """Return a source as it was noted; None for none, or for one that was damaged."""
        path = os.path.join(self.sources, key)
        try:
            used = os.stat(path).st_mtime
        except OSError:
            return None
        return _parse_source(key, read_json(path), used)

    def write_source(self, source: CachedSource) -> None:
        text = {"uri": source.uri, "kind": source.kind, "items": [list(item) for item in source.items]}
        write_whole(os.path.join(self.sources, source.key), json.dumps(text))

    def use_source(self, key: str) -> CachedSource | None:
        """Return a source whose content is all there and whole, and note that it was used now; else None."""
        with self.in_use():
            source = self.read_source(key)
            if source is None or not all(self.use(item.digest, item.size) for item in source.items):
                return None
            with contextlib.suppress(FileNotFoundError):
                os.utime(os.path.join(self.sources, key))
            return source

    def list_sources(self) -> Iterator[CachedSource]:
        for key in list_names(self.sources):
            source = self.read_source(key) if is_digest(key) else None
            if source is not None:
                yield source


def _parse_source(key: str, data: dict[str, Any] | None, used: float) -> CachedSource | None:
    try:
        items = tuple(
            SourceFile(str(path), str(digest), int(size)) for path, digest, size in (data or {})["items"]
        )
        source = CachedSource(key, str((data or {})["uri"]), str((data or {})["kind"]), items, used)
    except (KeyError, TypeError, ValueError):
        return None
    sound = all(is_digest(item.digest) and is_safe(item.path) for item in items)
    return source if sound else None


def is_whole(found: os.stat_result, size: int) -> bool:
    """Return whether it is content that nobody has written to since."""
    return stat.S_ISREG(found.st_mode) and found.st_size == size and found.st_mtime_ns == STAMP_NS


def mark_used(path: str) -> None:
    """Note that a file was used now."""
    os.utime(path, ns=(time.time_ns(), STAMP_NS), follow_symlinks=False)


def is_digest(text: str) -> bool:
    return len(text) == 64 and all(one in "0123456789abcdef" for one in text)


def is_safe(path: str) -> bool:
    """Return whether a relative path stays beneath the folder in which it is created."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def list_names(folder: str) -> list[str]:
    """Return the sorted names in a folder; none if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if it is missing or damaged."""
    try:
        # A job of this user can put a pipe there, for which nobody is to wait.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            data = json.loads(file.read(_MOST_BYTES) or b"")
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
