"""Facts of Slurm's nodes, as the agents on them tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.engines import network as networks

if TYPE_CHECKING:
    from collections.abc import Container

    from drumline.contract.messages import Hello
    from drumline.contract.plan import Plan
    from drumline.engines.base import Network


class SlurmFacts:
    """The hello of each agent of this attempt."""

    interface = ""
    clocks_differ = True
    are_separate = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._hellos: dict[int, Hello] = {}

    def forget(self) -> None:
        """Forget the agents of the attempt before."""
        self._hellos.clear()

    def add(self, node: int, hello: Hello) -> None:
        self._hellos[node] = hello

    def gpus(self, node: int) -> str:
        """Return the GPUs as Slurm has bound them for the agent."""
        return self._hellos[node].gpus

    def host(self, node: int) -> str:
        """Return the host name of a node whose agent has joined; else empty."""
        return self._hellos[node].host if node in self._hellos else ""

    def find_nodes(self, hosts: Container[str]) -> tuple[int, ...]:
        """Return the nodes on these hosts."""
        return tuple(node for node, hello in self._hellos.items() if hello.host in hosts)

    def identify(self, pid: int) -> dict[str, Any] | None:
        return None

    def choose_network(self) -> Network | None:
        hellos = [self._hellos[task.node] for task in self._plan.nodes]
        return networks.choose(hellos, str(self._plan.compute.get("interface") or ""))
