"""
The process that checks a node for its agent, which meanwhile goes on: requests and answers are lines of JSON.

``facts``: gather them side by side, and listen for the other nodes. Each gatherer is a process with a deadline, so
that a hanging file system or name server costs its own facts alone. ``links``: connect to the other nodes, and measure
the links.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import FAILED, LATE
from drumline.checks.links import LinkFacts, Links
from drumline.checks.registry import GATHERERS
from drumline.contract.record import NamedTuple, describe_record
from drumline.linux import kernel

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterable, Mapping

    from drumline.checks.registry import Gatherer

_STARVED_SHARE = 0.1
"""Of the deadline, spent in waiting for a core, above which a gatherer that is late tells nothing."""

_NO_CORE = "it was not done in time, and did not wait for a disk or a server: the node's cores are busy"

_PATIENCE_S = 0.2
"""For all gatherers that were killed to end."""


class _Running(NamedTuple):
    name: str
    pid: int
    descriptor: int


def serve(peer: socket.socket, node: int, address: str) -> None:
    """Answer requests until the other end closes. Blocks. Raises OSError."""
    links = Links(node, address)
    with peer, peer.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            if request["part"] == "facts":
                answer = gather(GATHERERS, request["settings"], request["deadline_s"])
                # Late, so that it is as old as its message when that is read.
                answer |= {"clock": {"time": time.time()}, "links": {"port": links.port}}
            else:
                answer = describe_record(_connect(request, links))
            peer.sendall(json.dumps({"part": request["part"], "facts": answer}).encode() + b"\n")
    links.close()


def _connect(request: Mapping[str, Any], links: Links) -> LinkFacts:
    deadline = time.monotonic() + float(request["deadline_s"])
    places = {int(node): (str(place[0]), int(place[1])) for node, place in request["places"].items()}
    peers = {node: places[node] for node in request["peers"] if node in places}
    connected = links.connect_to_all(peers, request["connect_s"])
    reached = {one.node for one in connected if not one.error}
    rounds = [one if one in reached or one not in peers else -1 for one in request["rounds"]]
    began, waited = time.monotonic(), _read_wait_s()
    received = links.measure(rounds, places, deadline)
    waited = _read_wait_s() - waited
    # A process that had to wait for a core tells of that, and not of its links.
    busy = waited / max(time.monotonic() - began, 1e-3)
    return LinkFacts(connected, received, round(busy, 3))


def _read_wait_s() -> float:
    """Return the seconds that this process has waited for a core. Source: the kernel's sched-stats.rst."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def gather(
    names: Iterable[str],
    settings: Mapping[str, Any],
    deadline_s: float,
    gatherers: Mapping[str, Gatherer] = GATHERERS,
) -> dict[str, dict[str, Any]]:
    """Return the facts by group. Blocks until the deadline at most, and leaves no process but one the kernel holds."""
    deadline = time.monotonic() + deadline_s
    poller = select.poll()
    running: dict[int, _Running] = {}
    for name in names:
        one = _start(name, gatherers[name], settings)
        running[one.descriptor] = one
        poller.register(one.descriptor, select.POLLIN)
    texts: dict[str, bytes] = {one.name: b"" for one in running.values()}
    facts: dict[str, dict[str, Any]] = {}
    # Once more after the deadline: this process may have had no core when the answers came.
    while running and (ready := poller.poll(max(0.0, deadline - time.monotonic()) * 1000)):
        for descriptor, _ in ready:
            one = running[descriptor]
            data = os.read(descriptor, 1 << 16)
            texts[one.name] += data
            if not data:
                poller.unregister(descriptor)
                facts[one.name] = _decode(texts[one.name])
                _end([running.pop(descriptor)])
    for one in running.values():
        starved = _is_starved(one.pid, deadline_s)
        facts[one.name] = {FAILED: _NO_CORE} if starved else {LATE: deadline_s}
    _end(running.values())
    return facts


def _start(name: str, gather_group: Gatherer, settings: Mapping[str, Any]) -> _Running:
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_gatherer(gather_group, settings, writing, parent)
    os.close(writing)
    return _Running(name, pid, reading)


def _be_gatherer(gather_group: Gatherer, settings: Mapping[str, Any], writing: int, parent: int) -> None:
    """Gather one group in the forked child; never returns."""
    try:
        kernel.become_helper(parent, kept=writing)
        try:
            facts = describe_record(gather_group(settings))
        except Exception as error:  # noqa: BLE001 - a fact that cannot be had is told, and ends nothing
            facts = {FAILED: f"{type(error).__name__}: {error}"}
        with open(writing, "wb", closefd=False) as file:
            file.write(json.dumps(facts).encode())
    finally:
        os._exit(0)


def _decode(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {FAILED: "its process was killed"}
    return facts if isinstance(facts, dict) else {}


def _is_starved(pid: int, deadline_s: float) -> bool:
    """Return whether the process waited for a core, and not for a disk or a server. Source: sched-stats.rst."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            waited_s = int(file.read().split()[1]) / 1e9
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return False
    # The kernel adds up what is over: one that still waits for a core may have no other wait behind it.
    return state == "R" or waited_s > _STARVED_SHARE * deadline_s


def _end(ended: Collection[_Running]) -> None:
    """End what is left of gatherers and of the programs that they ran. One that the kernel holds is not waited for."""
    for one in ended:
        os.close(one.descriptor)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(one.pid, signal.SIGKILL)
    patience = time.monotonic() + _PATIENCE_S
    for one in ended:
        # An agent reaps all that ends below it.
        with contextlib.suppress(ChildProcessError):
            while not os.waitpid(one.pid, os.WNOHANG)[0] and time.monotonic() < patience:
                time.sleep(0.001)
