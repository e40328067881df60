"""
Carries the packets of nodes whose link is late or loses some, where the kernel lacks netem: one process for a job.

It shows how a program behaves on such a link. Its times are no figures: it waits its turn like any process.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import random
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.linux import kernel

if TYPE_CHECKING:
    from typing import Any

    from drumline.engines.local.isolation.isolation_settings import Link


# Packets that are late or lost: the work of the process that carries them.
#
# It has packet sockets at both ends of a gap in a node's cable, and nothing else: no right, and no namespace of its
# own.

_PACKET, _WITH_HEADER = 263, 15
"""
SOL_PACKET and PACKET_VNET_HDR, by which large packets are handed on whole, and checksums left to the last card.

Source: packet(7), and if_packet.h of the kernel.
"""

_ALL_KINDS, _OUTGOING, _FORCED_BUFFER = 0x0003, 4, 33
"""ETH_P_ALL, PACKET_OUTGOING and SO_RCVBUFFORCE."""

_BUFFER_BYTES = 8 << 20
_LARGEST_BYTES = 1 << 18
_MOST_WAITING_BYTES = 64 << 20
_MOST_AT_ONCE = 64
_LONGEST_MESSAGE_BYTES = 4096
_IDLE_S = 60.0


def open_sockets(*devices: str) -> list[int]:
    """Return descriptors that take and send all packets of these devices of this process's network. Raises OSError."""
    found = []
    for device in devices:
        # Of no kind of packet until it is bound: else it would take those of every device.
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setblocking(False)
        opened.setsockopt(_PACKET, _WITH_HEADER, 1)
        for option in (socket.SO_RCVBUF, _FORCED_BUFFER):
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        opened.bind((device, _ALL_KINDS))
        found.append(opened.detach())
    return found


class _Line:
    """The link of one node. As with netem on its card, what it sends is late or lost, and what it is sent is not."""

    def __init__(self, node: int, near: int, far: int) -> None:
        self.near = socket.socket(fileno=near)
        self.far = socket.socket(fileno=far)
        self.delay_s = 0.0
        self.loss = 0.0
        # The same packets of a node are lost each time, as far as it sends them in the same order.
        self.chance = random.Random(node)  # noqa: S311 - no secret

    @property
    def ends(self) -> tuple[socket.socket, socket.socket]:
        return self.near, self.far


class PacketSwitch:
    """Carries packets, and is told by ``control`` of which nodes and how: see ``carrier``."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._lines: dict[int, _Line] = {}
        """By node."""

        self._sources: dict[int, _Line] = {}
        """By the descriptors of both ends."""

        self._waiting: list[tuple[float, int, _Line, bytes]] = []
        self._waiting_bytes = 0
        self._count = 0

    def run(self) -> None:
        """Carry packets until the other end of ``control`` is closed."""
        while True:
            patience_s = self._waiting[0][0] - time.monotonic() if self._waiting else _IDLE_S
            for descriptor, _ in self._poller.poll(max(0.0, patience_s) * 1000):
                if descriptor in self._sources:
                    self._take_packets(self._sources[descriptor], descriptor)
                elif descriptor == self._control.fileno() and not self._take_message():
                    return
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, line, data = heapq.heappop(self._waiting)
                self._waiting_bytes -= len(data)
                _send(line.far, data)

    def _take_message(self) -> bool:
        """Return False where there will be no more."""
        data, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_MESSAGE_BYTES, 2)
        if not data:
            return False
        message = json.loads(data)
        node = message["node"]
        if descriptors or "delay_s" not in message:
            self._let_go(node)
        if descriptors:
            self._lines[node] = line = _Line(node, *descriptors)
            for end in line.ends:
                self._sources[end.fileno()] = line
                self._poller.register(end, select.POLLIN)
        if node in self._lines and "delay_s" in message:
            self._lines[node].delay_s = message["delay_s"]
            self._lines[node].loss = message["loss"]
        return True

    def _let_go(self, node: int) -> None:
        line = self._lines.pop(node, None)
        if line is None:
            return
        for end in line.ends:
            if self._sources.pop(end.fileno(), None) is not None:
                self._poller.unregister(end)
            end.close()

    def _take_packets(self, line: _Line, descriptor: int) -> None:
        source, target = line.ends if descriptor == line.near.fileno() else (line.far, line.near)
        for _ in range(_MOST_AT_ONCE):
            try:
                data, address = source.recvfrom(_LARGEST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                # Its device is gone: the node is off.
                self._poller.unregister(descriptor)
                del self._sources[descriptor]
                return
            if address[2] == _OUTGOING:
                continue
            if source is line.far:
                _send(target, data)
            elif not (line.loss and line.chance.random() < line.loss):
                self._hold_back(line, data)

    def _hold_back(self, line: _Line, data: bytes) -> None:
        if self._waiting_bytes + len(data) > _MOST_WAITING_BYTES:
            return
        self._waiting_bytes += len(data)
        self._count += 1
        heapq.heappush(self._waiting, (time.monotonic() + line.delay_s, self._count, line, data))


def _send(target: socket.socket, data: bytes) -> None:
    """Send a packet. One that finds no room is lost, as on any network."""
    with contextlib.suppress(OSError):
        target.send(data)


NOTE = "behaviour, not figures: the kernel lacks netem, so a process delays and loses packets"


class Carrier:
    """The process, from its parent's side. For the main thread: the process ends with the thread that made it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _be_carrier(theirs, parent)
        theirs.close()
        self._pidfd = os.pidfd_open(self.pid)
        self._end = ""

    def carry(self, node: int, link: Link, sockets: list[int]) -> None:
        """
        Carry a node's packets as its link has it. ``sockets``: of ``open_sockets``, at its own end of the cable
        and at the others', of which this process keeps none; empty: the packets are carried already. Raises
        EngineError.
        """
        told = {
            "node": node,
            "delay_s": (link.latency_ms or 0) / 1e3,
            "loss": (link.loss_percent or 0) / 100,
        }
        try:
            self._tell(told, sockets)
        finally:
            for one in sockets:
                os.close(one)

    def let_go(self, node: int) -> None:
        """Carry a node's packets no more. No error where the process is gone."""
        with contextlib.suppress(EngineError):
            self._tell({"node": node}, [])

    def _tell(self, what: dict[str, Any], descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(what).encode()], descriptors)
        except OSError as error:
            raise EngineError(f"the process that delays packets {self.explain_end() or 'is gone'}") from error

    def explain_end(self) -> str:
        """Return how the process has ended: ``was killed by SIGKILL``; empty: it is there."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        if not self._end and poller.poll(0):
            self._end = self._reap()
        return self._end

    def _reap(self) -> str:
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return "has ended"
        if code >= 0:
            return f"has ended with exit code {code}"
        names = {one.value: one.name for one in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"

    def close(self) -> None:
        """End the process, and wait for that."""
        if not self._end:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._end = self._reap()
        self._control.close()
        os.close(self._pidfd)


def _be_carrier(control: socket.socket, parent: int) -> None:
    """Be the process; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        kernel.become_helper(parent, control.fileno())
        kernel.set_process_name("drumline-switch")
        PacketSwitch(control).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
