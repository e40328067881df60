"""The protocols of an engine, and what engines do unless they say otherwise."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from drumline.contract.record import ABSENT, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.folder import RunFolder
    from drumline.contract.installed_mpi import Mpi
    from drumline.contract.messages import Hello
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.plan import NodeShape, Plan
    from drumline.contract.record import Absent


TIME_LIMIT = "the engine's time limit"
"""The meaning of SIGUSR2 to a supervisor in a batch step; engines ask for it a while before the limit."""


class JobView(NamedTuple):
    """
    An engine's view of a job whose supervisor is not on this machine. ``unknown``: while the engine does not answer.
    ``status`` and ``exit_code`` are of a job that is gone.
    """

    state: Literal["waits", "starts", "runs", "gone", "unknown"]
    reason: str
    status: str = ""
    exit_code: int = 0


class SignalMeaning(NamedTuple):
    """
    The engine's word on a signal to an agent or to the supervisor: the end of the job, a preemption of all its
    nodes, or of one. ``grace_s``: what is left for saving; None: the job's own grace period. ``lost``: nodes that are
    down already.
    """

    kind: Literal["cancel", "preemption", "node preemption"]
    by: str
    grace_s: float | None = None
    lost: tuple[int, ...] = ()
    verb: str = "preempted"
    """What ``by`` has done; a site's limit and a node that fails preempt nobody."""


class NextAttempt(NamedTuple):
    """
    The place of the next attempt: on the same nodes, on those for which the job has to wait in the queue again,
    or on others, with a supervisor that the engine starts. ``nowhere``: the job ends; ``reason`` completes its reason.
    """

    where: Literal["same nodes", "queue", "new supervisor", "nowhere"]
    reason: str = ""


class AgentProcesses(NamedTuple):
    """
    Descriptors that become readable when processes end. ``own``: by node, of agents that are children of this process.
    ``starter``: of the process that starts the agents elsewhere; when it has ended, no more of them will come.
    """

    own: dict[int, int]
    starter: int | None = None
    quiet: Mapping[int, int] = MappingProxyType({})
    """By node, of agents that are children of this process, but whose loss the connection alone may tell."""


class Network(NamedTuple):
    """The network by which the ranks reach each other, by node; ``reason`` says why it was chosen."""

    interfaces: tuple[str, ...]
    addresses: tuple[str, ...]
    reason: str
    facts: tuple[dict[str, str], ...] = ()
    """More late-bound names of ``contract.plan``, by node."""


class Allocation(Protocol):
    """The nodes of one job: waiting for them, keeping them for another attempt, and giving them back."""

    lost_node_kind: Literal["node", "node preemption"] = "node"
    """The kind of an end by the loss of a node: a preemption where ``decide_next`` finds another node."""

    needs_progress: bool = False
    """Whether ``decide_next`` has to know if an attempt has left anything new."""

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        """
        Block until the nodes are there; False when ``canceled`` first, which ``wake`` becoming readable may tell.
        ``on_wait`` gets the reason each time that it changes. Raises EngineError when there never can be any.
        """

    def decide_next(self, end_kind: EndKind, *, progressed: bool) -> NextAttempt:
        """Decide where the next attempt runs after one that ended so (``policy.Finish.kind``), and ask for it."""

    def release(self) -> None:
        """Give the nodes back. May be called twice."""
        return


class AgentStarter(Protocol):
    """
    Starts one agent on each node, and knows how each has ended. The defaults are for agents elsewhere, which end by
    themselves when this process goes.
    """

    join_timeout_s: float = 300.0
    """From the start of the agents until all have joined and node 0 was reached."""

    silence_s: int
    """After which an agent that does not answer at all is lost: its machine, or the way there, is off."""

    warm_pool: str | None = ""
    """Where agents find the pool of warm interpreters; empty: each has its own; None: this job gains nothing by one."""

    def listen(self) -> socket.socket:
        """Return the socket at which the supervisor hears the agents of one attempt. Raises EngineError, OSError."""
        import socket

        # By which address the agents come is not known; a secret lets them in.
        return socket.create_server(("0.0.0.0", 0), backlog=1024)  # noqa: S104

    def start(self, port: int, secret: str) -> AgentProcesses:
        """Start an agent on each node, which connects to that port. Raises EngineError.

        Called once for each attempt, when the agents of the one before have ended.
        """

    def start_again(self) -> int | None:
        """
        Start the agents again after their starter has ended for a passing reason before any agent came. Return the
        descriptor of the new one, as ``AgentProcesses.starter``; None: no more agents will come.
        """
        return None

    def reap(self, node: int) -> str:
        """Reap an agent whose own descriptor is readable; return how it ended: ``was killed by SIGKILL``."""
        return "ended"

    def end(self, node: int) -> None:
        """End an agent that does not answer. No error when it is gone."""
        return

    def hold(self, node: int, *, wanted: bool) -> None:
        """Stop the process of an agent, or let it go on, for a drill, which is refused where agents are elsewhere."""
        return

    def find_failed(self) -> dict[int, str]:
        """Return by node why agents elsewhere could not start, of those that could say so, before all have joined."""
        return {}

    def explain_missing(self, node: int) -> str | None:
        """Return why an agent did not join in time; None: nothing is known but the time."""
        return None

    def explain_loss(self, node: int) -> str:
        """Return why an agent closed its connection: ``was lost: Slurm says that its node is down``."""
        return "closed its connection"

    def find_cut_off(self) -> dict[int, str]:
        """Return by node why its agent cannot be reached, where more is known of it than its silence."""
        return {}

    def clear(self) -> None:
        """Remove what was made for the agents. May be called twice."""
        return


class ClusterNode(NamedTuple):
    """
    A node of a compute. ``jobs``: None where the engine does not say. Where jobs of others are seen, also what is free;
    None where that is not known.
    """

    node: str | None
    state: str
    cores: float | None
    gpus: int
    memory_mb: int | None
    reason: str | None = None
    jobs: None = None
    address: str | Absent | None = ABSENT
    cores_in_use: int | Absent | None = ABSENT
    free_cores: float | Absent | None = ABSENT
    free_gpus: float | Absent | None = ABSENT
    free_memory_mb: float | Absent | None = ABSENT


class NodeFacts:
    """Facts of the nodes of a job, from the hello of each agent of an attempt."""

    interface = ""
    """The network interface by which the nodes reach each other; empty: ``choose_network`` says which."""

    clocks_differ = True
    """Whether the nodes' clocks have to be compared with this machine's."""

    are_separate = True
    """Whether the nodes can differ from each other, so that it pays to check them before the ranks start."""

    memory_bytes = 0
    """What the job was given of each node's memory; 0: there is no such limit, or it is not known."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._hellos: dict[int, Hello] = {}

    def add(self, node: int, hello: Hello) -> None:
        """Take in what an agent says of its node."""
        self._hellos[node] = hello

    def gpus(self, node: int) -> str:
        """Return the node's GPUs as CUDA_VISIBLE_DEVICES wants them; empty for none."""
        return self._hellos[node].gpus

    def identify(self, pid: int) -> dict[str, Any] | None:
        """Return the identity of an agent's process (``process_identity``), if it is one of this machine."""
        return None

    def choose_network(self) -> Network | None:
        """
        Choose the network when all agents have joined. Raises EngineError.

        None: each agent has the address in its hello, and ``interface``.
        """
        return None


class Preemption(Protocol):
    """Explains the signals by which an engine takes nodes away."""

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        """Explain a signal to the agent of a node (None: to this process). ``by``: all that the receiver knows."""

    def has_signaled_ranks(self) -> bool:
        """Return whether the sender of the last signal has sent SIGTERM to the ranks as well."""
        return False


class PlayedNetwork(Protocol):
    """
    The network of nodes that this machine plays, and their limits, for drills. Each function raises EngineError for
    what this machine cannot do, and is called in the supervisor's main thread.
    """

    off: set[int]
    """Nodes whose power was cut."""

    def cut_power(self, node: int) -> None:
        """Cut the node's cable, then kill all that runs on it; it stays off for the attempt. Nobody is told."""

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """
        Part the network: nodes reach those of their own group alone. The nodes in no group form one more, and that
        has the supervisor; where every node is in a group, none reaches the supervisor.
        """

    def heal(self) -> None:
        """Undo ``partition``."""

    def set_link(self, node: int, rate: str = "", latency: str = "", loss: str = "") -> None:
        """Give a node's link these values, as a compute's YAML has them; all empty: those of the compute again."""

    def explain_delays(self) -> str:
        """Return what a reader of the times on a late or lossy link must know; empty: they are right."""

    def set_cpus(self, node: int, count: float | None = None) -> None:
        """Limit the node to the time of so many processors; None: what the compute says again."""

    def set_memory(self, node: int, size_bytes: int | None = None) -> None:
        """Limit the node's memory; None: what the compute says again."""


class Nodes(NamedTuple):
    """The nodes of one job, for its supervisor. ``network``: of isolated nodes; None: of all others."""

    allocation: Allocation
    agents: AgentStarter
    facts: NodeFacts
    preemption: Preemption
    network: PlayedNetwork | None = None

    def release(self) -> None:
        """Remove what was made on the nodes, and give them back. May be called twice."""
        self.agents.clear()
        self.allocation.release()


class Engine(Protocol):
    name: str
    shares_machine: bool
    """Whether all nodes are this machine."""

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        """Return what each of so many nodes would have; nothing is reserved. ``compute``: its settings."""

    def list_reached(self, compute: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the folders that its nodes have as they are named here; None: all of them."""

    def mpi(self, search_path: str) -> Mpi | None:
        """Return the MPI that nodes with this PATH have; None: there is none that is known here."""

    def warnings(self, plan: Plan) -> list[str]:
        """List what of the job is honoured only in part. Raises PlanError for what the compute does not have."""

    def render(self, plan: Plan, folder: RunFolder) -> str:
        """Return as text what ``submit`` would send; empty: nothing is sent. Pure. Raises PlanError."""

    def submit(self, folder: RunFolder, start: Callable[[str, str], None] | None, secrets: str = "") -> None:
        """
        Have the job's supervisor started, wherever this engine runs it, and return at once.

        ``start`` starts it on this machine as a fork of this process, and is given when that is ours to fork.
        ``secrets``: for the supervisor alone, as ``contract.secrets`` has them. Raises EngineError.
        """

    def claim(self, folder: RunFolder) -> str:
        """
        Claim the job for a supervisor in a batch step; return why the job is not this step's to run, else nothing.
        """

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        """Return the nodes of the job, for its supervisor."""

    def run_beside(
        self, folder: RunFolder, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
    ) -> int:
        """
        Run a command, or a shell for none, where a rank runs, with this process's input and output; return its exit
        code. Blocks. Raises NotFoundError, UsageError, EngineError.
        """

    def view_job(self, folder: RunFolder, *, may_withdraw: bool = False) -> JobView | None:
        """
        Ask about a job. Never raises. None: its supervisor is a process of this machine, which tells more.

        ``may_withdraw``: take a job out of the queue that was canceled, or can never start; without it nothing changes.
        """

    def withdraw(self, folder: RunFolder) -> None:
        """Take a job that has no nodes yet out of the engine's queue. Raises EngineError when that does not answer."""

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """
        Return what the engine calls the job and knows of it, for people. Never raises.

        ``brief``: without the facts for which the engine must be asked about each job.
        """

    def is_here(self) -> bool:
        """Return whether this machine is set up to give it jobs; whether it answers is another matter."""

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """List the settings of a compute that cannot be right, as seen from this machine; empty when all can."""

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return what is known of a compute now, as JSON can hold it. Raises EngineError when that cannot be found out.
        """

    def list_nodes(self, compute: Mapping[str, Any]) -> list[ClusterNode]:
        """List the nodes. Raises EngineError as ``describe``."""
