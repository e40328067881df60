"""
The channel between supervisor and agents: messages as JSON objects, one a line, over TCP.

The first line an agent sends is its hello with the job's secret; nothing is read from a peer that does not know it.
End of file is how either side learns that the other died.
"""

from __future__ import annotations

import json
import os
from _operator import _compare_digest  # what hmac.compare_digest is, without the 4 ms that hashlib takes
from typing import TYPE_CHECKING, Any, Optional, cast, get_args

from drumline.contract import messages
from drumline.contract.messages import Compressed, FromAgent, ToAgent
from drumline.contract.record import read_record

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

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


# Messages on the way.


_TO_AGENT: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(ToAgent)}
_FROM_AGENT: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(FromAgent)}

_LONG_BYTES = 16 * 1024
"""From which on a message to many agents is compressed."""


def compute_version() -> str:
    """Return what is the same for two packages that understand each other: a number made of all names and fields."""
    kinds = [*vars(messages).values(), *get_args(messages.SeenEvent)]
    text = repr([(kind.__name__, kind._fields) for kind in kinds if hasattr(kind, "_fields")])
    # A remainder of it by a prime: hashlib would have to be loaded.
    return f"{int.from_bytes(text.encode(), 'big') % (2**61 - 1):016x}"


def find_package() -> str:
    """Return the folder of this package, for the words about two that differ."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def identify_package() -> tuple[str, str]:
    """Return the version and the folder of this package, as a peer is told them."""
    return compute_version(), find_package()


def describe_difference(other: Mapping[str, Any]) -> str:
    """
    Return what is said of a peer of another version; empty when it is of this one.

    ``other``: of whatever version, as it tells of itself in ``version`` and ``package``.
    """
    if other.get("version") == compute_version():
        return ""
    return (
        f"another version of drumline, from {other.get('package') or 'an unknown folder'}, than the one here, from "
        f"{find_package()}; install the same version for all nodes"
    )


def send(peer: socket.socket, message: ToAgent | FromAgent) -> None:
    """Block until the kernel took all of it. Raises OSError when the peer is gone."""
    peer.sendall(encode(message))


def encode(message: ToAgent | FromAgent | Compressed) -> bytes:
    """Return the line that stands for a message, with its end."""
    return json.dumps({"type": type(message).__name__, **message._asdict()}).encode() + b"\n"


def encode_for_many(message: ToAgent) -> bytes:
    """Return the line that stands for a message to many agents; a long one is compressed."""
    line = encode(message)
    if len(line) < _LONG_BYTES:
        return line
    # Few jobs have so many nodes, and every launch would import these.
    import binascii
    import zlib

    # Higher levels take ten times as long, and save at most a fifth of the bytes.
    return encode(Compressed(binascii.b2a_base64(zlib.compress(line, 1), newline=False).decode()))


def _decompress(compressed: Compressed) -> dict[str, Any]:
    import binascii
    import zlib

    decompressor = zlib.decompressobj()
    try:
        line = decompressor.decompress(binascii.a2b_base64(compressed.line), MESSAGE_LIMIT)
    except (TypeError, ValueError, zlib.error) as error:
        raise ChannelError("a compressed message that is damaged") from error
    if not decompressor.eof:
        raise ChannelError(f"a compressed message that is not whole, or of more than {MESSAGE_LIMIT} bytes")
    return parse(line)


def decode_for_agent(line: dict[str, Any]) -> ToAgent:
    """Return the message of a line that ``Lines`` has read, which is changed. Raises ChannelError."""
    if line["type"] == Compressed.__name__:
        line = _decompress(_decode(line, {Compressed.__name__: Compressed}))
    return cast("ToAgent", _decode(line, _TO_AGENT))


def decode_from_agent(line: dict[str, Any]) -> FromAgent:
    """Return the message of a line that ``Lines`` has read, which is changed. Raises ChannelError."""
    return cast("FromAgent", _decode(line, _FROM_AGENT))


def _decode(line: dict[str, Any], kinds: Mapping[str, type[Any]]) -> Any:
    name = str(line.pop("type"))
    kind = kinds.get(name)
    if kind is None:
        raise ChannelError(f"a message {name!r}, which this version does not have")
    fields = ", ".join(line) or "none"
    try:
        return read_record(kind, line)
    except (TypeError, KeyError) as error:
        raise ChannelError(f"a message {name!r} with the fields {fields}") from error
