"""What every engine can do, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.mpi import Mpi
    from drumline.contract.plan import NodeShape, Plan


TIME_LIMIT = "the engine's time limit"
"""What a supervisor in a batch step takes SIGUSR2 for: to be asked for a while before."""


class Look(NamedTuple):
    """
    An engine's view of a job whose supervisor is not on this machine. ``state``: ``waits``, ``starts``, ``runs``,
    ``gone``, or ``unknown`` while nobody answers. ``status`` and ``exit_code`` are of one that is gone.
    """

    state: str
    reason: str
    status: str = ""
    exit_code: int = 0


class Taken(NamedTuple):
    """
    What it means that an agent, or the supervisor, was asked to end. ``kind``: ``cancel``, ``preemption`` of the whole
    job, ``node preemption``. ``grace_s``: what is left for saving; None: the job's own grace period. ``lost``: nodes of
    which nothing more is to be heard.
    """

    kind: str
    by: str
    grace_s: float | None = None
    lost: tuple[int, ...] = ()


class Network(NamedTuple):
    """By what the ranks reach each other, by node; ``reason`` says why by this."""

    interfaces: tuple[str, ...]
    addresses: tuple[str, ...]
    reason: str
    facts: tuple[dict[str, str], ...] = ()
    """More late-bound names of ``contract.plan``, by node."""


class Nodes(Protocol):
    """The nodes of one job, as its supervisor has them."""

    shares_machine: bool
    """Whether all of them are this machine, and the agents this process's children."""

    replaces_lost: bool
    """Whether ``back_in_line`` finds others for nodes that were lost, which is then no failure of the job."""

    listen_address: str
    """Where the supervisor listens for its agents."""

    join_timeout_s: float
    """From the start of the agents until all have joined and node 0 was reached."""

    interface: str
    """The network interface by which the nodes reach each other."""

    keeper: str
    """Where agents find a keeper of warm interpreters; empty: nowhere."""

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

    def joined(self, node: int, hello: dict[str, Any]) -> None:
        """What an agent says of its node; called before ``network``, for each."""

    def network(self) -> Network | None:
        """When all have joined; None: the address in each one's hello, and ``interface``. Raises EngineError."""

    def taken(self, node: int | None, by: str) -> Taken:
        """
        What it means that the agent of a node (None: this process) was sent a signal; ``by``: all that it knows itself.
        """

    def failed_to_join(self) -> dict[int, str]:
        """Why agents that others run could not come, by node, of those who could say it; before all have joined."""

    def has_told_ranks(self) -> bool:
        """After ``taken``: whether whoever asked has sent the ranks their SIGTERM already."""

    def gone(self, node: int) -> str:
        """Why an agent that others run closed its connection: ``was lost: Slurm says that e2 is down``."""

    def back_in_line(self, end_kind: str, *, progressed: bool) -> str:
        """
        After an attempt that is to be followed by another: ``here`` when its nodes are still this job's, ``wait`` when
        ``wait`` is to be called for others, ``leave`` when the engine starts the supervisor afresh; else why there can
        be no other, as a sentence's end.
        """

    def release(self) -> None:
        """Give the nodes back and remove what was made for them. May be called twice."""


class Engine(Protocol):
    name: str
    shares_machine: bool
    """Whether all nodes are this machine."""

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        """What each of so many nodes would have; nothing is reserved. ``compute``: its settings."""

    def mpi(self, search_path: str) -> Mpi | None:
        """The MPI that nodes with this PATH have; None: there is none that is known here."""

    def warnings(self, plan: Plan) -> list[str]:
        """What of the job is honoured in part. Raises PlanError for what the compute does not have."""

    def render(self, plan: Plan, folder: RunFolder) -> str:
        """What ``submit`` would send, as text; empty: nothing is sent. Pure. Raises PlanError."""

    def submit(self, folder: RunFolder, start: Callable[[str], None] | None) -> None:
        """
        Have the job's supervisor started, wherever this engine runs it, and return at once.

        ``start`` starts it on this machine as a fork of this process, and is given when that is ours to fork.
        Raises EngineError.
        """

    def claim(self, folder: RunFolder) -> str:
        """For a supervisor in a batch step: empty when the job is this step's to run, else why it is not."""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        """For the supervisor."""

    def look(self, folder: RunFolder) -> Look | None:
        """Never raises. None: its supervisor is a process of this machine, which tells more."""

    def withdraw(self, folder: RunFolder) -> None:
        """Take a job that has no nodes yet out of the engine's line. Raises EngineError when that does not answer."""

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """
        What the engine calls the job and knows of it, for people; ``brief``: without what it has to be asked for for
        each job. Never raises.
        """

    def is_here(self) -> bool:
        """Whether this machine is set up to give it jobs; whether it answers is another matter."""

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """What of a compute's settings cannot be from this machine; empty when all can."""

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a compute now, as JSON can hold it. Raises EngineError when that cannot be found out."""

    def list_nodes(self, compute: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each with node, state, cores, gpus, memory_mb, reason and jobs. Raises EngineError as ``describe``."""
