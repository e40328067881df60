"""
The network of isolated nodes while their job runs, and what can be done to it.

It consists of namespaces alone, which the supervisor and the nodes' processes keep by being there: no process carries
packets, and when the last process has ended nothing of it is left.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import batches, inside, needs, node_processes
from drumline.engines.local.isolation.settings import MASK, SUPERVISOR, Link, address_of, read_link
from drumline.linux import interfaces, limits, namespaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from drumline.engines.local.isolation.settings import Isolation
    from drumline.linux.limits import LimitGroups

_BACKLOG = 1024


class NodeNetwork:
    """
    The switch and the cables of one job's nodes. ``groups``: their control groups, by node, once those are chosen.

    Its functions are for the supervisor's main thread. They raise EngineError for what this machine cannot do.
    """

    def __init__(self, isolation: Isolation, node_count: int) -> None:
        self.isolation = isolation
        self.groups: dict[int, LimitGroups] = {}
        self.off: set[int] = set()
        """Nodes whose power was cut."""

        self.user: int | None = None
        """A descriptor of their user namespace; None: they are in this process's own."""

        self.networks: list[int] = []
        """Descriptors of their networks, by node."""

        self._node_count = node_count
        self._switch = -1
        self._bridge_count = 0

    def build(self) -> socket.socket:
        """Make switch and cables, in the place of earlier ones; return a socket that listens for the agents."""
        self.close()
        user, self._switch, server, *self.networks = inside.call_in_child(self._build_in_child)
        if os.fstat(user).st_ino == os.stat("/proc/self/ns/user").st_ino:
            os.close(user)
        else:
            self.user = user
        return socket.socket(fileno=server)

    def _build_in_child(self) -> Sequence[int]:
        inside.begin_namespaces()
        user, switch = (namespaces.open_namespace(kind) for kind in (namespaces.USER, namespaces.NETWORK))
        networks = []
        for _ in range(self._node_count):
            namespaces.unshare(namespaces.NETWORK)
            networks.append(namespaces.open_namespace(namespaces.NETWORK))
        namespaces.enter(switch, namespaces.NETWORK)
        link = self.isolation.link
        inside.run_batch("ip", batches.make_switch([f"/proc/self/fd/{one}" for one in networks]), networks)
        _answer_for_others()
        if link != Link():
            needs.check_delays(link, batches.port_of(0))
            self._shape_ports(link)
        for node, network in enumerate(networks):
            namespaces.enter(network, namespaces.NETWORK)
            interfaces.set_up("lo")
            interfaces.set_address(batches.CARD, address_of(node), MASK)
            interfaces.set_up(batches.CARD)
            interfaces.set_gateway(SUPERVISOR)
            if link != Link():
                inside.run_batch("tc", batches.shape_card(link))
        namespaces.enter(switch, namespaces.NETWORK)
        server = socket.create_server((SUPERVISOR, 0), backlog=_BACKLOG)
        return [user, switch, server.detach(), *networks]

    def _shape_ports(self, link: Link) -> None:
        lines = [line for node in range(self._node_count) for line in batches.shape_port(node, link)]
        inside.run_batch("tc", lines)

    def close(self) -> None:
        """Let go of it. Processes that are still in it keep their part."""
        for descriptor in (self.user, self._switch, *self.networks):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self.user, self._switch, self.networks = None, -1, []
        self._bridge_count = 0
        self.off.clear()

    # What drills do.

    def cut_power(self, node: int) -> None:
        """Cut the node's cable, then kill all that runs on it: nobody gets a word of farewell, and it stays off."""
        if node in self.off:
            return
        self._tell_switch(batches.cut_cable(node))
        self.off.add(node)
        node_processes.kill_all(self.networks[node])

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """
        Part the network: nodes reach those of their own group alone. The nodes in no group form one more, and that
        has the supervisor; where every node is in a group, nobody reaches the supervisor.
        """
        there = set(range(self._node_count)) - self.off
        inside_groups = [set(group) & there for group in groups]
        self._tell_switch(batches.part(self._bridge_count, inside_groups, there))
        self._bridge_count = max(self._bridge_count, len(groups))

    def heal(self) -> None:
        """Undo ``partition``."""
        self.partition(())

    def set_link(self, node: int, rate: str = "", latency: str = "", loss: str = "") -> None:
        """Give a node's link these values, as a compute's YAML has them; all empty: those of the compute again."""
        wanted = self.isolation.link
        if rate or latency or loss:
            try:
                wanted = read_link({"link": {"rate": rate, "latency": latency, "loss": loss}})
            except ValueError as error:
                raise EngineError(
                    f"{error} is no rate, latency or loss", "such as 100mbit, 5ms, 1%"
                ) from error

        def shape() -> Sequence[int]:
            inside.enter_network(self.user, self._switch)
            needs.check_delays(wanted, batches.port_of(node))
            inside.run_batch("tc", batches.shape_port(node, wanted))
            namespaces.enter(self.networks[node], namespaces.NETWORK)
            inside.run_batch("tc", batches.shape_card(wanted))
            return ()

        inside.call_in_child(shape)

    def set_cpus(self, node: int, count: float | None = None) -> None:
        """Limit the node to the time of so many processors; None: back to what the compute says."""
        wanted = self.isolation.cpus if count is None else count
        groups = self.groups.get(node)
        if groups is None or not groups.cpu:
            raise EngineError(
                "processor time of a node cannot be limited: no control group for it is yours here"
            )
        with _explain_errors("limit processor time"):
            limits.limit_cpus(groups, wanted)

    def set_memory(self, node: int, size_bytes: int | None = None) -> None:
        """Limit the node's memory; None: back to what the compute says."""
        wanted = self.isolation.memory_bytes if size_bytes is None else size_bytes
        groups = self.groups.get(node)
        if groups is None or not groups.memory:
            raise EngineError("memory of a node cannot be limited: no control group for it is yours here")
        with _explain_errors("limit memory"):
            limits.limit_memory(groups, wanted)

    def _tell_switch(self, lines: Sequence[str]) -> None:
        def tell() -> Sequence[int]:
            inside.enter_network(self.user, self._switch)
            inside.run_batch("ip", lines)
            return ()

        inside.call_in_child(tell)


def _answer_for_others() -> None:
    """Have the switch answer at once that there is no way to other networks: without a router, programs wait."""
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1")


@contextlib.contextmanager
def _explain_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"could not {what}: {error.strerror}") from error
