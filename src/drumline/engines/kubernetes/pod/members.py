"""The pods of a job's nodes, as its supervisor sees them: each asks which node it is, and is that node's agent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from typing import TYPE_CHECKING, Any

from drumline.contract import channel
from drumline.engines.kubernetes import objects

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_STRANGERS = 64


class JoinedPod:
    """A pod that has shown the job's token. ``node``: its number; None: it has none yet."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.lines = channel.Lines(channel.HELLO_LIMIT)
        self.pod = ""
        self.host = ""
        self.node: int | None = None
        self.error = ""
        self.is_leaving = False

    @property
    def is_spare(self) -> bool:
        """Return whether a number can be given to it."""
        return bool(self.pod) and self.node is None and not self.is_leaving


class Members:
    """Listens for pods as long as the job lives. Numbers are kept: a replacement takes the one that was lost."""

    def __init__(self, count: int, token: str, port: int = objects.PORT) -> None:
        self.count = count
        self._token = token
        self._server = socket.create_server(("0.0.0.0", port), backlog=1024)  # noqa: S104 - a token lets them in
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._peers: dict[int, JoinedPod] = {}

    @property
    def present(self) -> int:
        """Return how many of the job's pods are there."""
        return sum(member.node is not None for member in self._peers.values())

    def wait(self, timeout_s: float, wake: int = -1) -> None:
        """Take in what has happened; wait for something, ``wake`` included, at most so long."""
        poller = select.poll()
        for descriptor in (self._server.fileno(), *self._peers, *([wake] if wake >= 0 else [])):
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(timeout_s * 1000):
            if descriptor == self._server.fileno():
                self._accept()
            elif descriptor == wake:
                os.read(wake, 512)
            else:
                self._hear(descriptor)

    def assign(self, nodes: Mapping[int, Mapping[str, Any]]) -> None:
        """Send each node its part. The loss of one shows elsewhere."""
        for member in self._peers.values():
            if member.node is not None:
                member.error = ""
                with contextlib.suppress(OSError):
                    member.peer.sendall(json.dumps(nodes[member.node]).encode() + b"\n")

    def find_failed(self) -> dict[int, str]:
        """Return by node why its agent could not start, of those that said so."""
        return {
            member.node: member.error
            for member in self._peers.values()
            if member.node is not None and member.error
        }

    def is_there(self, node: int) -> bool:
        """Return whether a pod has that number."""
        return any(member.node == node for member in self._peers.values())

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        strangers = [number for number, member in self._peers.items() if not member.pod]
        if len(strangers) >= _MOST_STRANGERS + self.count:
            self._drop(strangers[0])
        peer.settimeout(5.0)
        channel.notice_power_cut(peer)
        self._peers[peer.fileno()] = JoinedPod(peer)

    def _hear(self, descriptor: int) -> None:
        member = self._peers.get(descriptor)
        if member is None:
            return
        try:
            data = member.peer.recv(1 << 16)
            messages = member.lines.feed(data) if data else None
        except (OSError, channel.ChannelError):
            messages = None
        if messages is None:
            self._drop(descriptor)
            return
        for message in messages:
            if message["type"] == "leaving":
                self._give_up_number(member)
            elif message["type"] == "failed":
                member.error = f"did not start: {message.get('error')}"
            elif not self._admit(member, message):
                self._drop(descriptor)
                return

    def _admit(self, member: JoinedPod, message: Mapping[str, Any]) -> bool:
        if message["type"] != "pod" or not channel.same_secret(self._token, message.get("token")):
            return False
        member.pod, member.host = str(message.get("pod")), str(message.get("host"))
        taken = {other.node for other in self._peers.values()}
        free = [number for number in range(self.count) if number not in taken]
        # One too many waits: another may be lost.
        member.node = free[0] if free else None
        return True

    def _drop(self, descriptor: int) -> None:
        member = self._peers.pop(descriptor)
        member.peer.close()
        self._give_up_number(member)

    def _give_up_number(self, member: JoinedPod) -> None:
        """Have a pod that waits take the number of one that is gone, or will be: its attempt is its last."""
        member.is_leaving = True
        if member.node is None:
            return
        spare = next((other for other in self._peers.values() if other.is_spare), None)
        if spare is not None:
            spare.node = member.node
        member.node = None

    def close(self) -> None:
        """Tell all pods that the job has ended, and let them go. May be called twice."""
        for member in self._peers.values():
            with contextlib.suppress(OSError):
                member.peer.sendall(b'{"type": "over"}\n')
            member.peer.close()
        self._peers.clear()
        self._server.close()
