"""
Who may do what with blobs: shared access signatures (SAS), which look like Azure's and are made and checked here, and
the key of the account, with which older clients sign each request.

A signature covers its own fields and the container, and the blob or the folder of blobs that it is for; the two last
are taken from the request, so one for another container, or another blob, does not fit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from email.utils import mktime_tz, parsedate_tz
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import Any

PERMISSIONS = "rcwdl"
"""Read, create, write, delete, list: as Azure abbreviates them, in its order."""

_VERSION = "2021-12-02"
_FIELDS = ("sv", "sr", "sp", "se", "sdd")
"""Version, kind of resource (container, directory, blob), permissions, end, levels of the directory."""

_SIGNED = "content-encoding content-language content-length content-md5 content-type date if-modified-since"
_SIGNED += " if-match if-none-match if-unmodified-since range"
_SIGNED_S = 900.0

SAS_FIELDS = frozenset((*_FIELDS, "sig"))


class BlobError(Exception):
    """An answer in place of a blob's; ``code``: Azure's name of the error, where it has one."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def welcome(scope: MutableMapping[str, Any]) -> None:
    """Tell the connection of a request that has shown what lets it in: it is no stranger's any more."""
    scope.get("state", {}).get("welcome", lambda: None)()


def sign(key: bytes, container: str, permissions: str, seconds: float, blob: str = "") -> str:
    """
    Return the query string that gives ``permissions`` (letters of ``PERMISSIONS``) on a container from now on.

    ``blob``: the only blob that it is for; with a slash at its end, all blobs below that folder.
    """
    assert set(permissions) <= set(PERMISSIONS), permissions
    fields = {"sv": _VERSION, "sr": "c", "sp": permissions, "se": _format_moment(time.time() + seconds)}
    if blob.endswith("/"):
        fields |= {"sr": "d", "sdd": str(blob.count("/"))}
    elif blob:
        fields["sr"] = "b"
    return urlencode({**fields, "sig": _compute(key, fields, container, blob)})


def check(
    key: bytes, query: Mapping[str, str], container: str, blob: str, permissions: str
) -> frozenset[str]:
    """
    Return the permissions that the signature of a request gives.

    ``blob``: what is asked for, in a list its prefix. ``permissions``: of which it must give one; empty: any will do.
    Raises BlobError.
    """
    scope = {"c": "", "d": _find_folder(blob, query.get("sdd", "")), "b": blob}.get(query.get("sr", ""), "")
    wanted = _compute(key, query, container, scope)
    if not hmac.compare_digest(wanted.encode(), query.get("sig", "").encode("utf-8", "surrogatepass")):
        raise BlobError(
            403, "AuthenticationFailed", "the signature does not fit: it is missing, cut or for another"
        )
    if query["se"] <= _format_moment(time.time()):
        raise BlobError(403, "AuthenticationFailed", f"the signature was good until {query['se']}")
    given = frozenset(query["sp"])
    if permissions and not given & set(permissions):
        raise BlobError(
            403,
            "AuthorizationPermissionMismatch",
            f"the signature gives {query['sp']!r}, which is not enough for this",
        )
    return given


def _compute(key: bytes, fields: Mapping[str, str], container: str, blob: str) -> str:
    # As JSON, in which no value can pass for two.
    signed = json.dumps([*(fields.get(name, "") for name in _FIELDS), container, blob])
    digest = hmac.new(key, b"drumline blobs " + signed.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _find_folder(blob: str, levels: str) -> str:
    """Return the folder above a blob, of so many levels, with a slash at its end; the blob where it has fewer."""
    count = int(levels) if levels.isascii() and levels.isdigit() and len(levels) < 4 else 0
    parts = blob.split("/")
    return "/".join(parts[:count]) + "/" if 0 < count < len(parts) else blob


def _format_moment(seconds: float) -> str:
    """Return a moment as text that sorts as moments do."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def make_account_key(key: bytes) -> str:
    """Return the key that opens all containers, for clients that take no signature: Azure's ``AccountKey``."""
    return base64.b64encode(hmac.new(key, b"drumline account", hashlib.sha256).digest()).decode()


def check_shared_key(
    key: bytes, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> frozenset[str]:
    """
    Return all permissions for a request that the account's key has signed. ``path``: as sent. Raises BlobError.

    Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key.
    """
    account, _, signature = headers.get("authorization", "").removeprefix("SharedKey ").rpartition(":")
    sent = {**headers, "content-length": headers.get("content-length", "").lstrip("0")}
    # The order of a dictionary: hyphens do not count, and underscores come before digits and letters.
    own = sorted((name.replace("-", "").replace("_", "!"), name) for name in headers if name[:5] == "x-ms-")
    lines = [method, *(sent.get(name, "") for name in _SIGNED.split())]
    lines += [*(f"{name}:{sent[name]}" for _, name in own), f"/{account}{path}"]
    lines += [f"{name.lower()}:{value}" for name, value in sorted(query.items())]
    secret = base64.b64decode(make_account_key(key))
    wanted = base64.b64encode(hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest())
    if not hmac.compare_digest(wanted, signature.encode()):
        raise BlobError(403, "AuthenticationFailed", "the request is not signed with the key of this account")
    moment = parsedate_tz(sent.get("x-ms-date", ""))
    if not moment or abs(mktime_tz(moment) - time.time()) > _SIGNED_S:
        raise BlobError(
            403, "AuthenticationFailed", "the request was signed long ago, or your clock is wrong"
        )
    return frozenset(PERMISSIONS)
