"""
One agent per node: it does what the supervisor says and tells what it sees. It decides one thing by itself:
when the supervisor is gone, its ranks end.

supervisor says                 agent answers
prepare  ports, probe           prepared  ports, probe_port
reach    address, port          reached   error
start    ranks, cwd, ...        started   rank, pid, at   then  exited  rank, code, signal, error, at
terminate / kill                (exited, as it happens)
empty    grace_s                emptied   survivors
leave                           (ends)

``at`` is seconds on this machine's monotonic clock.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import Any

from drumline.contract import channel
from drumline.node import descendants, kernel, ports, processes, scratch

ORPHAN_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when the supervisor is gone: nobody is left to wait for."""

_REACH_TIMEOUT_S = 10.0
_IDLE_S = 1.0


class Agent:
    """``scratch``: this node's own folder for temporary files, removed at the end; empty for none."""

    def __init__(self, peer: socket.socket, node: int, address: str, scratch: str = "") -> None:
        self._peer = peer
        self._node = node
        self._address = address
        self._scratch = scratch
        self._lines = channel.Lines()
        self._poller = select.poll()
        self._ranks: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}
        self._errors: dict[int, str] = {}
        self._leases: list[socket.socket] = []
        self._probe: socket.socket | None = None

    def run(self, secret: str) -> None:
        """Serve until told to leave, or until the supervisor is gone. Nothing of the node is left afterwards."""
        kernel.adopt_orphans()
        ended = _readable_on_sigterm()
        self._poller.register(ended, select.POLLIN)
        self._poller.register(self._peer, select.POLLIN)
        try:
            channel.send(
                self._peer, "hello", secret=secret, node=self._node, pid=os.getpid(), address=self._address
            )
            while self._serve(ended):
                pass
        except (OSError, channel.ChannelError) as error:
            print(f"node {self._node}: the supervisor is gone ({error})", file=sys.stderr)
        finally:
            descendants.end_all(ORPHAN_GRACE_S)
            self._remove_scratch()

    def _serve(self, ended: int) -> bool:
        ready = {descriptor for descriptor, _ in self._poller.poll(_IDLE_S * 1000)}
        # Exits first: a rank that failed is told before anything that was asked for since.
        self._tell_exits()
        if ended in ready:
            channel.send(self._peer, "leaving", reason="it was sent SIGTERM")
            return False
        if self._peer.fileno() in ready:
            data = self._peer.recv(1 << 16)
            if not data:
                raise ConnectionError("end of file")
            for message in self._lines.feed(data):
                if message["type"] == "leave" or not self._obey(message):
                    return False
        return True

    def _obey(self, message: dict[str, Any]) -> bool:
        """Do one thing; False when that failed for want of something on this node, which the supervisor is told."""
        try:
            getattr(self, f"_do_{message['type']}")(message)
        except ConnectionError:
            raise
        except OSError as error:
            channel.send(self._peer, "leaving", reason=f"{message['type']} failed: {error.strerror or error}")
            return False
        return True

    def _do_prepare(self, message: dict[str, Any]) -> None:
        leased = {}
        for name in message["ports"]:
            leased[name], lease = ports.lease(self._address)
            self._leases.append(lease)
        if message["probe"]:
            self._probe = socket.create_server((self._address, 0), backlog=1024)
        probe_port = self._probe.getsockname()[1] if self._probe else 0
        channel.send(self._peer, "prepared", ports=leased, probe_port=probe_port)

    def _do_reach(self, message: dict[str, Any]) -> None:
        error = ""
        try:
            socket.create_connection((message["address"], message["port"]), _REACH_TIMEOUT_S).close()
        except OSError as failure:
            error = str(failure)
        channel.send(self._peer, "reached", error=error)

    def _do_start(self, message: dict[str, Any]) -> None:
        if self._probe:
            self._probe.close()
        surroundings = _without(message["unset"])
        if self._scratch:
            surroundings["TMPDIR"] = self._scratch
        started = []
        for task in message["ranks"]:
            process = processes.start(
                task["argv"],
                env={**surroundings, **task["env"]},
                cwd=message["cwd"],
                log=task["log"],
                cores=message["cores"],
            )
            at = time.monotonic()
            self._watch(process.pid, task["rank"])
            started.append(process)
            channel.send(self._peer, "started", rank=task["rank"], pid=process.pid, at=at)
        for process in started:
            error = process.error()
            if error:
                self._errors[process.pid] = error
        self._tell_exits()

    def _watch(self, pid: int, rank: int) -> None:
        self._ranks[pid] = rank
        self._pidfds[pid] = os.pidfd_open(pid)
        self._poller.register(self._pidfds[pid], select.POLLIN)

    def _tell_exits(self) -> None:
        at = time.monotonic()
        for pid, wait_status in descendants.reap():
            self._tell_exit(pid, wait_status, at)

    def _tell_exit(self, pid: int, wait_status: int, at: float) -> None:
        rank = self._ranks.pop(pid, None)
        if rank is None:
            return  # An orphan of a rank, adopted by us.
        pidfd = self._pidfds.pop(pid)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(wait_status)
        channel.send(
            self._peer,
            "exited",
            rank=rank,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            error=self._errors.pop(pid, ""),
            at=at,
        )

    def _do_terminate(self, _message: dict[str, Any]) -> None:
        descendants.signal_all(signal.SIGTERM)

    def _do_kill(self, _message: dict[str, Any]) -> None:
        descendants.signal_all(signal.SIGKILL)

    def _do_empty(self, message: dict[str, Any]) -> None:
        ended, survivors = descendants.end_all(message["grace_s"])
        at = time.monotonic()
        for pid, wait_status in ended:
            self._tell_exit(pid, wait_status, at)
        self._remove_scratch()
        channel.send(self._peer, "emptied", survivors=survivors)

    def _remove_scratch(self) -> None:
        scratch.remove(self._scratch)


def _without(unset: list[str]) -> dict[str, str]:
    """The surroundings less the variables named; a name that ends in ``*`` stands for all that begin so."""
    exact = {name for name in unset if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in unset if name.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name not in exact and not (prefixes and name.startswith(prefixes))
    }


def _readable_on_sigterm() -> int:
    """A descriptor that becomes readable when this process is sent SIGTERM; SIGINT and SIGHUP are ignored."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reader


def serve(address: tuple[str, int], secret: str, node: int, own_address: str, scratch: str = "") -> None:
    """Connect to the supervisor and serve it. Raises OSError when it cannot be reached. Blocks until the job's end."""
    with socket.create_connection(address, timeout=30.0) as peer:
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Agent(peer, node, own_address, scratch).run(secret)
