"""The preparation of a node, before its ranks start: leased ports, a try to reach the first node, and checks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING, Any

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.linux import kernel
from drumline.linux.ports import NodePorts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


# the checks before the ranks start: a process of its own does them (``checks/checker.py``)


_LIFE_S = 20
"""After which a checker that nobody ended ends itself."""


class Checking:
    """The checker of a node. ``address``: the node's own on the network of the ranks."""

    def __init__(
        self, node: int, address: str, poller: select.epoll, tell: Callable[[m.FromAgent], None]
    ) -> None:
        self._poller = poller
        self._tell = tell
        self._text = b""
        self._peer, other = socket.socketpair()
        agent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _be_checker(other, node, address, agent)
        other.close()
        self._descriptor = self._peer.fileno()
        poller.register(self._descriptor, select.EPOLLIN)

    def ask(self, part: str, request: Mapping[str, Any]) -> None:
        """Pass a request on; one that has ended answers nothing more."""
        with contextlib.suppress(OSError):
            self._peer.sendall(json.dumps({"part": part, **request}).encode() + b"\n")

    def hear(self, ready: Sequence[int]) -> None:
        """Pass answers on to the supervisor. Raises OSError when that is gone."""
        if self._descriptor < 0 or self._descriptor not in ready:
            return
        try:
            data = self._peer.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self._tell(m.NodeChecked(answer["part"], answer["facts"]))

    def end(self) -> None:
        """End the checker with what it has started."""
        if self._descriptor < 0:
            return
        self._poller.unregister(self._descriptor)
        self._descriptor = -1
        self._peer.close()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)


def _be_checker(peer: socket.socket, node: int, address: str, parent: int) -> None:
    """Check the node in the forked child; never returns."""
    code = 1
    try:
        # Few jobs have nodes that differ.
        from drumline.checks import checker

        kernel.become_helper(parent, kept=peer.fileno())
        signal.alarm(_LIFE_S)
        checker.serve(peer, node, address)
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
