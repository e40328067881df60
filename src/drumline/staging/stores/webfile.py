"""A file by its address. Whatever its server does not keep to, is found out by what it sends."""

from __future__ import annotations

import contextlib
import http.client
import select
import threading
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.record import NamedTuple
from drumline.staging.stores import digests, retry
from drumline.staging.stores.base import Changed, Object
from drumline.staging.stores.connection import Answer, ask, head

if TYPE_CHECKING:
    from collections.abc import Mapping

_PIECE = 256 << 10
_PROGRESS = 64 << 10  # bytes that make up for a failure
_LAST_LOOK_S = 1.0


class Seen(NamedTuple):
    size: int
    version: str
    digest: tuple[str, str] | None


class WebFile:
    """A file by its address, with the headers that say who asks."""

    def __init__(self, url: str, shown: str, headers: Mapping[str, str]) -> None:
        self.shown = shown
        self.ranges = True
        self._url = url
        self._headers = dict(headers)
        self._whole: _Whole | None = None
        self._lock = threading.Lock()

    def look(self) -> Seen | None:
        """None for a 404. By a GET of its first byte: signed addresses and some servers refuse HEAD."""
        answer = self._asked({"Range": "bytes=0-0"})
        answer.close()
        if answer.status in (404, 410):
            return None
        length = answer.headers.get("content-length", "")
        total = _range(answer)[2] if answer.status in (206, 416) else _number(length)
        self.ranges = total == 0 or (answer.status == 206 and total > 0)
        digest = digests.of_headers(answer.headers, is_part=answer.status == 206)
        return Seen(total, _version(answer.headers), digest)

    def digest(self, found: Object) -> tuple[str, str] | None:
        try:
            headers = head(self._url, self._headers)
        except (OSError, http.client.HTTPException, NodeError):
            return None
        return digests.of_headers(headers) if _version(headers) == found.version else None

    def read(self, found: Object, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        if not self.ranges:
            with self._lock:
                return self._read_in_order(found, start, end)
        got = bytearray()
        tries = retry.Tries()
        before = 0
        while len(got) < end - start:
            try:
                self._read_part(found, start + len(got), end, got)
            except (OSError, http.client.HTTPException) as error:
                if len(got) - before >= _PROGRESS:
                    tries.restart()
                before = len(got)
                if not tries.again():
                    raise _lost(self.shown, error, start + len(got), found.size) from error
        return bytes(got)

    def _read_part(self, found: Object, start: int, end: int, into: bytearray) -> None:
        """Appends what came, also where it ends too early. Raises OSError, HTTPException, NodeError."""
        wanted = {"Range": f"bytes={start}-{end - 1}"}
        if found.version and not found.version.startswith("W/"):
            wanted["If-Range"] = found.version
        answer = self._asked(wanted, found)
        with contextlib.closing(answer):
            if answer.status == 200:  # no longer in parts, or a proxy in between that does not know them
                self.ranges = False
                into += self._read_in_order(found, start, end)
                return
            first, last, total = _range(answer)
            if first != start or last >= end or total not in (found.size, -1):
                what = f"{self.shown}: the server sent another part than the one it was asked for"
                raise NodeError(what, "try the address with another tool, or tell who runs it")
            left = last - first + 1
            while left > 0:
                piece = answer.body.read1(min(_PIECE, left))
                if not piece:
                    raise http.client.IncompleteRead(b"", left)
                into += piece
                left -= len(piece)

    def _read_in_order(self, found: Object, start: int, end: int) -> bytes:
        got = bytearray()
        tries = retry.Tries()
        while True:
            try:
                if self._whole is None or self._whole.at != start + len(got):
                    self._begin(found)
                assert self._whole is not None
                self._whole.skip_to(start + len(got))
                is_end = self._whole.read(end, got)
            except (OSError, http.client.HTTPException) as error:
                self._end()
                if not tries.again():
                    raise _lost(self.shown, error, start + len(got), found.size) from error
            except NodeError:
                self._end()
                raise
            else:
                if is_end:
                    self._end()
                return bytes(got)

    def _begin(self, found: Object) -> None:
        self._end()
        answer = self._asked({}, found)
        self._whole = _Whole(answer, found.size, self.shown)

    def _end(self) -> None:
        if self._whole is not None:
            self._whole.close()
        self._whole = None

    def _asked(self, headers: Mapping[str, str], found: Object | None = None) -> Answer:
        """
        An answer of 200 or 206, and of ``found`` where it is given; else also 404, 410 and that a file is empty.

        Raises NodeError for all others, after some tries for those that may pass, and Changed.
        """
        tries = retry.Tries()
        while True:
            try:
                answer = ask("GET", self._url, {**self._headers, **headers})
            except (OSError, http.client.HTTPException) as error:
                if not _is_passing(error) or not tries.again():
                    raise _lost(self.shown, error) from error
                continue
            if _is_good(answer, found):
                return answer
            answer.close()
            if found is not None and answer.status in (200, 206, 404, 410, 412, 416):
                raise Changed(f"{self.shown} was written or removed meanwhile")
            if answer.status not in retry.PASSING or not tries.again(_wished(answer)):
                raise _refused(self.shown, answer)


class _Whole:
    """The answer of a server that sends whole files only, as far as it was read."""

    def __init__(self, answer: Answer, size: int, shown: str) -> None:
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
            piece = self._piece(min(_PIECE, start - self.at))
            if not piece:
                raise http.client.IncompleteRead(b"", start - self.at)

    def read(self, end: int, into: bytearray) -> bool:
        """Whether that was the end of the file."""
        while self.at < end:
            piece = self._piece(min(_PIECE, end - self.at))
            into += piece
            if not piece and self._size >= 0:
                raise http.client.IncompleteRead(b"", end - self.at)
            if not piece:
                return True
        if self.at == self._size and self._has_more():
            raise NodeError(f"{self._shown}: the server sent more bytes than the {self._size} that it told")
        return self.at == self._size

    def close(self) -> None:
        self._answer.close()

    def __del__(self) -> None:
        """Where a file was not read to its end."""
        self.close()

    def _has_more(self) -> bool:
        """Some servers leave the connection open although they were asked not to: they are not waited for."""
        if self._body.isclosed() or not select.select([self._body], [], [], _LAST_LOOK_S)[0]:
            return False
        return bool(self._piece(1))

    def _piece(self, most: int) -> bytes:
        piece = self._body.read1(most)
        self.at += len(piece)
        return piece


def _is_good(answer: Answer, found: Object | None) -> bool:
    if found is None:
        is_empty = answer.status == 416 and _range(answer)[2] == 0
        return answer.status in (200, 206, 404, 410) or is_empty
    is_same = not found.version or _version(answer.headers) in (found.version, "")
    return answer.status in (200, 206) and is_same


def _version(headers: Mapping[str, str]) -> str:
    return headers.get("etag") or headers.get("last-modified") or ""


def _range(answer: Answer) -> tuple[int, int, int]:
    """First and last byte, and the whole size, of Content-Range; -1 for what it does not say."""
    unit, _, rest = answer.headers.get("content-range", "").partition(" ")
    part, _, total = rest.partition("/")
    first, _, last = part.partition("-")
    numbers = [_number(text) for text in (first, last, total)]
    return (numbers[0], numbers[1], numbers[2]) if unit == "bytes" else (-1, -1, -1)


def _number(text: str) -> int:
    """-1 for none, or for more than there can be bytes."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


def _wished(answer: Answer) -> float:
    """Seconds of Retry-After."""
    return float(max(0, _number(answer.headers.get("retry-after", ""))))


def _is_passing(error: Exception) -> bool:
    import socket
    import ssl

    return not isinstance(error, (ssl.SSLCertVerificationError, socket.gaierror))


def _refused(shown: str, answer: Answer) -> NodeError:
    from urllib.parse import urlsplit

    elsewhere = urlsplit(answer.url).hostname or ""
    where = f", at {elsewhere}" if elsewhere and elsewhere not in shown else ""
    what = f"could not read {shown}: the server answered {answer.status} ({answer.reason[:80]}){where}"
    if answer.status in (401, 403, 407):
        return NodeError(
            what, "what is behind a login needs a signed address; a datastore or s3:// has credentials"
        )
    return NodeError(what)


def _lost(shown: str, error: Exception, at: int = -1, size: int = -1) -> NodeError:
    import socket
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return NodeError(
            f"could not read {shown}: its certificate is not trusted", "SSL_CERT_FILE names others to trust"
        )
    if isinstance(error, socket.gaierror):
        return NodeError(
            f"could not read {shown}: the name of the server is not known", "check it, and HTTPS_PROXY"
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
        f"could not read {shown}: {why}{where}, {retry.TRIES} times", "check the network, and HTTPS_PROXY"
    )
