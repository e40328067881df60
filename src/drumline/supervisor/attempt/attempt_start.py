"""The start of all ranks: late-bound names get their values, and each agent its part of the plan."""

from __future__ import annotations

import os
import time
from collections import ChainMap
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract import samples
from drumline.contract.folder import STEPS
from drumline.contract.plan import bind, late
from drumline.contract.rank_variables import RankVariables
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import NodeTask, Plan
    from drumline.engines.base import Nodes
    from drumline.supervisor.attempt.connections import AgentConnections
    from drumline.supervisor.attempt.preflight_phase import PreflightPhase


class RankStart:
    """Facts of the nodes of one attempt, and the messages by which their ranks start."""

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        nodes: Nodes,
        connections: AgentConnections,
        attempt: int,
        secrets: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._nodes = nodes
        self._connections = connections
        self._attempt = attempt
        self._secrets = secrets
        self._facts: dict[str, str] = {"interface": nodes.facts.interface}
        self._node_facts: list[dict[str, str]] = [{} for _ in plan.nodes]
        self._node_at: dict[str, int] = {}
        """By address, from the launch on."""

        self._probe_port = 0
        self.hosts: dict[int, str] = {}
        """The host names of nodes whose agents have joined."""

        self._checks: PreflightPhase | None = None
        self._machines: set[str] = set()
        self.launched: float | None = None
        """When the ranks were started, in monotonic seconds."""

        self.running: float | None = None
        """When all of them ran, until they are told to end."""

    def add_node(self, node: int, hello: m.Hello) -> None:
        self._facts[f"node_{node}"] = hello.address
        self._nodes.facts.add(node, hello)
        self._facts[f"gpus_{node}"] = self._nodes.facts.gpus(node)
        self.hosts[node] = hello.host
        self._machines.add(hello.machine)

    def find_node(self, host: str, asking: int) -> int | None:
        """Return the node of that address; None when it is none of the job's. ``asking``: whose ``localhost`` it is."""
        if host == "localhost":
            return asking
        return self._node_at.get(host)

    def prepare_nodes(
        self, record: Callable[[e.Event], None], handle: Callable[[h.Happening], None]
    ) -> float | None:
        """
        Have the agents lease ports on the network of the ranks, and begin the checks of the nodes. Raises EngineError.

        Return the seconds after which ``conclude_checks`` is due; None: nothing is checked.
        """
        network = self._nodes.facts.choose_network()
        if network is not None:
            for task in self._plan.nodes:
                self._facts[f"node_{task.node}"] = network.addresses[task.node]
                facts = {"interface": network.interfaces[task.node], **network.facts[task.node]}
                self._node_facts[task.node] = facts
            chosen = (list(network.interfaces), list(network.addresses), network.reason)
            record(e.NetworkChosen(wall_time(), *chosen))
        self._lease_ports()
        return self._begin_checks(record, handle) if self.may_check else None

    def _lease_ports(self) -> None:
        names_of: dict[int, list[str]] = {}
        for name, node in self._plan.ports.items():
            names_of.setdefault(node, []).append(name)
        for task in self._plan.nodes:
            names = names_of.get(task.node, [])
            probe = task.node == 0 and len(self._plan.nodes) > 1
            address = self._facts[f"node_{task.node}"]
            message = m.PrepareNode(names, probe, self._plan.wants_launcher_sockets, address)
            self._connections.send(task.node, message)

    def add_ports(self, node: int, message: m.NodePrepared) -> None:
        self._facts.update({name: str(port) for name, port in message.ports.items()})
        if node == 0:
            self._probe_port = message.probe_port

    def connect_to_first(self) -> None:
        message = m.ConnectToFirst(self._facts["node_0"], self._probe_port)
        self._connections.send_all((task.node for task in self._plan.nodes[1:]), message)

    @property
    def may_check(self) -> bool:
        """Return whether the nodes are checked before the ranks start, where they turn out to be several machines."""
        if self._plan.checks_only:
            return True
        return self._plan.preflight and len(self._plan.nodes) > 1 and self._nodes.facts.are_separate

    def _begin_checks(
        self, record: Callable[[e.Event], None], handle: Callable[[h.Happening], None]
    ) -> float:
        if len(self._machines) == 1 and "" not in self._machines and not self._plan.checks_only:
            handle(h.Checked())
            return 0.0
        # Few jobs have nodes that can differ, and every launch would import it.
        from drumline.supervisor.attempt import preflight_phase

        addresses = {task.node: self._facts[f"node_{task.node}"] for task in self._plan.nodes}
        memory_bytes = self._nodes.facts.memory_bytes
        self._checks = preflight_phase.PreflightPhase(
            self._plan, self._folder, self._connections, record, handle, addresses, self.hosts, memory_bytes
        )
        return self._checks.begin()

    def add_checked(self, node: int, message: m.NodeChecked) -> None:
        if self._checks:
            self._checks.take_in(node, message)

    def conclude_checks(self) -> None:
        """Judge what is known by now; nothing when that was done."""
        if self._checks:
            self._checks.conclude()

    def launch(self) -> None:
        """Start the ranks of all nodes. Raises OSError."""
        self.launched = time.monotonic()
        self._node_at = {self._facts[f"node_{task.node}"]: task.node for task in self._plan.nodes}
        if self._plan.host_file:
            hosts = bind(self._plan.host_file, self._facts)
            self._folder.write(self._folder.hosts, hosts)
            # MPICH's form.
            self._folder.write(self._folder.hydra_hosts, hosts.replace(" slots=", ":"))
        variables = RankVariables(self._plan, self._facts)
        self._connections.send_all((node.node for node in self._plan.nodes), self._make_shared(variables))
        for node in self._plan.nodes:
            self._connections.send(node.node, self._make_launch(node, variables))

    def _make_launch(self, node: NodeTask, variables: RankVariables) -> m.LaunchRanks:
        own = self._node_facts[node.node]
        sample_file = m.SampleFile(samples.path_of(self._folder.path, node.node), self._attempt)
        facts = ChainMap(own, self._facts)
        pool = self._nodes.agents.warm_pool
        warm = "off" if pool is None and self._plan.warm == "auto" else self._plan.warm
        ranks = [
            m.RankLaunch(
                task.rank,
                [bind(word, facts) for word in task.argv] or list(self._plan.argv),
                variables.of_task(task, own),
                os.path.join(self._folder.path, task.log),
            )
            for task in node.ranks
        ]
        return m.LaunchRanks(
            ranks=ranks,
            cwd=self._plan.cwd,
            unset=list(self._plan.unset),
            cores=list(node.cores),
            # Without a launcher the command on node 0 starts its workers on the others by ssh.
            node_env=dict(self._secrets) if self._plan.remote_shell else {},
            by_launcher=self._plan.launcher is not None,
            launcher=self._make_launcher_task() if node.node == 0 else None,
            # For MPI's daemons; empty: the machine's own, as for the launcher on node 0.
            host_name=node.env.get("PMIX_HOSTNAME", ""),
            container=self._plan.container,
            samples=None if self._is_off(samples.SWITCH) else sample_file,
            log_times=self._folder.log_times_path(self._attempt, node.node),
            steps="" if self._is_off(STEPS) else self._folder.steps_path(self._attempt, node.node),
            warm=m.WarmSettings(warm, pool or ""),
            secrets=list(self._secrets),
            env=variables.of_node(node, own),
        )

    def _make_shared(self, variables: RankVariables) -> m.ShareVariables:
        """Make the message about what all nodes share."""
        texts = {late(name): text for name, text in variables.texts.items()}
        last = {**self._plan.user_env, "DRUMLINE_ATTEMPT": str(self._attempt)}
        # The number of this attempt has torchrun's name too where there is one.
        for name, value in (("RESTART_COUNT", self._attempt), ("MAX_RESTARTS", self._plan.max_restarts)):
            if f"TORCHELASTIC_{name}" in variables.common or f"TORCHELASTIC_{name}" in last:
                last[f"TORCHELASTIC_{name}"] = str(value)
        return m.ShareVariables(dict(variables.common), last, texts, self._secrets)

    def _is_off(self, switch: str) -> bool:
        """Return whether a variable of the job, or else of this process, is 0."""
        return (self._plan.user_env.get(switch) or os.environ.get(switch)) == "0"

    def _make_launcher_task(self) -> m.LauncherTask | None:
        launcher = self._plan.launcher
        if launcher is None:
            return None
        facts = {**self._facts, **self._node_facts[0]}
        return m.LauncherTask(
            [bind(word, facts) for word in launcher.argv],
            {name: bind(value, facts) for name, value in launcher.env.items()},
            os.path.join(self._folder.path, launcher.log),
        )
