"""One file of a web server, by the standard library alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.staging.stores.base import Object
from drumline.staging.stores.connection import basic_authorization
from drumline.staging.stores.web_file import WebFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.uris import Place


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
