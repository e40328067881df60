"""
Agents on isolated nodes, and what they see there: host name, files of /etc, shared memory, temporary folder, limits.

Each begins as a fork of the supervisor, and is heard through its node's network alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError, EngineError
from drumline.engines.base import AgentProcesses, Network, Nodes
from drumline.engines.local.agents import LocalAgents, LocalFacts
from drumline.engines.local.isolation import batches
from drumline.engines.local.isolation.isolation_settings import SUPERVISOR, address_of, read_isolation
from drumline.engines.local.isolation.node_network import NodeNetwork
from drumline.engines.local.queue import LocalPreemption
from drumline.linux import cgroups, limits, namespaces
from drumline.node import scratch
from drumline.node.agent import agent

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.local.isolation.isolation_settings import Isolation
    from drumline.engines.local.queue import LocalAllocation


_END_TIMEOUT_S = 0.5
"""Between the end of an agent's connection and that of its process."""


def make_nodes(plan: Plan, folder: RunFolder, allocation: LocalAllocation) -> Nodes:
    """Return the isolated nodes of a job, for its supervisor."""
    isolation = read_isolation(plan.compute)
    assert isolation is not None, "asked for isolated nodes alone"
    network = NodeNetwork(isolation, len(plan.nodes))
    agents = IsolatedAgents(plan, folder, network)
    facts = IsolatedFacts(plan, allocation)
    facts.memory_bytes = isolation.memory_bytes or 0
    return Nodes(allocation, agents, facts, LocalPreemption(), network)


class IsolatedAgents(LocalAgents):
    """Forks the agents of one job, each in the network of its node, with its own view of the machine."""

    server_address = SUPERVISOR

    def __init__(self, plan: Plan, folder: RunFolder, network: NodeNetwork) -> None:
        super().__init__(plan, folder)
        self._network = network
        self.silence_s = network.isolation.silence_s
        self._supervisor = os.getpid()
        self._lent: dict[int, int] = {}
        """Descriptors of the agents' processes for whoever waits for them: ``reap`` closes its own."""

        self._ends: dict[int, str] = {}
        """How agents have ended, of those that were asked about."""

    def listen(self) -> socket.socket:
        return self._network.build()

    def start(self, port: int, secret: str) -> AgentProcesses:
        self._ends.clear()
        if self._plan.preflight and len(self._plan.nodes) > 1:
            # For the agents, which are forks of this process, and would each load it.
            from drumline.checks import checker  # noqa: F401
        own = super().start(port, secret).own
        self._close_lent()
        self._lent = {node: os.dup(pidfd) for node, pidfd in own.items()}
        return AgentProcesses({}, quiet=dict(self._lent))

    def _close_lent(self) -> None:
        for pidfd in self._lent.values():
            os.close(pidfd)
        self._lent.clear()

    def _choose_group(self, node: int, name: str) -> str:
        groups = limits.choose_limit_groups(name)
        self._network.groups[node] = groups
        return groups.cpu if groups.version != 1 and groups.cpu else super()._choose_group(node, name)

    def _list_more_groups(self) -> list[str]:
        return [
            path for groups in self._network.groups.values() if groups.version == 1 for path in groups.paths
        ]

    def _choose_memory(self) -> list[str]:
        """Return none: a node's shared memory is not this machine's."""
        return []

    def _enter_node(self, node: int) -> None:
        try:
            self._scratch[node] = enter_node(self._network, node, self._scratch[node])
            if self._plan.launcher is not None:
                os.mkdir(scratch.choose_shared_memory_folder(self._scratch[node]), 0o700)
        except (DrumlineError, OSError) as error:
            os.write(2, f"the node could not be made: {error}\n".encode())
            os._exit(1)

    def _serve(self, server: tuple[str, int], secret: str, node: int, starter: agent.Starter) -> None:
        own = (address_of(node), self._scratch[node], self._cgroups[node])
        starter = starter._replace(
            process=os.pidfd_open(self._supervisor), is_isolated=True, silence_s=self.silence_s
        )
        try:
            agent.serve(server, secret, node, *own, starter=starter, hello={"host": os.uname().nodename})
        finally:
            limits.leave_limit_groups(self._network.groups[node])

    def reap(self, node: int) -> str:
        # The connection may have told of the end, or the process itself.
        return super().reap(node) if node in self._pidfds else "ended"

    def find_failed(self) -> dict[int, str]:
        for node in [node for node, pidfd in self._pidfds.items() if _is_over(pidfd, 0.0)]:
            self._note_end(node)
        return self._ends

    def _note_end(self, node: int) -> None:
        how = self.reap(node)
        self._ends[node] = f"{how}; {self._read_last_line(node)}" if how.startswith("crashed") else how

    def _read_last_line(self, node: int) -> str:
        with contextlib.suppress(OSError):
            path = os.path.join(self._folder.system_logs, f"node-{node}.log")
            with open(path, errors="replace") as file:
                return file.read()[-2000:].strip().rpartition("\n")[2]
        return "it left no word"

    def explain_loss(self, node: int) -> str:
        pidfd = self._pidfds.get(node)
        if pidfd is not None and _is_over(pidfd, _END_TIMEOUT_S):
            self._note_end(node)
        # An agent that ended by itself has found its supervisor silent, as the first of the two.
        if self._ends.get(node, "ended") == "ended" or node in self._network.off:
            return f"has not answered for {self.silence_s} s: its node is off, or cut off from here"
        return self._ends[node]

    def find_cut_off(self) -> dict[int, str]:
        nodes, why = self._network.find_cut_off()
        return dict.fromkeys(nodes, why)

    def _remove_folders(self) -> None:
        super()._remove_folders()
        for path in self._list_more_groups():
            cgroups.remove_old_group(path)

    def clear(self) -> None:
        super().clear()
        self._close_lent()
        self._network.close()


class IsolatedFacts(LocalFacts):
    """Every node has one card, of the same name."""

    interface = batches.CARD
    are_separate = True

    def choose_network(self) -> Network | None:
        count = len(self._plan.nodes)
        addresses = tuple(address_of(node) for node in range(count))
        return Network((batches.CARD,) * count, addresses, "the cable of each isolated node", ({},) * count)


def _is_over(pidfd: int, patience_s: float) -> bool:
    """Return whether the process has ended, or does so soon."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(patience_s * 1000))


# What a process sees on an isolated node: host name, files of /etc, shared memory, temporary folder, limits.


_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system of the node's own is mounted there
_TEMPORARY = "tmp"


def enter_node(network: NodeNetwork, node: int, folder: str) -> str:
    """
    Move this process, which must have one thread, to the node, with all that it will start; return the path of its
    temporary folder. ``folder``: an empty one for this user alone. Raises OSError.
    """
    isolation = network.isolation
    _enter_limits(network, node)
    if network.user is not None:
        namespaces.enter(network.user, namespaces.USER)
    namespaces.enter(network.networks[node], namespaces.NETWORK)
    namespaces.unshare(namespaces.HOST_NAME | namespaces.MEMORY)
    socket.sethostname(isolation.host(node))
    namespaces.begin_mounts()
    _mount_etc(isolation, len(network.networks), folder)
    _mount_devices(folder)
    if os.path.isdir(_SHARED_MEMORY):
        _mount_memory(_SHARED_MEMORY, "1777", isolation.shm_bytes)
    if isolation.tmp_bytes is not None:
        _mount_memory(folder, "700", isolation.tmp_bytes)
    temporary = os.path.join(folder, _TEMPORARY)
    os.mkdir(temporary, 0o700)
    return temporary


def _enter_limits(network: NodeNetwork, node: int) -> None:
    isolation, groups = network.isolation, network.groups[node]
    try:
        limits.join_limit_groups(groups)
        if isolation.cpus is not None and groups.cpu:
            limits.limit_cpus(groups, isolation.cpus)
        if isolation.memory_bytes is not None:
            limits.limit_memory(groups, isolation.memory_bytes)
    except OSError as error:
        # Without a limit to keep, a drill alone has use of the groups.
        if isolation.cpus is not None or isolation.memory_bytes is not None:
            raise EngineError(f"limits of node {node} could not be set: {error.strerror}") from error


def _mount_etc(isolation: Isolation, node_count: int, folder: str) -> None:
    """Give names to the nodes, and to nobody else: no name server is reached from here, and asking takes seconds."""
    hosts = ["127.0.0.1 localhost", "::1 localhost"]
    hosts += [f"{address_of(node)} {isolation.host(node)}" for node in range(node_count)]
    texts = {
        "hosts": "\n".join([*hosts, f"{SUPERVISOR} drumline"]) + "\n",
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": _look_up_in_files("/etc/nsswitch.conf"),
        "hostname": "",
    }
    for name, text in texts.items():
        target = os.path.join("/etc", name)
        if not os.path.isfile(target):
            continue
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(text or socket.gethostname() + "\n")
        namespaces.bind(path, target)


def _look_up_in_files(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    return re.sub(r"(?m)^\s*hosts:.*\n?", "", text) + "\nhosts: files\n"


def _mount_devices(folder: str) -> None:
    """Show the node's own network cards in /sys. Where that is not allowed, those of the machine stay in sight."""
    place = os.path.join(folder, "sys")
    os.mkdir(place, 0o700)
    with contextlib.suppress(OSError):
        namespaces.mount("sysfs", place, "sysfs", namespaces.NO_PROGRAMS)
        # Control groups are mounted below.
        namespaces.bind("/sys/fs/cgroup", os.path.join(place, "fs/cgroup"))
        namespaces.move_mount(place, "/sys")


def _mount_memory(path: str, mode: str, size_bytes: int | None) -> None:
    size = "" if size_bytes is None else f",size={size_bytes}"
    namespaces.mount("tmpfs", path, "tmpfs", namespaces.NO_DEVICES, f"mode={mode}{size}")
