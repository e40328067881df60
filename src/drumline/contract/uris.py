"""
Addresses of data that is not a path of this machine. Pure: nothing is asked.

The forms are those that Azure ML, fsspec and the services themselves use. Sources:
https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-command (inputs),
https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-introduction-abfs-uri,
https://huggingface.co/docs/huggingface_hub/guides/hf_file_system.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from drumline.contract.errors import SpecError
from drumline.contract.hiding import hide_secrets
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

AZURE, S3, GS, HF, HTTP = "azure", "s3", "gs", "hf", "http"
SERVICES = {
    "abfss": AZURE,
    "abfs": AZURE,
    "wasbs": AZURE,
    "wasb": AZURE,
    "s3": S3,
    "s3a": S3,
    "gs": GS,
    "gcs": GS,
    "hf": HF,
    "https": HTTP,
    "http": HTTP,
}
"""Of each scheme that can be read."""

WRITABLE = (AZURE, S3, GS)

_FORM = {
    AZURE: "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    S3: "s3://BUCKET/PATH",
    GS: "gs://BUCKET/PATH",
    HF: "hf://datasets/ORGANISATION/NAME/PATH",
    HTTP: "https://HOST/PATH",
}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(?:/([^?]*))?(?:\?(.*))?", re.DOTALL)
_AZURE_HOST = re.compile(
    r"([a-z0-9-]+)\.(?:blob|dfs)\.(?:core\.[a-z.]+|storage\.azure\.net)(?::\d+)?", re.IGNORECASE
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTAINER = re.compile(r"[$A-Za-z0-9][A-Za-z0-9._ -]*")
_PLURALS = ("datasets", "spaces", "models")


class Place(NamedTuple):
    """
    A place at a service. ``path`` is beneath ``container``, as written, without slashes at its ends; empty: all of it.
    """

    service: str
    account: str
    """Azure's storage account; of the hub ``datasets``, ``spaces`` or ``models``; else empty."""

    container: str
    """Azure's container, a bucket, a repository with its revision (``lab/digits@v2``), a web server with its port."""

    path: str
    host: str
    """As written; empty where the service's own is meant."""

    query: str
    """As written, without its question mark: a shared access signature, or what a web server wants."""

    uri: str
    is_plain: bool = False
    """Whether http was asked for, not https."""

    @property
    def name(self) -> str:
        """Return what a file or folder from there is called here; never one that leads anywhere."""
        last = self.path.rsplit("/", 1)[-1]
        return last if last not in ("", ".", "..") else "data"


def is_known(text: str) -> bool:
    """Return whether the scheme of this address is one of SERVICES."""
    return text.partition("://")[0].lower() in SERVICES and "://" in text


def parse_uri(text: str) -> Place:
    """
    Return the parts of an address of data. Raises SpecError with the form that the service has.

    >>> parse_uri("abfss://digits@lab.dfs.core.windows.net/v1/train/")[:4]
    ('azure', 'lab', 'digits', 'v1/train')
    >>> parse_uri("https://lab.blob.core.windows.net/digits/a.csv?sv=1&sig=x")[:4]
    ('azure', 'lab', 'digits', 'a.csv')
    >>> parse_uri("hf://datasets/lab/digits@v2/train.csv")[:4]
    ('hf', 'datasets', 'lab/digits@v2', 'train.csv')
    """
    found = _URI.fullmatch(text.strip())
    service = SERVICES.get(found[1].lower(), "") if found else ""
    if found is None or not service:
        raise SpecError(
            f"{hide_secrets(text)!r} is no address of data that is known here", ", ".join(_FORM.values())
        )
    scheme, host, path, query = found[1].lower(), found[2], found[3] or "", found[4] or ""
    if _CONTROL.search(text.strip()):
        raise SpecError(f"{hide_secrets(text)!r}: an address cannot hold control characters")
    if scheme in ("http", "https"):
        path, query = path.partition("#")[0], "" if "#" in path else query.partition("#")[0]
    if any(part in (".", "..") for part in path.split("/")):
        raise SpecError(f"{hide_secrets(text)!r}: a path cannot have a part '.' or '..'")
    place = _PARSERS[service](host, path, query, text.strip())
    if place is None or not (place.container if service == HTTP else _CONTAINER.match(place.container)):
        raise SpecError(f"{hide_secrets(text)!r} is not complete", _FORM[service])
    if place.query and place.service != HTTP and (place.service != AZURE or "sig=" not in place.query):
        # It would not be heeded, and the data would be another's.
        hint = "a signature may follow" if place.service == AZURE else "nothing may follow"
        raise SpecError(f"{hide_secrets(text)!r}: what follows '?' cannot be used for {place.service}", hint)
    return place._replace(is_plain=scheme in ("http", "wasb", "abfs"))


def _azure(host: str, path: str, query: str, text: str) -> Place | None:
    container, at, server = host.partition("@")
    account = server.partition(".")[0]
    if not at or not account or "@" in server:
        return None
    return Place(AZURE, account.lower(), container, path.strip("/"), server, query, text)


def _bucket(service: str, host: str, path: str, query: str, text: str) -> Place:
    return Place(service, "", host, path.strip("/"), "", query, text)


def _hf(host: str, path: str, query: str, text: str) -> Place | None:
    parts = [part for part in f"{host}/{path}".split("/") if part]
    kind = parts.pop(0) if parts and parts[0] in _PLURALS else "models"
    if len(parts) < 2:
        return None
    return Place(HF, kind, "/".join(parts[:2]), "/".join(parts[2:]), "", query, text)


def _http(host: str, path: str, query: str, text: str) -> Place | None:
    from urllib.parse import unquote, urlsplit

    try:
        urlsplit(text).port  # noqa: B018  # raises
    except ValueError:
        hint = "a port is a number up to 65535; in a password, write / as %2F, ? as %3F and # as %23"
        raise SpecError(f"{hide_secrets(text)!r}: the host or port is not valid", hint) from None
    known = _AZURE_HOST.fullmatch(host)
    if not known:
        return Place(HTTP, "", host, path, host, query, text) if host.rpartition("@")[2] else None
    container, _, inside = unquote(path).partition("/")
    if any(part in (".", "..") for part in inside.split("/")) or _CONTROL.search(inside):
        return None
    return Place(AZURE, known[1].lower(), container, inside.strip("/"), host, query, text)


_PARSERS: dict[str, Callable[[str, str, str, str], Place | None]] = {
    AZURE: _azure,
    S3: partial(_bucket, S3),
    GS: partial(_bucket, GS),
    HF: _hf,
    HTTP: _http,
}


def join_uri(text: str, *parts: str) -> str:
    """
    Return the address of a path beneath that one.

    >>> join_uri("s3://b/a/", "c/d")
    's3://b/a/c/d'
    """
    address, question, query = text.partition("?")
    return (
        "/".join([address.rstrip("/"), *(part.strip("/") for part in parts if part.strip("/"))])
        + question
        + query
    )
