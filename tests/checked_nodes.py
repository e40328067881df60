"""
Isolated nodes that are checked without a job: the checker of each runs where its agent would, and a test may spoil a
node before. They need root, or user namespaces.
"""

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from isolated_nodes import skip_without

from drumline.checks import checker, registry
from drumline.checks.findings import Finding, NodeDemand, NodeReport
from drumline.checks.links import plan_peers, plan_rounds
from drumline.engines.local.isolation import isolated_agents
from drumline.engines.local.isolation.isolation_settings import address_of, read_isolation
from drumline.engines.local.isolation.node_network import NodeNetwork
from drumline.linux import kernel
from drumline.linux.limits import LimitGroups

_FACTS_S = 60.0
_CONNECT_S = 2.0
_LINKS_S = 30.0


class _Checker(NamedTuple):
    pid: int
    peer: socket.socket
    answers: Any

    def ask(self, **request: Any) -> None:
        self.peer.sendall(json.dumps(request).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        line = self.answers.readline()
        assert line, "the checker has ended"
        return dict(json.loads(line)["facts"])


class CheckedNodes:
    """``network``: theirs, whose links a test may change. ``reports``: the facts of the last ``check``."""

    def __init__(self, network: NodeNetwork, checkers: Sequence[_Checker]) -> None:
        self.network = network
        self._checkers = checkers
        self.reports: list[NodeReport] = []

    def check(
        self, settings: Mapping[int, Mapping[str, Any]] | None = None, demand: NodeDemand | None = None
    ) -> list[Finding]:
        """
        Gather facts as a supervisor does, but for the clocks, and return what is wrong. ``settings``: of a node, over
        the usual ones; None: connections and links alone.
        """
        count = len(self._checkers)
        groups = registry.list_groups() if settings is not None else []
        for node, one in enumerate(self._checkers):
            others = [other for other in range(count) if other != node]
            usual = {
                "address": address_of(node),
                "addresses": [address_of(other) for other in others],
                "host_names": [self.network.isolation.host(other) for other in others],
                "path": os.environ["PATH"],
            }
            own = {**usual, **(settings or {}).get(node, {})}
            one.ask(part="facts", groups=groups, settings=own, deadline_s=_FACTS_S)
        facts = [one.read() for one in self._checkers]
        places = {str(node): [address_of(node), one["links"]["port"]] for node, one in enumerate(facts)}
        peers, rounds = plan_peers(count), plan_rounds(count)
        for node, one in enumerate(self._checkers):
            asked = {"places": places, "peers": peers[node], "rounds": rounds[node]}
            one.ask(part="links", **asked, connect_s=_CONNECT_S, deadline_s=_LINKS_S)
        links = [one.read() for one in self._checkers]
        hosts = [self.network.isolation.host(node) for node in range(count)]
        self.reports = [
            NodeReport(
                node, hosts[node], {**facts[node], "connections": links[node]}, demand=demand or NodeDemand()
            )
            for node in range(count)
        ]
        found = registry.judge_all(self.reports)
        return [one for one in found if one.status != "ok"]


@contextlib.contextmanager
def open_nodes(
    count: int, spoil: Mapping[int, Callable[[], object]] | None = None, **settings: Any
) -> Iterator[CheckedNodes]:
    """Begin nodes with a checker each. ``spoil``: by node, what its checker does first, as the root of that node."""
    skip_without(**settings)
    isolation = read_isolation({"name": "lab", "isolation": "namespace", **settings})
    assert isolation is not None
    network = NodeNetwork(isolation, count)
    checkers: list[_Checker] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            network.build().close()
            for node in range(count):
                network.groups[node] = LimitGroups()
                place = os.path.join(folder, f"n{node}")
                os.mkdir(place, 0o700)
                checkers.append(_start(network, node, place, (spoil or {}).get(node)))
            yield CheckedNodes(network, checkers)
        finally:
            for one in checkers:
                one.answers.close()
                one.peer.close()
                os.kill(one.pid, signal.SIGKILL)
                os.waitpid(one.pid, 0)
            network.close()


def _start(network: NodeNetwork, node: int, folder: str, spoil: Callable[[], object] | None) -> _Checker:
    ours, theirs = socket.socketpair()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _be_node(network, node, folder, spoil, theirs, parent)
    theirs.close()
    return _Checker(pid, ours, ours.makefile("rb"))


def _be_node(
    network: NodeNetwork,
    node: int,
    folder: str,
    spoil: Callable[[], object] | None,
    peer: socket.socket,
    parent: int,
) -> None:
    """Never returns."""
    try:
        os.environ["TMPDIR"] = isolated_agents.enter_node(network, node, folder)
        if spoil is not None:
            spoil()
        kernel.die_with_parent(signal.SIGKILL, parent)
        checker.serve(peer, node, address_of(node))
    except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)
