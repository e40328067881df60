"""The objects of one input: where they are, and which are in the cache by now."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError
from drumline.contract.process_identity import read_boot_id
from drumline.contract.record import NamedTuple
from drumline.staging.cache.cache_folder import SourceFile, key_of
from drumline.staging.file_copy import write_at
from drumline.staging.stores.store import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.cache.cache_folder import Cache
    from drumline.staging.stores.store import Object, Store


class RunningDigest:
    """SHA-256, and the service's own algorithm if it has another one."""

    def __init__(self, algorithm: str) -> None:
        self._sha256 = hashlib.sha256()
        self._other = _make_hash(algorithm)
        self.algorithm = algorithm if algorithm == "sha256" or self._other is not None else ""
        """That of the service; empty: none that can be computed here."""

    def update(self, data: bytes | memoryview) -> None:
        self._sha256.update(data)
        if self._other is not None:
            self._other.update(data)

    @property
    def content(self) -> str:
        return self._sha256.hexdigest()

    @property
    def comparable_digest(self) -> str:
        """Return the digest that must equal the service's; empty if none can."""
        if self._other is not None:
            digest = self._other.hexdigest()
            return digest.decode() if isinstance(digest, bytes) else str(digest)
        return self.content if self.algorithm else ""


def _make_hash(algorithm: str) -> Any:
    """Return a hash object; None for an algorithm that is not known here."""
    if algorithm in ("md5", "sha512"):
        return hashlib.new(algorithm, usedforsecurity=False)
    if algorithm == "crc32c":
        with contextlib.suppress(ImportError):
            return import_module("google_crc32c").Checksum()
    return None


class PartialFile:
    """One object of known size that is under way; its maker has the object's lock. Every method raises OSError."""

    def __init__(self, path: str, found: Object, algorithm: str, chunk: int = CHUNK_BYTES) -> None:
        self.path = path
        self.size = found.size
        self.chunk = chunk
        self.digests = RunningDigest(algorithm)
        self._list = f"{path}.chunks"
        facts = {"version": found.version, "size": found.size, "chunk": chunk, "boot": read_boot_id()}
        self._header = json.dumps(facts)
        self._hashing = threading.Lock()
        self._next = 0
        self._done = self._read() if found.version else set()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not self._done:
                os.ftruncate(self._file, 0)
            os.ftruncate(self._file, found.size)
            self._listing = self._write()
        except BaseException:
            os.close(self._file)
            raise

    @property
    def count(self) -> int:
        return -(-self.size // self.chunk)

    @property
    def missing(self) -> list[int]:
        return [number for number in range(self.count) if number not in self._done]

    def range(self, number: int) -> tuple[int, int]:
        return number * self.chunk, min(self.size, (number + 1) * self.chunk)

    @property
    def bytes_there(self) -> int:
        return sum(end - start for start, end in map(self.range, self._done))

    def write(self, number: int, data: bytes) -> None:
        """Write a chunk that has come. From any thread."""
        write_at(self._file, data, self.range(number)[0])
        os.write(self._listing, f"{number}\n".encode())
        self._done.add(number)
        # Whoever finds another one at it leaves it to that one, or to the next chunk, or to the end.
        if self._hashing.acquire(blocking=False):
            try:
                self._hash()
            finally:
                self._hashing.release()

    def finish(self) -> RunningDigest:
        """Return the digest, once no chunk is missing."""
        with self._hashing:
            self._hash()
        return self.digests

    def begin_again(self) -> None:
        """Start anew, without any chunk."""
        self._done.clear()
        os.close(self._listing)
        self._listing = self._write()
        self._next = 0
        self.digests = RunningDigest(self.digests.algorithm)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._listing)

    def forget(self) -> None:
        """Remove the files, after ``close``."""
        for path in (self.path, self._list):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _hash(self) -> None:
        while self._next in self._done:
            start, end = self.range(self._next)
            while start < end:
                data = os.pread(self._file, end - start, start)
                if not data:
                    raise OSError(errno.EIO, "truncated by another process", self.path)
                self.digests.update(data)
                start += len(data)
            self._next += 1

    def _read(self) -> set[int]:
        """Return the chunks that an earlier fetch of that version has brought."""
        try:
            with open(self._list, encoding="ascii") as file:
                header, *lines = file.read().split("\n")
            is_sound = header == self._header and os.stat(self.path).st_size == self.size
        except (OSError, ValueError):
            return set()
        # The last line is empty, or was cut short.
        numbers = {int(line) for line in lines[:-1] if line.isdecimal()} if is_sound else set()
        return {number for number in numbers if number < self.count}

    def _write(self) -> int:
        """Write the list of known chunks, and return its descriptor for further ones."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._list, flags, 0o600)
        text = "".join(f"{number}\n" for number in sorted(self._done))
        os.write(descriptor, f"{self._header}\n{text}".encode())
        return descriptor


class Origin(NamedTuple):
    """The place of objects. ``identity`` tells it from all others and is never shown; ``uri`` has no secrets."""

    store: Store
    identity: str
    uri: str
    believes_second: bool
    """Whether a digest of the service that differs twice from the same content is no digest after all."""

    def uri_of(self, found: Object) -> str:
        return f"{self.uri.rstrip('/')}/{found.path}" if found.path else self.uri

    def read(self, found: Object, start: int, end: int) -> bytes:
        """Read exactly those bytes of an object whose size is known. Raises as the store, and NodeError for fewer."""
        data = self.store.read(found, start, end)
        if len(data) != end - start and found.size >= 0:
            raise NodeError(f"{self.uri_of(found)}: {len(data)} bytes came instead of {end - start}")
        return data


class DownloadedObjects:
    """Methods may be called from any thread. ``on_bytes`` is told of bytes that came, or of ones that came in vain."""

    def __init__(
        self, cache: Cache, origin: Origin, on_bytes: Callable[[int], None], on_file: Callable[[], None]
    ) -> None:
        self.on_bytes = on_bytes
        self.cached_bytes = 0
        """Of objects that did not have to come."""

        self.verified = 0
        """Objects that had the digest that the service says."""

        self._cache = cache
        self._origin = origin
        self._on_file = on_file
        self._files: dict[str, SourceFile] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._change = threading.Lock()

    def get_file(self, found: Object) -> SourceFile:
        """Return the content of an object that was added."""
        return self._files[found.path]

    def name_of(self, found: Object) -> str:
        """Return the name of an object, whatever its version, of its lock and of the part of it that has come."""
        return key_of(self._origin.identity, found.path)

    def add_cached(self, found: Object) -> bool:
        """Add an object if the cache has that very version."""
        digest = self._cache.find_digest(self.name_of(found), found)
        if digest:
            self._add_without_download(found, digest)
        return bool(digest)

    def add_known_content(self, found: Object) -> bool:
        """Add an object if the service says a SHA-256 that the cache has from elsewhere."""
        algorithm, expected = self.expected_digest(found)
        if algorithm != "sha256" or found.size < 0:
            return False
        with self._cache.in_use():
            there = self._cache.use(expected, found.size)
        if there:
            self._cache.note_digest(self.name_of(found), self._origin.uri_of(found), found, expected)
            self._add_without_download(found, expected)
        return there

    def _add_without_download(self, found: Object, digest: str) -> None:
        with self._change:
            self.cached_bytes += found.size
            self._files[found.path] = SourceFile(found.path, digest, found.size)
        self.on_bytes(found.size)
        self._on_file()

    def add_complete(self, found: Object, path: str, digest: RunningDigest) -> None:
        """Add an object of which all is in the file ``path``, and right."""
        self._cache.adopt(path, digest.content, found.size)
        self._cache.note_digest(self.name_of(found), self._origin.uri_of(found), found, digest.content)
        expected = self.expected_digest(found)[1]
        with self._change:
            self._files[found.path] = SourceFile(found.path, digest.content, found.size)
            self.verified += bool(digest.comparable_digest) and digest.comparable_digest == expected
        self._on_file()

    def expected_digest(self, found: Object) -> tuple[str, str]:
        """Return algorithm and digest as the service has them; empty for none. It is asked once."""
        if found.path not in self._digests:
            known = ("md5", found.md5) if found.md5 else self._origin.store.digest(found) or ("", "")
            self._digests[found.path] = (known[0], known[1].lower())
        return self._digests[found.path]

    def is_right(self, found: Object, digest: RunningDigest, first: str) -> bool:
        """
        Return whether an object has the service's digest; False: it is to be read again.

        ``first``: the digest of the first reading, empty in that one. Raises NodeError for one that is wrong twice.
        """
        expected = self.expected_digest(found)[1]
        if digest.comparable_digest in ("", expected):
            return True
        if not first:
            return False
        if first == digest.comparable_digest and self._origin.believes_second and digest.algorithm == "md5":
            return True
        raise NodeError(
            f"{self._origin.uri_of(found)}: its {digest.algorithm.upper()} is {digest.comparable_digest}, "
            f"and the service says {expected}",
            "it may have been damaged where it is; upload it again",
        )
