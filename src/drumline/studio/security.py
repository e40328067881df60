"""
The guard before all routes, which refuses every request that does not show that it may pass.

A request needs a Host that is this server's (against DNS rebinding), the cookie or the token (against other users of
the machine), and, below ``/api`` and for a login, to come from our own page (against other pages in the same browser).
Our own files and the login page are public. Nothing here depends on what a route does, so a new one is closed.

The token of programs, the cookie of browsers, and logins that are good once are at the end.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from drumline.contract.record import NamedTuple
from drumline.contract.words import format_size
from drumline.control.settings import studios

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
"""The policy of a file that a job wrote."""

MOST_BODY_BYTES = 10 << 20
MOST_PUBLIC_BODY_BYTES = 4 << 10
"""Of what anybody may send: a login."""

_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_READING = ("GET", "HEAD")
_METHODS = (*_READING, "POST")


class Refusal(NamedTuple):
    """The reason for an answer without content. ``message``: a sentence that names no secret."""

    status: int
    message: str
    hint: str = ""


class Guard:
    """The outermost application. ``refuse`` makes the answer of a refusal."""

    def __init__(
        self,
        app: ASGIApp,
        settings: StudioSettings,
        tokens: Tokens,
        refuse: Callable[[Scope, Refusal], Response],
    ) -> None:
        self._app = app
        self._settings = settings
        self._tokens = tokens
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self.check(scope)
            if refusal is None and not is_public(scope["method"], scope["path"]):
                scope.get("state", {}).get("welcome", lambda: None)()
            answer = self._app if refusal is None else self._refuse(scope, refusal)
            await answer(scope, receive, _add_headers(send))
        else:
            await send({"type": "websocket.close", "code": 1008})

    def check(self, scope: Scope) -> Refusal | None:
        """Return why the request is refused; None: it may pass."""
        headers = Headers(scope=scope)
        method, path = str(scope["method"]), str(scope["path"])
        return (
            self._check_host(scope, headers)
            or (None if method in _METHODS else Refusal(405, f"there is no {method[:20]} here"))
            or self._check_origin(method, path, headers)
            or self._check_caller(method, path, headers)
            or _check_body(method, path, headers)
        )

    def _check_host(self, scope: Scope, headers: Headers) -> Refusal | None:
        known = _HOST.fullmatch(_get_only(headers, "host") or "")
        name = known[1].lower() if known else ""
        if name in LOOPBACK_NAMES or name in self._settings.names:
            return None
        server = scope.get("server")
        # A page of another site cannot have our address for its own name.
        if name and self._settings.is_open and server and name.strip("[]") == server[0]:
            return None
        return Refusal(403, "this studio is not reached under that name", "drumline studio --name NAME")

    def _check_origin(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Refuse what another page makes a browser send. Pages themselves may be linked to from anywhere."""
        is_api = path == "/api" or path.startswith("/api/")
        if not is_api and method in _READING:
            return None
        sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
        wanted = ("same-origin", "none") if method in _READING else ("same-origin",)
        is_own = all(site in wanted for site in sites) and all(
            _host_of(origin) == _get_only(headers, "host") for origin in origins
        )
        # Browsers name the origin of every change; a program has a token.
        is_named = bool(sites or origins) or method in _READING or "authorization" in headers
        if is_own and is_named:
            return None
        return Refusal(403, "the request does not come from the studio's own page")

    def _check_caller(self, method: str, path: str, headers: Headers) -> Refusal | None:
        if is_public(method, path):
            return None
        given = headers.getlist("authorization")
        is_metrics = path == METRICS
        if not given and not is_metrics:
            parts = (part for line in headers.getlist("cookie") for part in line.split(";"))
            cookies = (part.strip().partition("=") for part in parts)
            if any(
                name == self._settings.cookie and self._tokens.is_session(value) for name, _, value in cookies
            ):
                return None
        was_locked = self._tokens.is_locked
        # The right one passes when others have been wrong: else whoever sends wrong ones locks everybody out.
        is_bearer = len(given) == 1 and given[0][:7].lower() == "bearer "
        is_right = self._tokens.is_metrics if is_metrics else self._tokens.is_bearer
        if is_bearer and is_right(given[0][7:].strip()):
            return None
        if was_locked and given:
            return Refusal(429, "too many tries have failed", "try again in a minute")
        if is_metrics:
            return Refusal(
                401, "a token is needed", "that of studio/metrics.token in the home, as a bearer's"
            )
        return Refusal(
            401, "a token is needed", "run drumline studio again; it opens a page that is logged in"
        )


def _get_only(headers: Headers, name: str) -> str | None:
    """Return the value of a header that is there once."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else None


def is_public(method: str, path: str) -> bool:
    """Our own files, which anybody can read in the package, and the way in, which checks its own tokens."""
    return (path.startswith("/static/") and method in _READING) or path == "/login"


def _host_of(origin: str) -> str:
    """Return the host and port of an origin; nothing for ``null``."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


def _check_body(method: str, path: str, headers: Headers) -> Refusal | None:
    """Refuse a change that is not JSON: a form of another page can send none."""
    if method in _READING:
        return None
    kind = (_get_only(headers, "content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return Refusal(415, "a change must be JSON", "Content-Type: application/json")
    most = limit_body(method, path)
    # int() takes neither every digit nor every length.
    length = _get_only(headers, "content-length") or "0"
    if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > most:
        return Refusal(413, f"the body is larger than {format_size(most)}")
    return None


def limit_body(method: str, path: str) -> int:
    """Return how many bytes may be sent there: few where anybody may."""
    return MOST_PUBLIC_BODY_BYTES if is_public(method, path) else MOST_BODY_BYTES


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message["headers"] = [*given, *(one for one in _HEADERS if one[0] not in names)]
        await send(message)

    return send_with_headers


# The settings of one server; the token of programs, the cookie of browsers, and logins that are good once.


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API = "/api/v1"
METRICS = "/metrics"
"""For Prometheus, with a token of its own that opens nothing else."""


class StudioSettings(NamedTuple):
    """
    The settings of one server, which listens at ``port``.

    ``names``: under which browsers may reach it, besides those of loopback, in lower case.
    ``is_open``: it listens on more than loopback. ``workspace``: where a request names none.
    """

    port: int
    names: Collection[str] = ()
    is_open: bool = False
    has_tls: bool = False
    workspace: str = ""

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers send cookies to all ports of a host."""
        return f"drumline-studio-{self.port}"


def is_loopback(address: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


# tokens


_MOST_FAILURES = 10
_FAILURE_S = 60.0
_LOGIN = re.compile(r"[0-9]{1,11}\.[A-Za-z0-9_-]{22}\.[0-9a-f]{64}")


class Tokens:
    """All of one server, made anew at each start but that of Prometheus. Used by one thread."""

    def __init__(self, metrics: str = "") -> None:
        self._metrics = metrics or secrets.token_urlsafe(32)
        self.bearer = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        self._used: dict[str, int] = {}
        self._failures: dict[bytes, float] = {}

    def is_bearer(self, given: str) -> bool:
        return self._check(given, self.bearer)

    def is_metrics(self, given: str) -> bool:
        return self._check(given, self._metrics)

    def is_session(self, given: str) -> bool:
        return self._check(given, self.session)

    def redeem(self, once: str) -> bool:
        """Whether a login is good; it is so once."""
        self._used = {nonce: until for nonce, until in self._used.items() if until >= time.time()}
        known = studios.check_once(self.bearer, once)
        if known is None or known[0] in self._used:
            # What has not even the form of a login guesses nothing.
            if _LOGIN.fullmatch(once):
                self._note_failure(once)
            return False
        self._used[known[0]] = known[1]
        return True

    @property
    def is_locked(self) -> bool:
        """Whether so many tries have failed in the last minute that no wrong one is looked at."""
        since = time.monotonic() - _FAILURE_S
        self._failures = {known: when for known, when in self._failures.items() if when >= since}
        return len(self._failures) >= _MOST_FAILURES

    def _check(self, given: str, wanted: str) -> bool:
        is_right = hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
        if not is_right:
            self._note_failure(given)
        return is_right

    def _note_failure(self, given: str) -> None:
        """Count a try. The same wrong value counts once: the cookie of an earlier server guesses nothing."""
        if not self.is_locked:
            digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
            self._failures.setdefault(digest, time.monotonic())
