"""The settings of one server; the token of programs, the cookie of browsers, and logins that are good once."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control.settings import studios

if TYPE_CHECKING:
    from collections.abc import Collection


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API = "/api/v1"


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
    """All of one server, made anew at each start. Used by one thread."""

    def __init__(self) -> None:
        self.bearer = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        self._used: dict[str, int] = {}
        self._failures: dict[bytes, float] = {}

    def is_bearer(self, given: str) -> bool:
        return self._check(given, self.bearer)

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
