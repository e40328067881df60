"""The interface of every store: its methods block, and several threads may call them; safe names of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from drumline.contract.errors import NodeError
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CHUNK_BYTES = 8 << 20
"""The part of a large object that a download or a mount reads at once."""


class Object(NamedTuple):
    """One remote file, as it was when it was listed."""

    path: str
    """Relative to the place, with slashes; empty for the place itself. Safe to open beneath a folder."""

    size: int
    """In bytes; -1 where the service does not say (then ``Store.ranges`` is False)."""

    version: str
    """An ETag or the like: another content has another one. Empty: the service has none."""

    md5: str = ""
    """Of the content, in hex, where the service gives it with the rest; else empty."""


class ObjectChangedError(NodeError):
    """The object has changed: parts that were read before are of no use."""


class Store(Protocol):
    """
    One place of a service. Every method raises NodeError with a sentence for the user: what was final at once,
    the rest after some tries (``retry.TRIES``, ``retry.LIMIT_S``).
    """

    url_shown: str
    """The place without secrets."""

    can_list: bool
    """False: there is one file at most, and ``list`` raises."""

    ranges: bool
    """
    False: the service sends whole files only. ``read`` still gives any part, but only parts in order from one thread
    are cheap: any other starts from the beginning. To be asked after ``stat`` or ``list``.
    """

    def stat(self) -> Object | None:
        """Return the place as one file, with an empty path; None if there is no file of that name."""

    def list(self) -> Iterator[Object]:
        """
        Yield every file beneath the place, in no order; none if there is nothing. Markers of folders are left out.

        Raises NodeError that names the first key whose path is not safe (``..``, absolute, empty parts, control
        characters), or that is file and folder at once.
        """

    def read(self, found: Object, start: int, end: int) -> bytes:
        """
        Return exactly the bytes from start to before end, of that very version. Raises ObjectChangedError.

        Where the size is unknown (-1), fewer bytes than asked for mean the end of the file.
        """

    def digest(self, found: Object) -> tuple[str, str] | None:
        """
        Return ("md5" or "sha256" or "crc32c", hex) of the whole file as the service has it; None when it has none.

        It makes one more request if need be. Never raises for the lack of a digest.
        An MD5 of ``s3`` is a guess from the shape of its ETag, which an encrypting bucket may make of something
        else: who finds another one should read again once, and believe a content that comes twice.
        """

    def put(self, relative_path: str, local_file: str, on_bytes: Callable[[int], None]) -> None:
        """
        Write one file beneath the place, or with an empty relative path as the place; replace an existing one.

        Large ones in parallel parts; nothing is there under that name until all of it is. ``on_bytes`` is told of
        every further number of bytes, from any thread; a negative one takes back what a failed try had counted.
        """


# names of remote files that are safe as local ones


_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_LONGEST = 255  # bytes: NAME_MAX of every file system of Linux
_LONGEST_PATH = 3500  # and PATH_MAX, less what stands before


def check_path(path: str, url_shown: str) -> str:
    """Return the path. Raises NodeError if it could lead out of a folder, or cannot name a file."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise name_error(path, url_shown, "leads out of its folder or has empty parts")
    if _CONTROL.search(path):
        raise name_error(path, url_shown, "has control characters")
    if len(path.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST for part in parts):
        raise name_error(path, url_shown, "is too long for a file")
    return path


def name_error(path: str, url_shown: str, why: str) -> NodeError:
    return NodeError(
        f"{url_shown} holds a file whose name {why}: {path[:200]!r}",
        "rename it there, or name a folder without it",
    )
