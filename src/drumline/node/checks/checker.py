"""
The process that checks a node for its agent, which meanwhile goes on: requests and answers are lines of JSON.

``facts``: gather them, and listen for the other nodes. ``links``: connect to those, and measure the links.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from drumline.node.checks import gathering
from drumline.node.checks.links import Links

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping


def serve(peer: socket.socket, node: int, address: str) -> None:
    """Answer requests until the other end closes. Blocks. Raises OSError."""
    links = Links(node, address)
    with peer, peer.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            answer = _gather(request, links) if request["part"] == "facts" else _connect(request, links)
            peer.sendall(json.dumps({"part": request["part"], "facts": answer}).encode() + b"\n")
    links.close()


def _gather(request: Mapping[str, Any], links: Links) -> dict[str, Any]:
    facts = gathering.gather(gathering.GATHERERS, request["settings"], request["deadline_s"])
    # Late, so that it is as old as its message when that is read.
    return {**facts, "clock": {"time": time.time()}, "links": {"port": links.port}}


def _connect(request: Mapping[str, Any], links: Links) -> dict[str, Any]:
    deadline = time.monotonic() + float(request["deadline_s"])
    places = {int(node): (str(place[0]), int(place[1])) for node, place in request["places"].items()}
    peers = {node: places[node] for node in request["peers"] if node in places}
    connected = links.connect_to_all(peers, request["connect_s"])
    reached = {one["node"] for one in connected if not one["error"]}
    rounds = [one if one in reached or one not in peers else -1 for one in request["rounds"]]
    began, waited = time.monotonic(), _read_wait_s()
    received = links.measure(rounds, places, deadline)
    waited = _read_wait_s() - waited
    # A process that had to wait for a core tells of that, and not of its links.
    busy = waited / max(time.monotonic() - began, 1e-3)
    return {"connected": connected, "received": received, "busy": round(busy, 3)}


def _read_wait_s() -> float:
    """Return the seconds that this process has waited for a core. Source: the kernel's sched-stats.rst."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
