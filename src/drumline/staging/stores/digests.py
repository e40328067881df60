"""
The digest of a whole file in the headers of an answer; pure functions.

Sources: RFC 9530 (``Repr-Digest``), RFC 3230 (``Digest``), RFC 1864 (``Content-MD5``),
https://cloud.google.com/storage/docs/xml-api/reference-headers (``x-goog-hash``),
https://learn.microsoft.com/rest/api/storageservices/get-blob (``x-ms-blob-content-md5``).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZES = {"sha256": 32, "sha512": 64, "md5": 16, "crc32c": 4}
_BEST = tuple(_SIZES)
_PAIR = re.compile(r"([A-Za-z0-9-]+)=:?([A-Za-z0-9+/]+=*):?")


def read_digest(headers: Mapping[str, str], *, is_part: bool = False) -> tuple[str, str] | None:
    """
    Return the best digest among the headers, as (name, hex).

    Names of headers are lower case; ``is_part``: of an answer with a part of the file, whose ``content-md5`` is of that
    part.

    >>> read_digest({"repr-digest": "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"})[0]
    'sha256'
    """
    found: dict[str, str] = {}
    for header in ("repr-digest", "digest", "x-goog-hash"):
        for name, text in _PAIR.findall(headers.get(header, "")):
            _keep(found, name.lower().replace("sha-", "sha"), text)
    _keep(found, "md5", headers.get("x-ms-blob-content-md5", ""))
    if not is_part:
        _keep(found, "md5", headers.get("content-md5", ""))
    return next(((name, found[name]) for name in _BEST if name in found), None)


def _keep(found: dict[str, str], name: str, text: str) -> None:
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return
    if len(digest) == _SIZES.get(name, 0):
        found.setdefault(name, digest.hex())
