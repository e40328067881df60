"""
Messages between a warm pool, its warm interpreters and agents: JSON behind its length in four bytes, over Unix sockets.

``hook/warm.py`` has the same for itself: it runs where this package may not be.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_MAX_BYTES = 16 << 20


def send(peer: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Send a message; descriptors, if any are given, go with a byte of their own. Raises OSError."""
    body = json.dumps(message).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)
    if descriptors:
        socket.send_fds(peer, [b"!"], descriptors)


def receive(peer: socket.socket) -> dict[str, Any]:
    """Receive a message. Blocks. Raises ConnectionError at the end, ValueError for what is no message."""
    (count,) = struct.unpack("!I", _receive_exactly(peer, 4))
    if count > _MAX_BYTES:
        raise ValueError("a message is too long")
    message = json.loads(_receive_exactly(peer, count))
    if not isinstance(message, dict):
        raise ValueError("a message is no object")  # noqa: TRY004 - it is content, not a type of ours
    return message


def receive_descriptor(peer: socket.socket) -> int:
    """Receive the descriptor that came with a message. Raises ConnectionError."""
    _, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
    if not descriptors:
        raise ConnectionError("no descriptor came")
    return descriptors[0]


def _receive_exactly(peer: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = peer.recv(min(1 << 16, count - len(found)))
        if not more:
            raise ConnectionError("end of file")
        found += more
    return bytes(found)
