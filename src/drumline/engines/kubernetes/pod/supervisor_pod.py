"""The pod of the supervisor: requests reach it as an annotation of the pod, and its events leave it as output."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import channel, messages, secrets
from drumline.contract.errors import EngineError
from drumline.contract.folder import write_whole
from drumline.contract.words import format_seconds
from drumline.engines.base import (
    AgentProcesses,
    AgentStarter,
    Allocation,
    Network,
    NextAttempt,
    NodeFacts,
    Nodes,
    Preemption,
    SignalMeaning,
)
from drumline.engines.kubernetes import bundle, manifests
from drumline.engines.kubernetes.pod.first_process import FirstProcess
from drumline.engines.network import LOOPBACK
from drumline.linux import interfaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.events import EndKind
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


# The pods of a job's nodes, as its supervisor sees them: each asks which node it is, and is that node's agent.

_MOST_STRANGERS = 64


class JoinedPod:
    """A pod that has shown the job's token. ``node``: its number; None: it has none yet."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.lines = channel.Lines(channel.HELLO_LIMIT)
        self.pod = ""
        self.host = ""
        self.node: int | None = None
        self.error = ""
        self.is_leaving = False

    @property
    def is_spare(self) -> bool:
        """Return whether a number can be given to it."""
        return bool(self.pod) and self.node is None and not self.is_leaving


class Members:
    """Listens for pods as long as the job lives. Numbers are kept: a replacement takes the one that was lost."""

    def __init__(self, count: int, token: str, port: int = manifests.PORT) -> None:
        self.count = count
        self._token = token
        self._server = socket.create_server(("0.0.0.0", port), backlog=1024)  # noqa: S104 - a token lets them in
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._peers: dict[int, JoinedPod] = {}

    @property
    def present(self) -> int:
        """Return how many of the job's pods are there."""
        return sum(member.node is not None for member in self._peers.values())

    def wait(self, timeout_s: float, wake: int = -1) -> None:
        """Take in what has happened; wait for something, ``wake`` included, at most so long."""
        poller = select.poll()
        for descriptor in (self._server.fileno(), *self._peers, *([wake] if wake >= 0 else [])):
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(timeout_s * 1000):
            if descriptor == self._server.fileno():
                self._accept()
            elif descriptor == wake:
                os.read(wake, 512)
            else:
                self._hear(descriptor)

    def assign(self, nodes: Mapping[int, Mapping[str, Any]]) -> None:
        """Send each node its part. The loss of one shows elsewhere."""
        for member in self._peers.values():
            if member.node is not None:
                member.error = ""
                with contextlib.suppress(OSError):
                    member.peer.sendall(json.dumps(nodes[member.node]).encode() + b"\n")

    def find_failed(self) -> dict[int, str]:
        """Return by node why its agent could not start, of those that said so."""
        return {
            member.node: member.error
            for member in self._peers.values()
            if member.node is not None and member.error
        }

    def is_there(self, node: int) -> bool:
        """Return whether a pod has that number."""
        return any(member.node == node for member in self._peers.values())

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        strangers = [number for number, member in self._peers.items() if not member.pod]
        if len(strangers) >= _MOST_STRANGERS + self.count:
            self._drop(strangers[0])
        peer.settimeout(5.0)
        channel.notice_power_cut(peer)
        self._peers[peer.fileno()] = JoinedPod(peer)

    def _hear(self, descriptor: int) -> None:
        member = self._peers.get(descriptor)
        if member is None:
            return
        try:
            data = member.peer.recv(1 << 16)
            messages = member.lines.feed(data) if data else None
        except (OSError, channel.ChannelError):
            messages = None
        if messages is None:
            self._drop(descriptor)
            return
        for message in messages:
            if message["type"] == "leaving":
                self._give_up_number(member)
            elif message["type"] == "failed":
                member.error = f"did not start: {message.get('error')}"
            elif not self._admit(member, message):
                self._drop(descriptor)
                return

    def _admit(self, member: JoinedPod, message: Mapping[str, Any]) -> bool:
        if message["type"] != "pod" or not channel.same_secret(self._token, message.get("token")):
            return False
        member.pod, member.host = str(message.get("pod")), str(message.get("host"))
        taken = {other.node for other in self._peers.values()}
        free = [number for number in range(self.count) if number not in taken]
        # One too many waits: another may be lost.
        member.node = free[0] if free else None
        return True

    def _drop(self, descriptor: int) -> None:
        member = self._peers.pop(descriptor)
        member.peer.close()
        self._give_up_number(member)

    def _give_up_number(self, member: JoinedPod) -> None:
        """Have a pod that waits take the number of one that is gone, or will be: its attempt is its last."""
        member.is_leaving = True
        if member.node is None:
            return
        spare = next((other for other in self._peers.values() if other.is_spare), None)
        if spare is not None:
            spare.node = member.node
        member.node = None

    def close(self) -> None:
        """Tell all pods that the job has ended, and let them go. May be called twice."""
        for member in self._peers.values():
            with contextlib.suppress(OSError):
                member.peer.sendall(b'{"type": "over"}\n')
            member.peer.close()
        self._peers.clear()
        self._server.close()


# The nodes of a job on Kubernetes, for its supervisor, which is in a pod and has no rights in the cluster.


def make_nodes(plan: Plan) -> Nodes:
    """Return the nodes of the job, in its supervisor's pod."""
    with open(os.path.join(bundle.BUNDLE, bundle.TOKEN_FILE), encoding="ascii") as file:
        members = Members(len(plan.nodes), file.read())
    facts, preemption = PodFacts(plan), PodPreemption()
    return Nodes(PodAllocation(plan, members, preemption), PodAgents(plan, members), facts, preemption)


class PodAllocation(Allocation):
    """The pods that have come. All of them, or in the end none."""

    def __init__(self, plan: Plan, members: Members, preemption: PodPreemption) -> None:
        self._plan = plan
        self._members = members
        self._preemption = preemption
        self._patience_s = manifests.patience_s(plan.compute)
        self._waits_again = False
        if plan.max_restarts > 0 or plan.asked.job_tier == "spot":
            self.lost_node_kind = "node preemption"

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        told, since = "", None
        while not canceled():
            present, count = self._members.present, self._members.count
            if present >= count:
                return True
            if present and since is None:
                since = time.monotonic()
            if since is not None and time.monotonic() - since > self._patience_s:
                waited = format_seconds(self._patience_s)
                what = f"{present} of {count} pods came within {waited}, and no more{self._says()}"
                raise EngineError(what, "gang_timeout of the compute is how long they wait for each other")
            reason = f"{present} of {count} pods are there{self._says()}"
            if reason != told:
                told = reason
                on_wait(reason)
            self._members.wait(1.0, wake)
        return False

    def _says(self) -> str:
        """Return what the cluster says of the pods that are missing, which the client has sent."""
        path = os.path.join(bundle.HOME, "jobs", self._plan.job, manifests.REASON_FILE)
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


class PodAgents(AgentStarter):
    """The agents in the pods. Each pod starts its own, and has its own folders, which go with it."""

    silence_s = channel.SILENCE_S

    def __init__(self, plan: Plan, members: Members) -> None:
        self._plan = plan
        self._members = members
        self._attempt = -1

    def start(self, port: int, secret: str) -> AgentProcesses:
        self._attempt += 1
        self._members.wait(0.0)
        address = messages.SupervisorAddress(
            *channel.identify_package(),
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

    def find_failed(self) -> dict[int, str]:
        self._members.wait(0.0)
        return self._members.find_failed()

    def explain_missing(self, node: int) -> str | None:
        return self.explain_loss(node)

    def explain_loss(self, node: int) -> str:
        self._members.wait(0.0)
        return "closed its connection" if self._members.is_there(node) else "was lost with its pod"


class PodFacts(NodeFacts):
    """
    Facts of the pods. An agent sees all GPUs of its pod: the device plugin shows it no others. Memory is not told:
    Kubernetes starts no pod on a node without the memory that it asks for.
    """

    def choose_network(self) -> Network | None:
        """Choose the network of the pods, by which each of them has reached the supervisor's."""
        hellos = [self._hellos[task.node] for task in self._plan.nodes]
        if len(hellos) == 1:
            return LOOPBACK
        names = tuple(
            next((str(one["name"]) for one in hello.interfaces if one["address"] == hello.address), "eth0")
            for hello in hellos
        )
        facts = tuple({"ib_devices": "", "ucx_devices": name} for name in names)
        return Network(names, tuple(hello.address for hello in hellos), "the network of the pods", facts)


class PodPreemption(Preemption):
    """SIGTERM to a pod says that its node is taken away. The supervisor's pod has no successor."""

    is_ending = False

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        if node is None:
            self.is_ending = True
            return SignalMeaning("preemption", "Kubernetes, which ends the pod of its supervisor")
        return SignalMeaning("node preemption", "Kubernetes, which ends its pod")


def main(folder: RunFolder) -> int:
    """Supervise the job of that run folder to its end; return the job's exit code."""
    first = FirstProcess(folder)
    requests = Requests(folder)
    first.fork(lambda: _supervise(folder))
    while True:
        requests.poll()
        ended = first.look()
        if ended is not None:
            first.finish()
            return ended if ended >= 0 else 1
        first.pause()


def _supervise(folder: RunFolder) -> int:
    """Become the supervisor, which lies above the engines. It gets the secrets as from every engine: in halves."""
    environment = dict(os.environ)
    with contextlib.suppress(FileNotFoundError):
        with open(os.path.join(bundle.BUNDLE, bundle.SECRETS_FILE), encoding="utf-8") as file:
            pad, masked = secrets.split(file.read())
        folder.write(folder.secrets, secrets.add_pad("", pad))
        environment[secrets.VARIABLE] = masked
    argv = [sys.executable, "-P", "-m", "drumline.supervisor", "--batch", folder.path]
    os.execve(argv[0], argv, environment)  # noqa: S606


class Requests:
    """Writes requests into the run folder, from where the supervisor takes them."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._known = ""

    def poll(self) -> None:
        """Take in requests that have come since."""
        try:
            with open(os.path.join(manifests.NOTES, "requests"), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return
        if text == self._known:
            return
        self._known = text
        try:
            wanted = json.loads(text or "{}")
        except ValueError:
            return
        for name, content in wanted.items():
            if name in manifests.REQUEST_FILES:
                write_whole(os.path.join(self._folder.path, name), str(content))
