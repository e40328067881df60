"""
An object under way: a file in which chunks arrive in any order, and beside it the numbers of those that are there.

A fetch that was killed goes on with the chunks that are missing, as long as the object is the same version. The digest
is that of the file in order, so it follows behind the chunks, by whichever thread has just brought one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.contract.process_identity import read_boot_id
from drumline.staging.file_copy import write_at
from drumline.staging.stores.store import CHUNK_BYTES

if TYPE_CHECKING:
    from drumline.staging.stores.store import Object


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
