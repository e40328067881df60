"""
One HTTP request by urllib, and the digest that its answer tells; redirects are followed here, because they decide where
credentials go.

Sources of digests: RFC 9530 (``Repr-Digest``), RFC 3230 (``Digest``), RFC 1864 (``Content-MD5``),
https://cloud.google.com/storage/docs/xml-api/reference-headers (``x-goog-hash``),
https://learn.microsoft.com/rest/api/storageservices/get-blob (``x-ms-blob-content-md5``).
"""

from __future__ import annotations

import base64
import binascii
import functools
import ipaddress
import random
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    getproxies,
    proxy_bypass,
)

from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse


TIMEOUT_S = 60.0
"""For a connection, and for each time that nothing comes."""

_REDIRECTS = 5
_PRIVATE = ("authorization", "cookie")
_METADATA = ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
"""Where Azure, Alibaba, Oracle, AWS and Google give a machine its credentials, besides link-local addresses."""

_DIGEST_SIZES = {"sha256": 32, "sha512": 64, "md5": 16, "crc32c": 4}
_BEST_DIGESTS = tuple(_DIGEST_SIZES)
_DIGEST = re.compile(r"([A-Za-z0-9-]+)=:?([A-Za-z0-9+/]+=*):?")

_SAFE = "%/:=&?~#+!$,;'@()*[]|"


class HttpAnswer(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case."""

    body: HTTPResponse
    url: str
    """Where it came from in the end."""

    def close(self) -> None:
        """Close it, once the body was read or is not wanted."""
        self.body.close()


def send_request(method: str, url: str, headers: Mapping[str, str]) -> HttpAnswer:
    """
    Return the answer after redirects, whatever its status.

    Headers that say who asks go to the host of ``url`` alone. Raises OSError and http.client.HTTPException for what
    may pass, and NodeError for redirects that are not followed.
    """
    first = here = _check_url(url, url)
    for _ in range(_REDIRECTS + 1):
        is_home = _origin(here) == _origin(first)
        sent = {name: value for name, value in headers.items() if is_home or name.lower() not in _PRIVATE}
        answer = _send_once(method, here, sent)
        target = answer.headers.get("location", "")
        if answer.status not in (301, 302, 303, 307, 308) or not target:
            return answer
        answer.close()
        there = _check_url(target, url, here.geturl())
        if here.scheme == "https" and there.scheme != "https":
            raise NodeError(
                f"{hide_secrets(url)} redirects from https to http, which is not followed",
                "ask its owner",
            )
        if there.hostname != first.hostname:
            _check_leads_out(there, url)
        here = there
    raise NodeError(f"{hide_secrets(url)} redirects more than {_REDIRECTS} times", "use the final address")


def _check_leads_out(there: SplitResult, first: str) -> None:
    """
    Raise NodeError for an address that means something on this machine alone, such as where it gets its credentials.

    A name is resolved, unless a proxy does that.
    """
    host = there.hostname or ""
    is_proxied = there.scheme in getproxies() and not proxy_bypass(there.netloc)
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST if is_proxied else 0)
    except (OSError, UnicodeError):
        return
    for *_, (address, *_) in found:
        ip = ipaddress.ip_address(address)
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if ip.is_link_local or str(ip) in _METADATA:
            where = host if host == str(ip) else f"{host} ({ip})"
            raise NodeError(
                f"{hide_secrets(first)} redirects to {where}, which is not followed: "
                "this machine gets its own settings and credentials from such addresses",
                "ask its owner",
            )


def request_headers(url: str, headers: Mapping[str, str], *, any_status: bool = False) -> dict[str, str]:
    """Return the headers of the answer. Raises as ``send_request``, and OSError for a status of failure."""
    answer = send_request("HEAD", url, headers)
    answer.close()
    if answer.status >= 300 and not any_status:
        raise OSError(f"{answer.status} {answer.reason}")
    return dict(answer.headers)


def _send_once(method: str, target: SplitResult, headers: Mapping[str, str]) -> HttpAnswer:
    path, query = (quote(part, safe=_SAFE) for part in (target.path, target.query))
    try:
        address = SplitResult(target.scheme, _netloc(target), path or "/", query, "").geturl()
        request = Request(address, None, dict(headers), method=method)  # noqa: S310 - ``_check_url`` allows two
        body: HTTPResponse = _opener().open(request, timeout=TIMEOUT_S)
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None
    except OSError:  # some are ValueErrors as well
        raise
    except ValueError as error:  # an address that no request can hold
        raise NodeError(f"{hide_secrets(target.geturl())} is not an HTTP address: {error}") from error
    named: dict[str, str] = {}
    for name, value in body.getheaders():
        named[name.lower()] = f"{named[name.lower()]}, {value}" if name.lower() in named else value
    return HttpAnswer(body.status, body.reason, named, body, target.geturl())


def _opener() -> OpenerDirector:
    """Return urllib's opener with proxies of the environment; ``send_request`` handles redirects and failures."""
    opener = OpenerDirector()
    opener.addheaders = []
    for handler in (_EnvironmentProxies(), HTTPHandler(), HTTPSHandler(context=_context())):
        opener.add_handler(handler)
    return opener


class _EnvironmentProxies(ProxyHandler):
    """urllib's, but a user of a proxy may have no password, and every proxy is spoken to in plain HTTP."""

    def proxy_open(self, req: Request, proxy: str, type: str) -> Any:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.username and not parts.password and not proxy_bypass(req.host):
            req.add_header("Proxy-Authorization", basic_authorization(parts.username, ""))
        # Typeshed has one argument less than the method, which OpenerDirector calls with these three.
        return super().proxy_open(req, f"http://{parts.netloc}", type)


def _netloc(target: SplitResult) -> str:
    """Return host and port for the request: in ASCII, and without the scheme's own port."""
    netloc = target.netloc if target.netloc.isascii() else target.netloc.encode("idna").decode()
    has_own_port = target.port == {"http": 80, "https": 443}[target.scheme]
    return netloc.rpartition(":")[0] if has_own_port else netloc


@functools.cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def basic_authorization(user: str, password: str) -> str:
    """Return the Authorization header for a name and a password as they stand in an address."""
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _origin(target: SplitResult) -> tuple[str, str, int | None]:
    return target.scheme, (target.hostname or "").lower(), target.port


def _check_url(url: str, first: str, base: str = "") -> SplitResult:
    """Return an address without its user. Raises NodeError unless it is http or https."""
    try:
        parts = urlsplit(urljoin(base, url))
        parts.port  # noqa: B018  # raises
    except ValueError as error:
        what = "redirects to an address that is not HTTP" if base else "has a host or port that is not valid"
        raise NodeError(f"{hide_secrets(first)} {what}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NodeError(
            f"{hide_secrets(first)} redirects to an address that is not HTTP: {hide_secrets(url)!r}"
        )
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])


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
        for name, text in _DIGEST.findall(headers.get(header, "")):
            _keep_digest(found, name.lower().replace("sha-", "sha"), text)
    _keep_digest(found, "md5", headers.get("x-ms-blob-content-md5", ""))
    if not is_part:
        _keep_digest(found, "md5", headers.get("content-md5", ""))
    return next(((name, found[name]) for name in _BEST_DIGESTS if name in found), None)


def _keep_digest(found: dict[str, str], name: str, text: str) -> None:
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return
    if len(digest) == _DIGEST_SIZES.get(name, 0):
        found.setdefault(name, digest.hex())


# when to try again


TRIES = 5
LIMIT_S = 120.0
"""After which there is no further try."""

TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
"""What a server says that may be over soon."""

FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 20.0


class Tries:
    """The attempts at one piece of work."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start counting anew, after progress."""
        self._failed = 0
        self._until = time.monotonic() + LIMIT_S

    def again(self, wished_s: float = 0.0) -> bool:
        """Wait after a failure, ``wished_s`` at least, and return True; False if it was one too many."""
        self._failed += 1
        own = FIRST_PAUSE_S * 4 ** (self._failed - 1) * random.uniform(0.5, 1)  # noqa: S311  # nothing secret
        pause = min(_LONGEST_PAUSE_S, max(wished_s, own))
        if self._failed >= TRIES or time.monotonic() + pause > self._until:
            return False
        time.sleep(pause)
        return True
