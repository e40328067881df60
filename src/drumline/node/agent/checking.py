"""The agent's side of the checks before the ranks start: a process of its own does them (``checks/checker.py``)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING, Any

from drumline.checks import checker
from drumline.contract import messages as m
from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        self._pid = _start_checker(other, node, address)
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


def _start_checker(peer: socket.socket, node: int, address: str) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_checker(peer, node, address, parent)
    return pid


def _be_checker(peer: socket.socket, node: int, address: str, parent: int) -> None:
    """Check the node in the forked child; never returns."""
    code = 1
    try:
        kernel.become_helper(parent, kept=peer.fileno())
        signal.alarm(_LIFE_S)
        checker.serve(peer, node, address)
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
