"""
The network of isolated nodes while their job runs, and what can be done to it.

It consists of namespaces, which the supervisor and the nodes' processes keep by being there: when the last process has
ended nothing of it is left. A process carries packets only where the kernel cannot delay them (``carrier``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import batches, carrier, inside, needs
from drumline.engines.local.isolation.carrier import NOTE, Carrier
from drumline.engines.local.isolation.isolation_settings import MASK, SUPERVISOR, Link, address_of, read_link
from drumline.linux import interfaces, limits, namespaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from drumline.engines.local.isolation.isolation_settings import Isolation
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
        self._bridges: dict[int, str] = {}
        """By node, of those that are cut off from the supervisor's."""

        self._carrier: Carrier | None = None
        self._carried: set[int] = set()
        """The nodes whose packets that process carries."""

    def build(self) -> socket.socket:
        """Make switch and cables, in the place of earlier ones; return a socket that listens for the agents."""
        self.close()
        link = self.isolation.link
        shaped = self._leave_to_kernel(link)
        made = inside.call_in_child(lambda: self._build_in_child(shaped))
        user, self._switch, server, *self.networks = made
        if os.fstat(user).st_ino == os.stat("/proc/self/ns/user").st_ino:
            os.close(user)
        else:
            self.user = user
        listening = socket.socket(fileno=server)
        if shaped != link:
            try:
                self._carry(dict.fromkeys(range(self._node_count), link))
            except BaseException:
                listening.close()
                raise
        return listening

    @functools.cached_property
    def _has_netem(self) -> bool:
        return needs.has_netem()

    def _leave_to_kernel(self, link: Link) -> Link:
        """Return what of a link the kernel does."""
        if not link.needs_delays or self._has_netem:
            return link
        return link._replace(latency_ms=None, loss_percent=None)

    def _build_in_child(self, link: Link) -> Sequence[int]:
        inside.begin_namespaces()
        user, switch = (namespaces.open_namespace(kind) for kind in (namespaces.USER, namespaces.NETWORK))
        networks = []
        for _ in range(self._node_count):
            namespaces.unshare(namespaces.NETWORK)
            networks.append(namespaces.open_namespace(namespaces.NETWORK))
        namespaces.enter(switch, namespaces.NETWORK)
        inside.run_batch("ip", batches.make_switch([f"/proc/self/fd/{one}" for one in networks]), networks)
        # The switch answers at once that there is no way to other networks: without a router, programs wait.
        with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_forward", "w") as file:
            file.write("1")
        if link != Link():
            needs.check_link(link, batches.port_of(0))
            lines = [line for node in range(self._node_count) for line in batches.shape_port(node, link)]
            inside.run_batch("tc", lines)
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

    def close(self) -> None:
        """Let go of it. Processes that are still in it keep their part."""
        self._end_carrier()
        for descriptor in (self.user, self._switch, *self.networks):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self.user, self._switch, self.networks = None, -1, []
        self._bridge_count = 0
        self._bridges.clear()
        self.off.clear()

    # What drills do.

    def cut_power(self, node: int) -> None:
        """Cut the node's cable, then kill all that runs on it: nobody gets a word of farewell, and it stays off."""
        if node in self.off:
            return
        self._tell_switch(batches.cut_cable(node))
        self.off.add(node)
        self._carried.discard(node)
        kill_all(self.networks[node])

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """
        Part the network: nodes reach those of their own group alone. The nodes in no group form one more, and that
        has the supervisor; where every node is in a group, nobody reaches the supervisor.
        """
        there = set(range(self._node_count)) - self.off
        inside_groups = [set(group) & there for group in groups]
        ends = {
            node: batches.name_gap(node)[0] if node in self._carried else batches.port_of(node)
            for node in there
        }
        self._tell_switch(batches.part(self._bridge_count, inside_groups, ends))
        self._bridge_count = max(self._bridge_count, len(groups))
        self._bridges = batches.find_bridges(inside_groups)

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

        shaped = self._leave_to_kernel(wanted)

        def shape() -> Sequence[int]:
            inside.enter_network(self.user, self._switch)
            needs.check_link(shaped, batches.port_of(node))
            inside.run_batch("tc", batches.shape_port(node, shaped))
            namespaces.enter(self.networks[node], namespaces.NETWORK)
            inside.run_batch("tc", batches.shape_card(shaped))
            return ()

        inside.call_in_child(shape)
        if shaped != wanted:
            self._carry({node: wanted})
        elif node in self._carried:
            self._let_go([node])

    def explain_delays(self) -> str:
        try:
            return "" if self._has_netem else NOTE
        except EngineError:
            return ""

    def find_cut_off(self) -> tuple[list[int], str]:
        """
        Return the nodes whose packets nobody carries any more, and why. They are reached again afterwards, without
        delays, to be told that it is over.
        """
        why = self._carrier.explain_end() if self._carrier is not None and self._carried else ""
        if not why:
            return [], ""
        nodes = sorted(self._carried)
        with contextlib.suppress(EngineError):
            self._let_go(nodes)
        self._carried.clear()
        return nodes, f"lost its network: the process that delays its packets {why}"

    def _carry(self, links: Mapping[int, Link]) -> None:
        """Have packets of these nodes carried as their links have it."""
        if self._carrier is not None and self._carrier.explain_end():
            self._end_carrier()
        self._carrier = self._carrier or Carrier()
        new = [node for node in links if node not in self._carried]

        def open_gaps() -> Sequence[int]:
            inside.enter_network(self.user, self._switch)
            gaps = [(node, self._bridges.get(node, batches.SWITCH)) for node in new]
            inside.run_batch("ip", [line for gap in gaps for line in batches.begin_gap(*gap)])
            ends = [end for node in new for end in (batches.port_of(node), batches.name_gap(node)[1])]
            return carrier.open_sockets(*ends)

        sockets = inside.call_in_child(open_gaps) if new else []
        self._carried.update(new)
        mine = {node: sockets[2 * index : 2 * index + 2] for index, node in enumerate(new)}
        for node, link in links.items():
            self._carrier.carry(node, link, mine.get(node, []))

    def _let_go(self, nodes: Sequence[int]) -> None:
        """Join the cables of these nodes again."""
        for node in nodes:
            if self._carrier is not None:
                self._carrier.let_go(node)
            self._carried.discard(node)
        places = [(node, self._bridges.get(node, batches.SWITCH)) for node in nodes]
        self._tell_switch([line for place in places for line in batches.end_gap(*place)])

    def _end_carrier(self) -> None:
        if self._carrier is not None:
            self._carrier.close()
        self._carrier = None
        self._carried.clear()

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


@contextlib.contextmanager
def _explain_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"could not {what}: {error.strerror}") from error


# The processes of an isolated node: those in its network.


_KILL_TIMEOUT_S = 5.0
_KILL_INTERVAL_S = 0.005


def list_processes(network: int) -> list[int]:
    """List the processes in a network, given by a descriptor. One that is stopped counts, a zombie does not."""
    wanted = os.fstat(network).st_ino
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_in(int(name), wanted)]


def kill_all(network: int) -> None:
    """Kill all processes of a node. Blocks until none is left, for some seconds at most."""
    wanted = os.fstat(network).st_ino
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while (found := list_processes(network)) and time.monotonic() < deadline:
        for pid in found:
            _kill(pid, wanted)
        time.sleep(_KILL_INTERVAL_S)


def _kill(pid: int, network: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    with contextlib.suppress(OSError):
        # Looked at again with the descriptor open: the number may be another's by now.
        if _is_in(pid, network):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)


def _is_in(pid: int, network: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == network
    except OSError:
        return False
