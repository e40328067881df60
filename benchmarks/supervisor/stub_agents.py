"""
Agents without ranks: one process speaks for many nodes, over the wire that real agents use.

    python stub_agents.py PORT FIRST LAST PROCS END TRIGGER <secret

``END`` says what the ranks do when the file ``TRIGGER`` is there: ``well``, ``cascade`` (rank 0 raises, all others lose
their connections to it) or ``lost`` (the agent of node 1 closes its connection). ``silent``: node 1 answers nothing but
its hello. At the end the times of what happened are printed as JSON, in monotonic seconds.
"""

import json
import os
import select
import socket
import sys
import time
from typing import Any

from drumline.contract import channel
from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.evidence import ExitEvidence

POLL_S = 0.01


class Stubs:
    def __init__(
        self, port: int, first: int, last: int, procs: int, end: str, trigger: str, secret: str
    ) -> None:
        self._procs = procs
        self._end = end
        self._trigger = trigger
        self._peers: dict[int, tuple[int, socket.socket]] = {}
        self._poller = select.epoll()
        self.times: dict[str, float] = {}
        self._rest: dict[int, bytes] = {}
        """By node, the beginning of a line."""

        self._waits = True
        self.bytes = 0
        for node in range(first, last):
            if node == first:
                self.times["hello"] = time.monotonic()
            peer = socket.create_connection(("127.0.0.1", port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[peer.fileno()] = (node, peer)
            self._poller.register(peer, select.EPOLLIN)
            address = f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}"
            names = {
                "name": "ib0",
                "address": address,
                "infiniband": True,
                "speed_mbps": 400_000,
                "virtual": False,
            }
            channel.send(
                peer,
                m.Hello(
                    secret, node, channel.compute_version(), channel.find_package(), os.getpid(), address, "cgroup",
                    host=f"node-{node:04d}", interfaces=[names], reached={"10.0.0.0": address}, machine=str(node),
                ),
            )  # fmt: skip

    def serve(self) -> None:
        """Serve until all connections are closed."""
        while self._peers:
            for descriptor, _ in self._poller.poll(POLL_S if self._waits else 1.0):
                self._hear(descriptor)
            if self._waits and "launched" in self.times and os.path.exists(self._trigger):
                self._waits = False
                self._end_ranks()

    def _hear(self, descriptor: int) -> None:
        node, peer = self._peers[descriptor]
        try:
            data = peer.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            return
        self.bytes += len(data)
        if self._end == "silent" and node == 1:
            return
        *whole, rest = (self._rest.pop(node, b"") + data).split(b"\n")
        if rest:
            self._rest[node] = rest
        for line in whole:
            # The longest is not read: it would cost the stubs more than it costs the supervisor.
            if line.startswith((b'{"type": "ShareVariables"', b'{"type": "Compressed"')):
                continue
            try:
                self._answer(node, peer, json.loads(line))
            except OSError:
                self._drop(descriptor)
                return

    def _drop(self, descriptor: int) -> None:
        if descriptor in self._peers:
            self._poller.unregister(descriptor)
            self._peers.pop(descriptor)[1].close()

    def _answer(self, node: int, peer: socket.socket, line: dict[str, Any]) -> None:
        kind, now = line["type"], time.monotonic()
        if kind == "PrepareNode":
            channel.send(peer, m.NodePrepared(dict.fromkeys(line["ports"], 20000), 20_001))
        elif kind == "ConnectToFirst":
            channel.send(peer, m.ConnectedToFirst(""))
        elif kind == "ReadClock":
            channel.send(peer, m.ClockRead(now))
        elif kind == "LaunchRanks":
            self.times["launched"] = now
            peer.sendall(
                b"".join(
                    channel.encode(e.RankStarted(now, rank, m.HERE, 1000 + rank))
                    for rank in self._ranks(node)
                )
            )
        elif kind == "PollProgress":
            ranks = [m.RankProgress(rank, 1, 1.0, 0, 0.0, 0, [], m.Activity()) for rank in self._ranks(node)]
            channel.send(peer, m.ProgressPolled(line["id"], ranks, 0.0, 0))
        elif kind == "InspectRanks":
            channel.send(
                peer, m.RanksInspected([m.RankInspection(rank, [], None) for rank in self._ranks(node)])
            )
        elif kind == "TerminateRanks" and self._end == "lost":
            peer.sendall(b"".join(channel.encode(self._ended(rank, 15)) for rank in self._ranks(node)))
        elif kind == "EmptyNode":
            channel.send(peer, m.NodeEmptied([]))

    def _ranks(self, node: int) -> range:
        return range(node * self._procs, (node + 1) * self._procs)

    def _end_ranks(self) -> None:
        for descriptor, (node, peer) in list(self._peers.items()):
            if self._end == "lost":
                if node == 1:
                    self.times["closed"] = time.monotonic()
                    self._drop(descriptor)
                continue
            peer.sendall(b"".join(channel.encode(self._ended(rank)) for rank in self._ranks(node)))
        self.times["ended"] = time.monotonic()

    def _ended(self, rank: int, signal: int | None = None) -> m.RankEnded:
        now = time.monotonic()
        if signal:
            return m.RankEnded(rank, None, signal, "", now, None)
        if self._end == "well":
            return m.RankEnded(rank, 0, None, "", now, ExitEvidence())
        kind, message = (
            "RuntimeError",
            "[../third_party/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
        )
        if rank == 0:
            kind, message = "ValueError", "loss is nan"
        failure = {
            "at": now - (1.0 if rank == 0 else 0.5), "type": kind, "message": message, "pid": 1000 + rank,
            "file": "train.py", "line": 88, "function": "step",
        }  # fmt: skip
        return m.RankEnded(rank, 1, None, "", now, ExitEvidence(failure=failure))  # type: ignore[arg-type]


def main() -> None:
    port, first, last, procs = map(int, sys.argv[1:5])
    stubs = Stubs(port, first, last, procs, sys.argv[5], sys.argv[6], sys.stdin.readline().strip())
    stubs.serve()
    print(json.dumps({**stubs.times, "bytes": stubs.bytes}))


if __name__ == "__main__":
    main()
