"""The settings of one server."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

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
