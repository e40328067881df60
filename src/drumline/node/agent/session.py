"""The agent's end of the channel to its supervisor."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from drumline.contract import channel
from drumline.contract import messages as m

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence


class Session:
    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self.may_leave = False
        """Whether the supervisor has said so."""

        self._lines = channel.Lines()

    def register(self, poller: select.epoll) -> None:
        poller.register(self._peer, select.EPOLLIN)

    def tell(self, message: m.FromAgent) -> None:
        """Send the supervisor a message. Raises OSError when the supervisor is gone."""
        m.send(self._peer, message)

    def receive(self, ready: Sequence[int]) -> Iterable[m.ToAgent]:
        """Return what the supervisor has said, if its descriptor is ready. Raises OSError, ChannelError."""
        if self._peer.fileno() not in ready:
            return ()
        data = self._peer.recv(1 << 16)
        if not data:
            raise ConnectionError("end of file")
        return map(m.decode_for_agent, self._lines.feed(data))

    def is_waiting(self) -> bool:
        """Return whether the supervisor has more to say."""
        return bool(select.select([self._peer], [], [], 0)[0])
