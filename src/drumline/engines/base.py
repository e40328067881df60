"""What every engine can do, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.mpi import Mpi
    from drumline.contract.plan import NodeShape, Plan


class Nodes(Protocol):
    """The nodes of one job, as its supervisor has them."""

    listen_address: str
    """Where the supervisor listens for its agents."""

    interface: str
    """The network interface by which the nodes reach each other."""

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        """
        Block until the nodes are there; False when ``canceled`` first, which ``wake`` becoming readable may tell.
        ``on_wait`` is told why it waits, each time the reason changes. Raises EngineError when they never can be.
        """

    def start_agents(self, port: int, secret: str) -> None:
        """Start an agent a node, which connects to ``listen_address``:``port``. Raises EngineError.

        Called once for each attempt, when the agents of the one before have ended.
        """

    def address(self, node: int) -> str:
        """An IP."""

    def gpus(self, node: int) -> str:
        """As CUDA_VISIBLE_DEVICES wants them; empty for none."""

    def agents(self) -> dict[int, int]:
        """Node to a descriptor that becomes readable when its agent ends, for agents that this machine runs."""

    def ended(self, node: int) -> str:
        """How the agent ended: ``was killed by SIGKILL``; reaps it. To be called after its descriptor was readable."""

    def end_agent(self, node: int) -> None:
        """End an agent that does not answer. No error when it is gone."""

    def release(self) -> None:
        """Give the nodes back and remove what was made for them. May be called twice."""


class Engine(Protocol):
    name: str

    def shapes(self, node_count: int) -> list[NodeShape]:
        """What each of so many nodes would have; nothing is reserved."""

    def mpi(self, search_path: str) -> Mpi | None:
        """The MPI that nodes with this PATH have; None: there is none that is known here."""

    def submit(self, folder: RunFolder, start: Callable[[str], None] | None) -> None:
        """
        Have the job's supervisor started, wherever this engine runs it, and return at once.

        ``start`` starts it on this machine as a fork of this process, and is given when that is ours to fork.
        Raises EngineError.
        """

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        """For the supervisor."""
