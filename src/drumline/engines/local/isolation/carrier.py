"""
Carries the packets of nodes whose link is late or loses some, where the kernel lacks netem: one process for a job.

It shows how a program behaves on such a link. Its times are no figures: it waits its turn like any process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import packets
from drumline.linux import kernel

if TYPE_CHECKING:
    from typing import Any

    from drumline.engines.local.isolation.settings import Link

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
        Carry a node's packets as its link has it. ``sockets``: of ``packets.open_sockets``, at its own end of the cable
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
        packets.PacketSwitch(control).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
