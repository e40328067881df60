"""Facts of Slurm's nodes, as the agents on them tell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.engines import network as networks
from drumline.engines.slurm import options

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from drumline.contract.messages import Hello
    from drumline.contract.plan import Plan
    from drumline.engines.base import Network


def find_memory(variables: Mapping[str, str], cores: int) -> int:
    """
    Return the bytes of memory that Slurm has given the job of each node; 0: it has set no limit.

    ``variables``: those of the batch step, with the wish of the job, its compute or the partition's default in MiB.
    ``cores``: of each node. Source: sbatch(1), OUTPUT ENVIRONMENT VARIABLES.

    >>> find_memory({"SLURM_MEM_PER_NODE": "2048"}, 8) >> 30, find_memory({"SLURM_MEM_PER_CPU": "1024"}, 8) >> 30
    (2, 8)
    >>> find_memory({}, 8), find_memory({"SLURM_MEM_PER_NODE": "0"}, 8)
    (0, 0)
    """
    for name, count in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_CPU", cores)):
        text = variables.get(name, "")
        if text.isdecimal():
            return (int(text) << 20) * count
    return 0


class SlurmFacts:
    """The hello of each agent of this attempt."""

    interface = ""
    clocks_differ = True
    are_separate = True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.memory_bytes = find_memory(os.environ, max(1, options.cores_of(plan)))
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
