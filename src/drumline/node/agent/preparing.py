"""The preparation of a node, before its ranks start: leased ports, a try to reach the first node, and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.linux.ports import NodePorts

if TYPE_CHECKING:
    import select
    from collections.abc import Callable, Sequence

    from drumline.node.agent.checking import Checking

_REACH_TIMEOUT_S = 10.0


class Preparation:
    """
    The preparation of a node. ``address``: its own, where the supervisor names no other. ``tell`` sends a message to
    the supervisor, and raises OSError when that is gone.
    """

    def __init__(
        self, node: int, address: str, poller: select.epoll, tell: Callable[[m.FromAgent], None]
    ) -> None:
        self._node = node
        self.address = address
        """By which other nodes reach this one."""

        self._poller = poller
        self._tell = tell
        self._ports = NodePorts()
        self._checking: Checking | None = None

    def open_ports(self, message: m.PrepareNode) -> m.NodePrepared:
        """Lease the ports of ranks, open the probe where one is wanted, and return the answer. Raises OSError."""
        self.address = message.address or self.address
        leased = self._ports.lease_all(message.ports, self.address)
        return m.NodePrepared(leased, self._ports.open_probe(self.address) if message.wants_probe else 0)

    def connect_to_first(self, message: m.ConnectToFirst) -> None:
        """Try whether this node reaches the first one. Blocks, for a few seconds at most."""
        error = ""
        try:
            channel.connect_to((message.address, message.port), _REACH_TIMEOUT_S).close()
        except OSError as failure:
            error = str(failure)
        self._tell(m.ConnectedToFirst(error))

    def check(self, message: m.CheckNode) -> None:
        """Start the checker of this node. Raises OSError."""
        # Few jobs have nodes that differ.
        from drumline.node.agent.checking import Checking

        self._checking = Checking(self._node, message.address, self._poller, self._tell)
        self._checking.ask("facts", message._asdict())

    def check_links(self, message: m.CheckLinks) -> None:
        """Have the checker try the links to other nodes."""
        if self._checking:
            self._checking.ask("links", message._asdict())

    def hear(self, ready: Sequence[int]) -> None:
        """Pass the checker's answers on. ``ready``: descriptors."""
        if self._checking:
            self._checking.hear(ready)

    def end(self) -> None:
        """Close the probe and end the checker: the ranks start. Their ports stay leased."""
        self._ports.close_probe()
        if self._checking:
            self._checking.end()
