"""
The channel between supervisor and agents: JSON objects, one a line, over TCP.

The first line an agent sends is its hello with the job's secret; nothing is read from a peer that does not know it.
End of file is how either side learns that the other died.
"""

from __future__ import annotations

import json
from _operator import _compare_digest  # what hmac.compare_digest is, without the 4 ms that hashlib takes
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    import socket

MESSAGE_LIMIT = 64 * 1024 * 1024
HELLO_LIMIT = 64 * 1024
"""Bytes that a peer may send before it has shown the secret."""


class ChannelError(Exception):
    """The peer sent what no agent or supervisor sends."""


class Lines:
    """
    Bytes in, messages out. ``skips_others``: other lines are left out, such as what a library of a process of our own
    prints; else they are errors.
    """

    def __init__(self, limit: int = MESSAGE_LIMIT, *, skips_others: bool = False) -> None:
        self.limit = limit
        self._skips_others = skips_others
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that ``data`` completes, in order. Raises ChannelError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.limit:
            raise ChannelError(f"a message of more than {self.limit} bytes")
        return [message for message in map(self._parse_or_skip, lines) if message is not None]

    def _parse_or_skip(self, line: bytes) -> Optional[dict[str, Any]]:
        try:
            return parse(line)
        except ChannelError:
            if self._skips_others:
                return None
            raise


def parse(line: bytes) -> dict[str, Any]:
    """Return the message of a line. Raises ChannelError."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ChannelError("a line that is not JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ChannelError("a line that is not a message")
    return message


def connect_to(address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Connect to that host and port. Raises OSError."""
    import socket as s

    # As bytes: a name is encoded by a codec that takes 4 ms and a megabyte to load, and ours are numbers.
    host: Any = address[0].encode() if address[0].isascii() else address[0]
    return s.create_connection((host, address[1]), timeout_s)


SILENCE_S = 40
"""After which a peer is taken for gone."""


def notice_power_cut(peer: socket.socket, silence_s: int = SILENCE_S) -> None:
    """Have the connection fail after so much silence: a peer whose machine is gone does not close it."""
    import socket as s

    peer.setsockopt(s.SOL_SOCKET, s.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", max(1, silence_s // 4)),
        ("TCP_KEEPINTVL", max(1, silence_s // 8)),
        ("TCP_KEEPCNT", 6),
        ("TCP_USER_TIMEOUT", silence_s * 1000),
    ):
        if hasattr(s, option):
            peer.setsockopt(s.IPPROTO_TCP, getattr(s, option), value)


def same_secret(ours: str, theirs: object) -> bool:
    """Return whether the two are equal, in a time that does not tell how much of it is."""
    given = theirs.encode("utf-8", "surrogatepass") if isinstance(theirs, str) else b""
    return _compare_digest(ours.encode(), given)
