"""
The standard input of commands that programs of other nodes ask for: from a connection, through a pipe.

The connection itself must not be a command's standard input. A bash that sees a socket there takes itself for started
by rshd, and below a shell of level 0 (cron, systemd, ``env -i``) it then reads ``~/.bashrc``, which changes its
variables.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket

_CHUNK_BYTES = 1 << 16


class StdinRelays:
    """All of one agent, served by its loop."""

    def __init__(self, poller: select.epoll) -> None:
        self._poller = poller
        self._of: dict[int, _StdinRelay] = {}
        """By descriptor: both ends of each that is registered now."""

    def open(self, address: str, port: int, token: str) -> int:
        """
        Connect there, and return the descriptor to read from, which the caller closes. A connection that fails is an
        input that ends. Raises OSError when there are no descriptors left.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        peer.setblocking(False)
        peer.connect_ex((address, port))
        relay = _StdinRelay(peer, writer, token.encode() + b"0")
        self._register(relay, peer.fileno(), select.EPOLLOUT)
        # Without a wish of ours it is ready when nobody reads any more.
        self._register(relay, writer, 0)
        return reader

    def _register(self, relay: _StdinRelay, descriptor: int, events: int) -> None:
        self._of[descriptor] = relay
        self._poller.register(descriptor, events)

    def hear(self, ready: set[int]) -> None:
        """Serve those of the descriptors that are ours."""
        for descriptor in ready & self._of.keys():
            relay = self._of.get(descriptor)
            if relay is not None and not self._move(relay, descriptor):
                self._close(relay)

    def _move(self, relay: _StdinRelay, descriptor: int) -> bool:
        """Move input on; False when the relay is over."""
        try:
            if descriptor == relay.writer:
                return bool(relay.pending) and self._pass_on(relay)
            if relay.greeting:
                relay.peer.sendall(relay.greeting)
                relay.greeting = b""
                self._poller.modify(descriptor, select.EPOLLIN)
                return True
            relay.pending = relay.peer.recv(_CHUNK_BYTES)
            return bool(relay.pending) and self._pass_on(relay)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _pass_on(self, relay: _StdinRelay) -> bool:
        """Write as much as the pipe takes; more is read when all of it has gone."""
        with contextlib.suppress(BlockingIOError):
            relay.pending = relay.pending[os.write(relay.writer, relay.pending) :]
        peer = relay.peer.fileno()
        if relay.pending and peer in self._of:
            # Not even its end is asked for: that would be told again and again.
            del self._of[peer]
            self._poller.unregister(peer)
            self._poller.modify(relay.writer, select.EPOLLOUT)
        elif not relay.pending and peer not in self._of:
            self._register(relay, peer, select.EPOLLIN)
            self._poller.modify(relay.writer, 0)
        return True

    def _close(self, relay: _StdinRelay) -> None:
        for descriptor in (relay.peer.fileno(), relay.writer):
            if self._of.pop(descriptor, None) is not None:
                self._poller.unregister(descriptor)
        relay.peer.close()
        os.close(relay.writer)


class _StdinRelay:
    def __init__(self, peer: socket.socket, writer: int, greeting: bytes) -> None:
        self.peer = peer
        self.writer = writer
        self.greeting = greeting
        """What is sent as soon as the connection is there; empty once it was."""

        self.pending = b""
        """What was read and does not fit into the pipe yet."""
