"""The objects of one input: where they are, and which are in the cache by now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.record import NamedTuple
from drumline.staging.cache.cache_folder import SourceFile, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.cache.cache_folder import Cache
    from drumline.staging.stores.store import Object, Store
    from drumline.staging.transfer.partial_file import RunningDigest


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
