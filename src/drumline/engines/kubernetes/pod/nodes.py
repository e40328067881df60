"""The nodes of a job on Kubernetes, for its supervisor, which is in a pod and has no rights in the cluster."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, Literal

from drumline.contract import messages
from drumline.contract.channel import SILENCE_S
from drumline.contract.errors import EngineError
from drumline.engines.base import AgentProcesses, Network, NextAttempt, Nodes, SignalMeaning
from drumline.engines.kubernetes import objects
from drumline.engines.kubernetes.manifests import gang, pod_files
from drumline.engines.kubernetes.pod.members import Members
from drumline.engines.network import LOOPBACK
from drumline.linux import interfaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.events import EndKind
    from drumline.contract.messages import Hello
    from drumline.contract.plan import Plan


def make_nodes(plan: Plan) -> Nodes:
    """Return the nodes of the job, in its supervisor's pod."""
    with open(os.path.join(pod_files.BUNDLE, pod_files.TOKEN_FILE), encoding="ascii") as file:
        members = Members(len(plan.nodes), file.read())
    facts, preemption = PodFacts(plan), PodPreemption()
    return Nodes(PodAllocation(plan, members, preemption), PodAgents(plan, members), facts, preemption)


class PodAllocation:
    """The pods that have come. All of them, or in the end none."""

    needs_progress = False

    def __init__(self, plan: Plan, members: Members, preemption: PodPreemption) -> None:
        self._plan = plan
        self._members = members
        self._preemption = preemption
        self._patience_s = gang.patience_s(plan.compute)
        self._waits_again = False
        may_restart = plan.max_restarts > 0 or plan.asked.job_tier == "spot"
        self.lost_node_kind: Literal["node", "node preemption"] = "node preemption" if may_restart else "node"

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        told, since = "", None
        while not canceled():
            present, count = self._members.present, self._members.count
            if present >= count:
                return True
            if present and since is None:
                since = time.monotonic()
            if since is not None and time.monotonic() - since > self._patience_s:
                what = (
                    f"{present} of {count} pods came within {self._patience_s:g} s, and no more{self._says()}"
                )
                raise EngineError(what, "gang_timeout of the compute is how long they wait for each other")
            reason = f"{present} of {count} pods are there{self._says()}"
            if reason != told:
                told = reason
                on_wait(reason)
            self._members.wait(1.0, wake)
        return False

    def _says(self) -> str:
        """Return what the cluster says of the pods that are missing, which the client has sent."""
        path = os.path.join(objects.HOME, "jobs", self._plan.job, objects.REASON_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                said = file.read()
        except OSError:
            return ""
        return f"; {said}" if said else ""

    def decide_next(self, end_kind: EndKind, *, progressed: bool) -> NextAttempt:
        if self._preemption.is_ending:
            return NextAttempt("nowhere", "Kubernetes has taken the pod of its supervisor")
        self._members.wait(0.0)
        self._waits_again = self._members.present < self._members.count
        return NextAttempt("queue" if self._waits_again else "same nodes")

    def release(self) -> None:
        """Let the pods go at the end of the job. Before another attempt those that are there wait for the others."""
        if not self._waits_again:
            self._members.close()
        self._waits_again = False


class PodAgents:
    """The agents in the pods."""

    join_timeout_s = 300.0
    silence_s = SILENCE_S
    warm_pool: str | None = ""

    def __init__(self, plan: Plan, members: Members) -> None:
        self._plan = plan
        self._members = members
        self._attempt = -1

    def listen(self) -> socket.socket:
        # By which address the pods come is not known; a secret lets them in.
        return socket.create_server(("0.0.0.0", 0), backlog=1024)  # noqa: S104

    def start(self, port: int, secret: str) -> AgentProcesses:
        self._attempt += 1
        self._members.wait(0.0)
        address = messages.SupervisorAddress(
            messages.compute_version(),
            messages.find_package(),
            os.urandom(4).hex(),
            [str(one["address"]) for one in interfaces.list_interfaces()],
            port,
            secret,
            wants_memory=self._plan.launcher is not None,
            host_variable="DRUMLINE_NODE_NAME",
        )._asdict()
        part = {"type": "begin", "attempt": self._attempt, "address": address}
        self._members.assign({task.node: {**part, "node": task.node} for task in self._plan.nodes})
        return AgentProcesses({})

    def reap(self, node: int) -> str:
        """Return that the agent has ended; no agent is a child of this process."""
        return "ended"

    def end(self, node: int) -> None:
        """Do nothing: the agent ends by itself when this process goes."""

    def start_again(self) -> int | None:
        """Do nothing: each pod starts its agent."""
        return None

    def hold(self, node: int, *, wanted: bool) -> None:
        """Do nothing: such a drill is refused."""

    def find_failed(self) -> dict[int, str]:
        self._members.wait(0.0)
        return self._members.find_failed()

    def explain_missing(self, node: int) -> str | None:
        return self.explain_loss(node)

    def explain_loss(self, node: int) -> str:
        self._members.wait(0.0)
        return "closed its connection" if self._members.is_there(node) else "was lost with its pod"

    def find_cut_off(self) -> dict[int, str]:
        return {}

    def clear(self) -> None:
        """Do nothing: each pod has its own folders, which go with it."""


class PodFacts:
    """Facts of the pods, as the agents in them tell."""

    interface = ""
    clocks_differ = True
    are_separate = True
    memory_bytes = 0
    """Not told: Kubernetes starts no pod on a node without the memory that it asks for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._hellos: dict[int, Hello] = {}

    def add(self, node: int, hello: Hello) -> None:
        self._hellos[node] = hello

    def gpus(self, node: int) -> str:
        """Return the GPUs of the pod: its device plugin shows it no others."""
        return self._hellos[node].gpus

    def identify(self, pid: int) -> dict[str, Any] | None:
        return None

    def choose_network(self) -> Network | None:
        """Choose the network of the pods, by which each of them has reached the supervisor's."""
        hellos = [self._hellos[task.node] for task in self._plan.nodes]
        if len(hellos) == 1:
            return LOOPBACK
        names = tuple(_name_interface(hello) for hello in hellos)
        facts = tuple({"ib_devices": "", "ucx_devices": name} for name in names)
        return Network(names, tuple(hello.address for hello in hellos), "the network of the pods", facts)


def _name_interface(hello: Hello) -> str:
    return next((str(one["name"]) for one in hello.interfaces if one["address"] == hello.address), "eth0")


class PodPreemption:
    """SIGTERM to a pod says that its node is taken away. The supervisor's pod has no successor."""

    is_ending = False

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        if node is None:
            self.is_ending = True
            return SignalMeaning("preemption", "Kubernetes, which ends the pod of its supervisor")
        return SignalMeaning("node preemption", "Kubernetes, which ends its pod")

    def has_signaled_ranks(self) -> bool:
        return False
