"""Azure's blobs, S3 and GCS, through obstore: https://developmentseed.org/obstore. Its retries are for requests."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from drumline.contract import extras, uris
from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.contract.record import NamedTuple
from drumline.staging.stores import connection, store
from drumline.staging.stores.store import Object, ObjectChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract.uris import Place

PART_BYTES = 8 << 20
"""Bytes that are sent in one request; more where there would be too many parts."""

_PIECE_BYTES = 256 << 10
_PROGRESS_BYTES = 64 << 10  # bytes after which it is worth going on
_PARTS = 9000  # S3 takes 10,000
_MOST_AT_ONCE = 6
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.-]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,200})")
_CUT_OFF = "the connection was cut off"
_REASONS = (
    ("dns error", "the server's name cannot be resolved"),
    ("ConnectionRefused", "connection refused"),
    ("NetworkUnreachable", "the network is not reachable"),
    ("InvalidCertificate", "its certificate is not trusted"),
    ("certificate", "its certificate is not trusted"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("ConnectionReset", _CUT_OFF),
    ("IncompleteMessage", _CUT_OFF),
    ("IncompleteBody", _CUT_OFF),
    ("connection closed", _CUT_OFF),
    ("decoding response body", _CUT_OFF),
    ("Body", _CUT_OFF),
)


class Access(NamedTuple):
    """The way in which a store was opened."""

    library: Any
    """obstore's store of one container or bucket."""

    tried: str
    """``with the account key of the datastore``: for messages."""

    hint: str
    """What to set where that is not enough."""

    headers_of: Callable[[str], dict[str, str]] | None = None
    """The headers of the service's answer about one key, by a request of its own; None: they tell no more."""

    etag_is_md5: bool = False
    """Where it looks like one."""


def import_obstore(extra: str, place: Place) -> Any:
    """Import obstore. Raises NodeError with what to install."""
    try:
        import obstore.store
    except ImportError as error:
        what = f"{hide_secrets(place.uri)} is read and written through obstore, which is not installed here"
        raise NodeError(what, extras.install_line(extra)) from error
    return obstore.store


def make_client_options() -> dict[str, Any]:
    """Return the options of all of obstore's stores."""
    return {
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=10),
            "read_timeout": timedelta(seconds=60),
            "timeout": timedelta(hours=1),
        },
        "retry_config": {
            "max_retries": connection.TRIES - 1,
            "retry_timeout": timedelta(seconds=connection.LIMIT_S / 2),
            "backoff": {
                "init_backoff": timedelta(seconds=connection.FIRST_PAUSE_S),
                "max_backoff": timedelta(seconds=15),
                "base": 3,
            },
        },
    }


class ObjectStore:
    """A ``base.Store``."""

    can_list = True
    ranges = True

    def __init__(self, place: Place, access: Access) -> None:
        import obstore

        self._obstore: Any = obstore
        self._access = access
        self._root = place.path.strip("/")
        self.url_shown = hide_secrets(place.uri)
        if self._root:
            store.check_path(self._root, self.url_shown)

    def stat(self) -> Object | None:
        if not self._root:
            return None
        try:
            found = self._request(lambda: self._obstore.head(self._access.library, self._root))
        except FileNotFoundError:
            return None
        if found["size"] == 0 and next(iter(self._list_below(one_is_enough=True)), None):
            return None  # the marker of a folder
        return self._make_object("", found)

    def list(self) -> Iterator[Object]:
        found = {}
        for meta in self._list_below():
            path = meta["path"][len(self._root) + 1 if self._root else 0 :]
            found[store.check_path(path, self.url_shown)] = meta
        folders = {path[:at] for path in found for at, sign in enumerate(path) if sign == "/"}
        for path, meta in found.items():
            if path in folders and meta["size"]:
                raise store.name_error(path, self.url_shown, "is also a folder's")
            if path not in folders and (meta["size"] or self._is_there(meta["path"])):
                yield self._make_object(path, meta)

    def read(self, found: Object, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        got = bytearray()
        while len(got) < end - start:
            before = len(got)
            try:
                self._read_some(found, start + before, end, got)
            except (FileNotFoundError, self._obstore.exceptions.PreconditionError) as error:
                raise ObjectChangedError(
                    f"{self._show(found.path)} changed, or was removed, while it was read"
                ) from error
            except self._errors as error:
                if len(got) - before < _PROGRESS_BYTES:
                    raise self._make_error("read", self._show(found.path), error) from error
        return bytes(got)

    def _read_some(self, found: Object, start: int, end: int, into: bytearray) -> None:
        """Append what came, also if it ends with an error of obstore, which has already retried."""
        wanted: dict[str, Any] = {"range": (start, end)}
        if found.version:
            wanted["if_match"] = f'"{found.version}"'
        answer = self._obstore.get(self._access.library, self._key(found.path), options=wanted)
        if answer.meta["size"] != found.size or _version(answer.meta) != found.version:
            raise ObjectChangedError(f"{self._show(found.path)} changed while it was read")
        before = len(into)
        for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
            into += memoryview(piece)
        sent = len(into) - before
        if sent != end - start:
            raise NodeError(
                f"{self._show(found.path)}: the service sent {sent} bytes instead of {end - start}"
            )

    def digest(self, found: Object) -> tuple[str, str] | None:
        if found.md5:
            return "md5", found.md5
        if self._access.headers_of is None or found.size < DIGEST_FROM_BYTES:
            return None
        try:
            headers = self._access.headers_of(self._key(found.path))
        except (OSError, NodeError, ValueError, self._obstore.exceptions.BaseError):
            return None
        if headers.get("etag", "").strip('"') != found.version:
            return None
        return connection.read_digest(headers)

    def put(self, relative_path: str, local_file: str, on_bytes: Callable[[int], None]) -> None:
        key = self._key(relative_path)
        if not key:
            raise NodeError(
                f"{self.url_shown} does not name a file to write", "add a path below the container"
            )
        store.check_path(key, self.url_shown)
        sent = _FileUpload(local_file, on_bytes)
        try:
            self._obstore.put(self._access.library, key, sent.parts(), **sent.options)
        except self._errors as error:
            sent.take_back()
            if sent.problem:
                raise NodeError(f"could not read {local_file}: {sent.problem}") from error
            raise self._make_error("write", self._show(relative_path), error) from error

    def _list_below(self, *, one_is_enough: bool = False) -> Iterator[Any]:
        size = 2 if one_is_enough else 1000
        try:
            for chunk in self._obstore.list(self._access.library, self._root or None, chunk_size=size):
                yield from chunk
        except self._obstore.exceptions.InvalidPathError as error:
            bad = re.search(r'Path "((?:[^"\\]|\\.)*)"', str(error))
            raise store.name_error(bad[1] if bad else "", self.url_shown, "is not safe") from error
        except FileNotFoundError:
            return
        except self._errors as error:
            raise self._make_error("list", self.url_shown, error) from error

    def _is_there(self, key: str) -> bool:
        """Return whether an empty file exists: the marker of an empty folder ends with a slash, which listings hide."""
        try:
            self._request(lambda: self._obstore.head(self._access.library, key))
        except FileNotFoundError:
            return False
        return True

    def _request(self, step: Callable[[], Any]) -> Any:
        """Call, and turn errors into NodeError, but for FileNotFoundError."""
        try:
            return step()
        except FileNotFoundError:
            raise
        except self._errors as error:
            raise self._make_error("read", self.url_shown, error) from error

    @property
    def _errors(self) -> tuple[type[BaseException], ...]:
        return (self._obstore.exceptions.BaseError, OSError, ValueError)

    def _make_error(self, verb: str, what: str, error: BaseException) -> NodeError:
        words = summarize_error(error)
        hint = ""
        if words.is_about_access:
            hint = f"asked {self._access.tried}; {self._access.hint}"
        elif words.status == 404:
            hint = "check the names of the account, the container or bucket, and the path"
        elif words.is_about_network:
            hint = f"asked {self._access.tried}; check the network, and HTTPS_PROXY where there is a proxy"
        return NodeError(f"could not {verb} {what}: {words.text}", hint)

    def _make_object(self, path: str, meta: Any) -> Object:
        version = _version(meta)
        looks = _MD5.fullmatch(version) if self._access.etag_is_md5 else None
        return Object(path, int(meta["size"]), version, looks[1] if looks else "")

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._root, path) if part)

    def _show(self, path: str) -> str:
        return uris.join_uri(self.url_shown, path) if path else self.url_shown


DIGEST_FROM_BYTES = 1 << 20
"""Bytes of a file from which on a request for its digest alone is worth its time."""


def _version(meta: Any) -> str:
    """Return the ETag without quotation marks: Azure's listings have none, its other answers do."""
    return (meta["e_tag"] or "").strip('"')


class _FileUpload:
    """One attempt to send a file."""

    def __init__(self, path: str, on_bytes: Callable[[int], None]) -> None:
        self._path = path
        self._on_bytes = on_bytes
        self._told = 0
        self._size = os.stat(path).st_size
        self._part = max(PART_BYTES, -(-self._size // _PARTS))
        self.problem = ""

    @property
    def options(self) -> dict[str, Any]:
        if self._size <= self._part:
            return {"use_multipart": False}
        return {"use_multipart": True, "chunk_size": self._part, "max_concurrency": _MOST_AT_ONCE}

    def parts(self) -> Iterator[bytes]:
        try:
            with open(self._path, "rb") as file:
                left = self._size
                while left > 0:
                    part = file.read(min(left, self._part))
                    if not part:
                        raise OSError("it became shorter meanwhile")
                    left -= len(part)
                    yield part
                    self._told += len(part)
                    self._on_bytes(len(part))
                if not self._size:
                    yield b""
        except OSError as error:
            self.problem = error.strerror or str(error)
            raise

    def take_back(self) -> None:
        self._on_bytes(-self._told)


class ErrorSummary(NamedTuple):
    text: str
    status: int = 0
    """Of HTTP; 0: there was no answer, or none that says it."""

    is_about_network: bool = False

    @property
    def is_about_access(self) -> bool:
        return self.status in (401, 403)


def summarize_error(error: BaseException) -> ErrorSummary:
    """Summarize an error of obstore as one sentence, with those parts of the service's answer that hold no secret."""
    text = str(error)
    status = _STATUS.search(text)
    if status:
        code, message = _CODE.search(text), _MESSAGE.search(text)
        words = [f"{code[1]}" if code else "", message[1].strip().rstrip(".") if message else ""]
        said = ": ".join(word for word in words if word)
        return ErrorSummary(
            f"the service answered {status[1]}" + (f" ({said})" if said else ""), int(status[1])
        )
    if isinstance(error, FileNotFoundError):
        return ErrorSummary("it is not there", 404)
    for mark, words_ in _REASONS:
        if mark in text:
            return ErrorSummary(words_, is_about_network=True)
    first = text.partition("\n")[0]
    return ErrorSummary(re.sub(r"\w+://\S+", "...", first)[:200] or type(error).__name__)
