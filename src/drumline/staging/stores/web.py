"""Files of web servers, which may ignore or break any part of HTTP; by the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.contract.record import NamedTuple
from drumline.staging.stores import connection
from drumline.staging.stores.connection import (
    HttpAnswer,
    basic_authorization,
    read_digest,
    request_headers,
    send_request,
)
from drumline.staging.stores.store import Object, ObjectChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.uris import Place

_PIECE_BYTES = 256 << 10
_PROGRESS_BYTES = 64 << 10  # bytes that make up for a failure
_EXTRA_BYTES_WAIT_S = 1.0


def open_store(place: Place, credentials: Mapping[str, Any] | None) -> WebStore:
    return WebStore(place.uri)


class WebStore:
    """A ``base.Store``."""

    can_list = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        who = (
            {"Authorization": basic_authorization(parts.username, parts.password or "")}
            if parts.username
            else {}
        )
        self._file = WebFile(url.partition("#")[0], hide_secrets(url), who)
        self.url_shown = hide_secrets(url)
        self._digest: tuple[str, str] | None = None

    @property
    def ranges(self) -> bool:
        return self._file.ranges

    def stat(self) -> Object | None:
        seen = self._file.look()
        if seen is None:
            return None
        self._digest = seen.digest
        md5 = seen.digest[1] if seen.digest and seen.digest[0] == "md5" else ""
        return Object("", seen.size, seen.version, md5)

    def list(self) -> Iterator[Object]:
        raise NodeError(f"{self.url_shown} is one file: HTTP has no folders", "type: uri_file")

    def read(self, found: Object, start: int, end: int) -> bytes:
        return self._file.read(found, start, end)

    def digest(self, found: Object) -> tuple[str, str] | None:
        return self._digest or self._file.digest(found)

    def put(self, relative_path: str, local_file: str, on_bytes: Callable[[int], None]) -> None:
        raise NodeError(
            f"cannot write to {self.url_shown}: it is one file of a web server",
            "use abfss://, s3:// or gs://",
        )


class FileFacts(NamedTuple):
    size: int
    version: str
    digest: tuple[str, str] | None


class WebFile:
    """A file by its address, with the headers of its user."""

    def __init__(self, url: str, shown: str, headers: Mapping[str, str]) -> None:
        self.shown = shown
        self.ranges = True
        self._url = url
        self._headers = dict(headers)
        self._whole: _SequentialBody | None = None
        self._lock = threading.Lock()

    def look(self) -> FileFacts | None:
        """Ask for the first byte by GET, because signed addresses and some servers refuse HEAD. None for a 404."""
        answer = self._request({"Range": "bytes=0-0"})
        answer.close()
        if answer.status in (404, 410):
            return None
        is_part = answer.status in (206, 416)
        total = _parse_content_range(answer)[2] if is_part else _announced_length(answer, self.shown)
        self.ranges = total == 0 or (answer.status == 206 and total > 0)
        digest = read_digest(answer.headers, is_part=answer.status == 206)
        return FileFacts(total, _version(answer.headers), digest)

    def digest(self, found: Object) -> tuple[str, str] | None:
        try:
            headers = request_headers(self._url, self._headers)
        except (OSError, http.client.HTTPException, NodeError):
            return None
        return read_digest(headers) if _version(headers) == found.version else None

    def read(self, found: Object, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        if not self.ranges:
            with self._lock:
                return self._read_in_order(found, start, end)
        got = bytearray()
        tries = connection.Tries()
        before = 0
        while len(got) < end - start:
            try:
                self._read_part(found, start + len(got), end, got)
            except (OSError, http.client.HTTPException) as error:
                if len(got) - before >= _PROGRESS_BYTES:
                    tries.restart()
                before = len(got)
                if not tries.again():
                    raise _connection_error(self.shown, error, start + len(got), found.size) from error
        return bytes(got)

    def _read_part(self, found: Object, start: int, end: int, into: bytearray) -> None:
        """Append what came, also if it ends too early. Raises OSError, HTTPException, NodeError."""
        wanted = {"Range": f"bytes={start}-{end - 1}"}
        if found.version and not found.version.startswith("W/"):
            wanted["If-Range"] = found.version
        answer = self._request(wanted, found)
        with contextlib.closing(answer):
            if answer.status == 200:  # no longer in parts, or a proxy in between that does not know them
                self.ranges = False
                into += self._read_in_order(found, start, end)
                return
            first, last, total = _parse_content_range(answer)
            if first != start or not start <= last < end or total not in (found.size, -1):
                raise _answer_error(f"{self.shown}: the server sent another range than the requested one")
            left = last - first + 1
            while left > 0:
                piece = answer.body.read1(min(_PIECE_BYTES, left))
                if not piece:
                    raise http.client.IncompleteRead(b"", left)
                into += piece
                left -= len(piece)

    def _read_in_order(self, found: Object, start: int, end: int) -> bytes:
        got = bytearray()
        tries = connection.Tries()
        while True:
            try:
                if self._whole is None or self._whole.at != start + len(got):
                    self._begin_whole(found)
                assert self._whole is not None
                self._whole.skip_to(start + len(got))
                is_end = self._whole.read(end, got)
            except (OSError, http.client.HTTPException) as error:
                self._end_whole()
                if not tries.again():
                    raise _connection_error(self.shown, error, start + len(got), found.size) from error
            except NodeError:
                self._end_whole()
                raise
            else:
                if is_end:
                    self._end_whole()
                return bytes(got)

    def _begin_whole(self, found: Object) -> None:
        self._end_whole()
        answer = self._request({}, found)
        if answer.status == 206:
            answer.close()
            raise _answer_error(f"{self.shown}: the server sent a part in place of the whole file")
        size = found.size if found.size >= 0 else _announced_length(answer, self.shown)
        self._whole = _SequentialBody(answer, size, self.shown)

    def _end_whole(self) -> None:
        if self._whole is not None:
            self._whole.close()
        self._whole = None

    def _request(self, headers: Mapping[str, str], found: Object | None = None) -> HttpAnswer:
        """
        Return an answer of 200 or 206, and of ``found`` if given; else also 404, 410 and that a file is empty.

        Raises NodeError for all others, after some tries for those that may pass, and Changed.
        """
        tries = connection.Tries()
        while True:
            try:
                answer = send_request("GET", self._url, {**self._headers, **headers})
            except (OSError, http.client.HTTPException) as error:
                is_final = isinstance(error, (ssl.SSLCertVerificationError, socket.gaierror))
                if is_final or not tries.again():
                    raise _connection_error(self.shown, error) from error
                continue
            if _is_good(answer, found):
                return answer
            answer.close()
            if found is not None and answer.status in (200, 206, 404, 410, 412, 416):
                raise ObjectChangedError(f"{self.shown} changed, or was removed, while it was read")
            wished_s = max(0, _parse_number(answer.headers.get("retry-after", "")))
            if answer.status not in connection.TRANSIENT_STATUSES or not tries.again(wished_s):
                raise _status_error(self.shown, answer)


class _SequentialBody:
    """The answer of a server that sends whole files only, as far as it was read."""

    def __init__(self, answer: HttpAnswer, size: int, shown: str) -> None:
        self.at = 0
        self._answer = answer
        self._body = answer.body
        self._size = size
        self._shown = shown
        if size >= 0 and "chunked" not in answer.headers.get("transfer-encoding", ""):
            # So that what comes after the length that was told is seen, too.
            self._body.length = None

    def skip_to(self, start: int) -> None:
        while self.at < start:
            piece = self._read_piece(min(_PIECE_BYTES, start - self.at))
            if not piece:
                raise http.client.IncompleteRead(b"", start - self.at)

    def read(self, end: int, into: bytearray) -> bool:
        """Read up to ``end``, and return whether the file ends there, or before."""
        end = min(end, self._size) if self._size >= 0 else end
        while self.at < end:
            piece = self._read_piece(min(_PIECE_BYTES, end - self.at))
            into += piece
            if not piece and self._size >= 0:
                raise http.client.IncompleteRead(b"", end - self.at)
            if not piece:
                return True
        if self.at == self._size and self._has_more():
            raise NodeError(
                f"{self._shown}: the server sent more bytes than the {self._size} that it announced"
            )
        return self.at == self._size

    def close(self) -> None:
        self._answer.close()

    def __del__(self) -> None:
        """Close it even if the file was not read to its end."""
        self.close()

    def _has_more(self) -> bool:
        """Return whether bytes follow; not waiting for servers that leave the connection open."""
        if self._body.isclosed() or not select.select([self._body], [], [], _EXTRA_BYTES_WAIT_S)[0]:
            return False
        return bool(self._read_piece(1))

    def _read_piece(self, most: int) -> bytes:
        piece = self._body.read1(most)
        self.at += len(piece)
        return piece


def _is_good(answer: HttpAnswer, found: Object | None) -> bool:
    if found is None:
        is_empty = answer.status == 416 and _parse_content_range(answer)[2] == 0
        return answer.status in (200, 206, 404, 410) or is_empty
    is_same = not found.version or _version(answer.headers) in (found.version, "")
    return answer.status in (200, 206) and is_same


def _version(headers: Mapping[str, str]) -> str:
    return headers.get("etag") or headers.get("last-modified") or ""


def _announced_length(answer: HttpAnswer, shown: str) -> int:
    """Return the length of the body; -1 where none was announced. Raises NodeError for one that no file has."""
    text = answer.headers.get("content-length")
    if text is None or "chunked" in answer.headers.get("transfer-encoding", ""):
        return -1
    # A server may repeat it (RFC 9110, section 8.6).
    lengths = {_parse_number(part) for part in text.split(",")}
    if len(lengths) > 1 or -1 in lengths:
        answer.close()
        raise _answer_error(f"could not read {shown}: the server announced {text[:40]!r} as its length")
    return lengths.pop()


def _parse_content_range(answer: HttpAnswer) -> tuple[int, int, int]:
    """Return first and last byte and the whole size of Content-Range; -1 for each that is missing."""
    unit, _, rest = answer.headers.get("content-range", "").partition(" ")
    part, _, total = rest.partition("/")
    first, _, last = part.partition("-")
    numbers = [_parse_number(text) for text in (first, last, total)]
    return (numbers[0], numbers[1], numbers[2]) if unit == "bytes" else (-1, -1, -1)


def _parse_number(text: str) -> int:
    """Return a number of bytes; -1 for text that is not one."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


def _answer_error(what: str) -> NodeError:
    return NodeError(what, "try another tool, or report it to the server's owner")


def _status_error(shown: str, answer: HttpAnswer) -> NodeError:
    elsewhere = urlsplit(answer.url).hostname or ""
    where = f", at {elsewhere}" if elsewhere and elsewhere not in shown else ""
    what = f"could not read {shown}: the server answered {answer.status} ({answer.reason[:80]}){where}"
    if answer.status in (401, 403, 407):
        return NodeError(what, "use a signed address, or a datastore or s3://, which have credentials")
    return NodeError(what)


def _connection_error(shown: str, error: Exception, at: int = -1, size: int = -1) -> NodeError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return NodeError(
            f"could not read {shown}: its certificate is not trusted",
            "set SSL_CERT_FILE to a file with its certificate",
        )
    if isinstance(error, socket.gaierror):
        return NodeError(
            f"could not read {shown}: the server's name cannot be resolved",
            f"check the address, and {_name_proxy(shown)}",
        )
    why = "the connection was cut off"
    if isinstance(error, TimeoutError):
        why = "no answer in time"
    elif isinstance(error, ConnectionRefusedError):
        why = "connection refused"
    elif isinstance(error, OSError) and error.strerror:
        why = error.strerror.lower()
    where = f" after {at} bytes" + (f" of {size}" if size >= 0 else "") if at >= 0 else ""
    return NodeError(
        f"could not read {shown}: {why}{where}, {connection.TRIES} times",
        f"check the network, and {_name_proxy(shown)}",
    )


def _name_proxy(url: str) -> str:
    """Return the variable with the proxy of an address: the one that is set, as urllib looks for it."""
    name = url.partition(":")[0].lower() + "_proxy"
    return name if os.environ.get(name) else name.upper()
