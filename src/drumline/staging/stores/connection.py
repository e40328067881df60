"""One HTTP request with Python's own means: proxies, redirects, and what credentials may go where."""

from __future__ import annotations

import functools
import http.client
import ssl
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urljoin, urlsplit

from drumline.contract import uris
from drumline.contract.errors import NodeError
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

TIMEOUT_S = 60.0
"""For a connection, and for each time that nothing comes."""

_REDIRECTS = 5
_PRIVATE = ("authorization", "cookie")
_SAFE = "%/:=&?~#+!$,;'@()*[]|"


class Answer(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case."""

    body: http.client.HTTPResponse
    url: str
    """Where it came from in the end."""

    connection: http.client.HTTPConnection

    def close(self) -> None:
        """To be called once the body was read, or is not wanted."""
        self.body.close()
        self.connection.close()


def ask(method: str, url: str, headers: Mapping[str, str]) -> Answer:
    """
    The answer after redirects, whatever its status.

    Headers that say who asks go to the host of ``url`` alone. Raises OSError and http.client.HTTPException for what
    may pass, and NodeError for redirects that are not followed.
    """
    first = here = _checked(url, url)
    for _ in range(_REDIRECTS + 1):
        is_home = _origin(here) == _origin(first)
        sent = {name: value for name, value in headers.items() if is_home or name.lower() not in _PRIVATE}
        answer = _one(method, here, sent)
        target = answer.headers.get("location", "")
        if answer.status not in (301, 302, 303, 307, 308) or not target:
            return answer
        answer.close()
        there = _checked(target, url, here.geturl())
        if here.scheme == "https" and there.scheme != "https":
            raise NodeError(
                f"{uris.shown(url)} leads from https to http, which is not followed", "ask who runs it"
            )
        here = there
    raise NodeError(
        f"{uris.shown(url)} leads on more than {_REDIRECTS} times", "name the address that it leads to"
    )


def head(url: str, headers: Mapping[str, str], *, any_status: bool = False) -> dict[str, str]:
    """The headers of the answer. Raises as ``ask``, and OSError for a status of failure."""
    answer = ask("HEAD", url, headers)
    answer.close()
    if answer.status >= 300 and not any_status:
        raise OSError(f"{answer.status} {answer.reason}")
    return dict(answer.headers)


def _one(method: str, target: SplitResult, headers: Mapping[str, str]) -> Answer:
    connection, path, more = _connection(target)
    try:
        connection.request(
            method, path, headers={"Connection": "close", "Accept-Encoding": "identity", **more, **headers}
        )
        body = connection.getresponse()
    except OSError:  # some are ValueErrors as well
        connection.close()
        raise
    except ValueError as error:  # an address that no request can hold
        connection.close()
        raise NodeError(f"{uris.shown(target.geturl())} is no address of HTTP: {error}") from error
    except BaseException:
        connection.close()
        raise
    named: dict[str, str] = {}
    for name, value in body.getheaders():
        named[name.lower()] = f"{named[name.lower()]}, {value}" if name.lower() in named else value
    return Answer(body.status, body.reason, named, body, target.geturl(), connection)


def _connection(target: SplitResult) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """Not yet open; what to ask it for; and headers for a proxy."""
    path = quote(target.path or "/", safe=_SAFE) + (
        f"?{quote(target.query, safe=_SAFE)}" if target.query else ""
    )
    proxy = _proxy(target)
    if target.scheme == "https":
        context = _context()
        if proxy is None:
            return http.client.HTTPSConnection(target.netloc, timeout=TIMEOUT_S, context=context), path, {}
        tunnel = http.client.HTTPSConnection(_host(proxy), timeout=TIMEOUT_S, context=context)
        tunnel.set_tunnel(target.netloc, headers=_to_proxy(proxy))
        return tunnel, path, {}
    if proxy is None:
        return http.client.HTTPConnection(target.netloc, timeout=TIMEOUT_S), path, {}
    whole = f"http://{target.netloc}{path}"
    return http.client.HTTPConnection(_host(proxy), timeout=TIMEOUT_S), whole, _to_proxy(proxy)


@functools.cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _proxy(target: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(target.scheme, "")
    if not address or proxy_bypass(target.netloc):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _host(proxy: SplitResult) -> str:
    return proxy.netloc.rpartition("@")[2]


def _to_proxy(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": basic(proxy.username, proxy.password or "")} if proxy.username else {}


def basic(user: str, password: str) -> str:
    """The value of an Authorization header, of a name and a password as they stand in an address."""
    import base64

    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _origin(target: SplitResult) -> tuple[str, str, int | None]:
    return target.scheme, (target.hostname or "").lower(), target.port


def _checked(url: str, first: str, base: str = "") -> SplitResult:
    """Raises NodeError for what is not to be asked."""
    try:
        parts = urlsplit(urljoin(base, url))
        parts.port  # noqa: B018  # raises
    except ValueError as error:
        raise NodeError(f"{uris.shown(first)} leads to no address of HTTP") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NodeError(f"{uris.shown(first)} leads to no address of HTTP: {uris.shown(url)!r}")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])
