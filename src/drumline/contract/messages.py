"""
The messages between a supervisor and its agents: a record each, sent as a line of JSON with its name as ``type``.

``ToAgent`` are commands, ``FromAgent`` are answers and reports. Both ends must have the same messages, since a job on
Slurm may find another version of this package on a node. ``Hello``, the first message of an agent, has ``version`` for
that; a field that is missing or unknown is therefore a mistake, and refused.

What an agent sees happen to its ranks it tells as the event of the job that this becomes, with the ``node`` ``HERE``.
``at``, and the times of such events, are in monotonic seconds of the agent's machine. Of ``code`` and ``signal`` one is
set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from drumline.contract import events as e
from drumline.contract.evidence import ExitEvidence  # noqa: TC001 - the codec looks it up here
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict

    from drumline.contract.evidence import RaisedException

    class ProcessState(TypedDict):
        """The kernel's word on a process: the letter of its state, and the function that it waits in."""

        pid: int
        name: str
        state: str
        waits_in: str

    class ProcessStack(ProcessState):
        """The place of a process in its program, and what else is known of it (``stacks.read_stacks``)."""

        frames: list[list[Any]]
        """File, line and function, the innermost first; empty: not known."""

        threads: int
        went_on: Optional[bool]
        is_done: bool
        """Whether the program has ended, and a thread or a child process keeps this one."""

        spin: dict[str, Any]
        collective: Optional[dict[str, Any]]
        raised: Optional[RaisedException]
        """The uncaught exception of its program, which the process outlives; None: there is none."""

        handled: Optional[RaisedException]
        """The one that it handled when it last entered a collective."""


HERE = -1
"""The node in an event that its agent tells: the supervisor knows which one that is."""


class SupervisorAddress(NamedTuple):
    """
    The file ``RunFolder.agents``, by which an agent that an engine starts by its own means finds its supervisor.

    It is for its owner alone: arguments and environments can be read by others.
    """

    version: str
    package: str
    """As in ``Hello``, of the supervisor."""

    token: str
    """Names the attempt, so that the file of an earlier one is not taken for it."""

    addresses: list[str]
    """Of the supervisor's machine, of which only some lead there from a node."""

    port: int
    secret: str
    scratch: str = ""
    """The folder for the node's own; empty: TMPDIR."""

    wants_memory: bool = False
    """Whether the node needs a folder in shared memory."""

    host_variable: str = ""
    """The environment variable that has the machine's name."""

    ended_by: str = ""
    """The program whose SIGTERM reaches the ranks too; empty: there is none."""


# From the supervisor: what an agent is to do.


class PrepareNode(NamedTuple):
    """Lease ports for ``ports``, names that the plan leaves open. Answer: ``NodePrepared``."""

    ports: list[str]
    wants_probe: bool = False
    """Listen on one more port, that of ``ConnectToFirst`` on the other nodes."""

    wants_launcher_socket: bool = False
    address: str = ""
    """The node's address on the network of the ranks; empty: the one of its ``Hello``."""


class ConnectToFirst(NamedTuple):
    """Try whether node 0 can be reached. Answer: ``ConnectedToFirst``."""

    address: str
    port: int


class CheckNode(NamedTuple):
    """
    Gather facts of the node for the checks before the ranks start, and listen for the other nodes. ``settings``: as of
    ``checks/registry.py``. Answer: ``NodeChecked`` with the part ``facts``.
    """

    address: str
    settings: dict[str, Any]
    deadline_s: float


class CheckLinks(NamedTuple):
    """
    Connect to the nodes ``peers``, and measure the links to those of ``rounds``, one after the other (-1: none).
    ``places``: address and port by node. Answer: ``NodeChecked`` with the part ``links``.
    """

    places: dict[str, list[Any]]
    peers: list[int]
    rounds: list[int]
    connect_s: float
    deadline_s: float


class ShareVariables(NamedTuple):
    """
    Take what ``LaunchRanks`` leaves out, because it is the same for all nodes: with many of them this is most of what
    there is to say. A rank's own variables override its node's, and these ``env``; ``last`` overrides all of them.
    """

    env: dict[str, str]
    last: dict[str, str]
    texts: dict[str, str]
    """Texts for references such as ``${text:host_list}`` in the variables of ranks, by reference."""

    secrets: Mapping[str, str] = {}
    """More variables of ranks, which override the others."""


class RankLaunch(NamedTuple):
    """A rank of ``LaunchRanks``, with what differs from ``ShareVariables``."""

    rank: int
    argv: list[str]
    env: dict[str, str]
    log: str


class LauncherTask(NamedTuple):
    """A launcher of ranks, such as mpirun."""

    argv: list[str]
    env: dict[str, str]
    log: str


class SampleFile(NamedTuple):
    """The file to which samples of the ranks' use are written."""

    path: str
    attempt: int


class WarmSettings(NamedTuple):
    """
    Settings of warm starts. ``mode``: off, auto or on. ``pool``: the folder of the machine's warm pool; empty: the
    agent starts its own.
    """

    mode: str = "off"
    pool: str = ""


class LaunchRanks(NamedTuple):
    """
    Start the ranks of the node, or the launcher that asks for them. Answers: ``RankStarted`` and ``RankEnded`` for
    each rank, ``LauncherExited``.
    """

    ranks: list[RankLaunch]
    cwd: str
    unset: list[str]
    """Names of variables that processes do not inherit; one that ends in ``*`` stands for all that begin so."""

    cores: list[int]
    node_env: dict[str, str]
    """More for what is no rank: the launcher, and commands of other nodes."""

    by_launcher: bool = False
    launcher: Optional[LauncherTask] = None
    """The launcher itself, for the first node."""

    host_name: str = ""
    """Of what other nodes start here; empty: the machine's own."""

    container: Optional[Mapping[str, Any]] = None
    samples: Optional[SampleFile] = None
    log_times: str = ""
    """The file for notes of when logs grow (``contract/log_times.py``); empty: none."""

    steps: str = ""
    """The file for the steps of training loops (``contract/steps.py``); empty: they are not followed."""

    warm: WarmSettings = WarmSettings()
    secrets: Sequence[str] = ()
    """Names of variables of the ranks that no process may have that outlives the job."""

    env: Mapping[str, str] = {}
    """Of all ranks of the node."""


class ReadClock(NamedTuple):
    """Answer: ``ClockRead``."""


class PollProgress(NamedTuple):
    """Say what each rank has done so far, and with ``wants_stacks`` where it is. Answer: ``ProgressPolled``."""

    id: int
    wants_stacks: bool


class InspectRanks(NamedTuple):
    """Say where each rank is, and which exceptions it is handling. Answer: ``RanksInspected``."""


class ListConnections(NamedTuple):
    """Say which TCP connections each rank has. Answer: ``ConnectionsListed``."""


class RunCommand(NamedTuple):
    """
    Run what a program of another node asks for. Its streams go to ``address``, ``port``, with ``token`` to be known by.
    Answer: ``CommandEnded``.
    """

    id: int
    address: str
    port: int
    token: str
    command: str
    has_input: bool


class EndCommand(NamedTuple):
    """End the command of that ``RunCommand``: its caller is gone."""

    id: int


class AnswerCaller(NamedTuple):
    """Tell a program of this node how the command ended that it asked for; ``not_ours``: its host is not the job's."""

    caller: int
    code: Optional[int]
    signal: Optional[int]
    not_ours: bool = False


class BeginDrill(NamedTuple):
    """
    Make a failure on purpose: a kind of ``contract/drill_kinds.py`` that agents can make. ``spared``: folders whose
    disks are not to be filled. Answer: ``DrillTaken``, but by an agent that is to be killed.
    """

    drill: str
    kind: str
    ranks: list[int]
    spared: list[str]


class EndDrill(NamedTuple):
    """End a drill that lasts."""

    drill: str
    kind: str
    ranks: list[int]


class TerminateRanks(NamedTuple):
    """Send SIGTERM to the ranks; ``may_be_told``: whoever takes the nodes may have sent it to them already."""

    grace_s: float
    may_be_told: bool = False


class KillRanks(NamedTuple):
    """Send SIGKILL to the ranks."""


class EmptyNode(NamedTuple):
    """End everything that the ranks left. Answer: ``NodeEmptied``."""

    grace_s: float


class LeaveJob(NamedTuple):
    """The agent's last message: its work is done."""


class Compressed(NamedTuple):
    """
    A long message to many agents, which ``decode_for_agent`` decompresses. ``ShareVariables`` has the list of all nodes
    and goes to each of them, so the bytes to send grow with the square of their number.
    """

    line: str
    """Its line, compressed by zlib, as base64."""


# From an agent: answers, and what it has seen.


class Hello(NamedTuple):
    """
    The first message. All versions have ``secret``, ``node``, ``version`` and ``package``.

    ``containment``: what holds together all that ranks start, ``cgroup`` or ``subreaper``. Agents that an engine
    starts by its own means tell of their machine, too.
    """

    secret: str
    node: int
    version: str
    package: str
    """The folder of the agent's ``drumline``."""

    pid: int
    address: str
    containment: str
    host: str = ""
    gpus: str = ""
    interfaces: Sequence[Mapping[str, Any]] = ()
    """As of ``interfaces.list_interfaces``."""

    infiniband: Sequence[Mapping[str, Any]] = ()
    """As of ``interfaces.list_infiniband_ports``."""

    reached: Mapping[str, str] = {}
    """Addresses of the supervisor's machine, and by which one of this each was reached."""

    machine: str = ""
    """Equal for agents whose nodes are one machine with one network; empty: not known."""


class NodePrepared(NamedTuple):
    ports: dict[str, int]
    probe_port: int


class ConnectedToFirst(NamedTuple):
    """The node tried to reach node 0. ``error``: why node 0 cannot be reached; empty when it can."""

    error: str


class NodeChecked(NamedTuple):
    """The facts that were asked for. ``part``: facts or links."""

    part: str
    facts: dict[str, Any]


class RankEnded(NamedTuple):
    """A rank has ended. ``error``: why the program could not be started."""

    rank: int
    code: Optional[int]
    signal: Optional[int]
    error: str
    at: float
    evidence: Optional[ExitEvidence]


class OtherMpiSeen(NamedTuple):
    """A rank has loaded a library of another MPI than that of the launcher which has started it."""

    rank: int
    launcher_kind: str
    library: str
    library_kind: str


class ExceptionSeen(NamedTuple):
    """The program of a rank, or of a process that it started, has ended of an exception, which it may outlive."""

    rank: int


class TrainingSeen(NamedTuple):
    """A rank has its first optimizer, where that can be seen: PyTorch's."""

    rank: int


class RankConnections(NamedTuple):
    """
    The TCP connections of a rank's processes. ``ends``: of each its own end and the other, as ``10.0.0.1:29500``; None:
    they are not known, too many, or the rank may reach others without them.
    """

    rank: int
    ends: Optional[list[list[str]]]


class ConnectionsListed(NamedTuple):
    """The connections of the node's ranks, as asked for."""

    ranks: list[RankConnections]


class ClockRead(NamedTuple):
    at: float


class Activity(NamedTuple):
    """
    The activity of a rank so far. ``collectives``: those of all ranks that it has entered; ``counted``: these, others,
    batches and steps. ``net_bytes``: of TCP; ``written_bytes``: to files and pipes. ``sleep_s``: how long its main
    thread, or that of a child that it waits for, goes on sleeping.
    """

    collectives: int = 0
    counted: int = 0
    requests: int = 0
    net_bytes: int = 0
    written_bytes: int = 0
    sleep_s: float = 0.0


class RankProgress(NamedTuple):
    """The progress of a rank so far, and of that ``poll_...``: for this poll."""

    rank: int
    log_bytes: int
    cpu_s: float
    io_bytes: int
    poll_cpu_s: float
    poll_io_bytes: int
    processes: list[ProcessStack]
    activity: Activity


class ProgressPolled(NamedTuple):
    """
    The progress of a node's ranks, as asked for. ``other_...``: what has been used by processes that are no rank's.
    """

    id: int
    ranks: list[RankProgress]
    other_cpu_s: float
    other_io_bytes: int


class RankInspection(NamedTuple):
    """
    The place of a rank, and what it is failing of. ``in_flight``: the exceptions that a rank handles, the latest first;
    None: it has not answered.
    """

    rank: int
    processes: list[ProcessStack]
    in_flight: Optional[list[RaisedException]]


class RanksInspected(NamedTuple):
    ranks: list[RankInspection]


class CommandRequested(NamedTuple):
    """
    A program of this node asks for a command on ``host``; ``of_launcher``: a daemon without which ranks cannot go on.
    Answer: ``AnswerCaller``.
    """

    caller: int
    of_launcher: bool
    host: str
    address: str
    port: int
    token: str
    command: str
    has_input: bool


class CallerGone(NamedTuple):
    """The program of this node that asked for a command was killed."""

    caller: int


class CommandEnded(NamedTuple):
    id: int
    code: Optional[int]
    signal: Optional[int]
    error: str


class LauncherExited(NamedTuple):
    """``said``: how its explanation begins, which is in a file of that node; empty: it has none."""

    code: Optional[int]
    signal: Optional[int]
    error: str
    said: str = ""


class RankAbandoned(NamedTuple):
    """The launcher has ended what stood for a rank."""

    rank: int


class RankMisplaced(NamedTuple):
    """The launcher asks for a rank that is not this node's."""

    rank: int


class NoticeReceived(NamedTuple):
    """The node is taken away in a while; ``by`` completes "preempted by ..."."""

    by: str


class AgentLeaving(NamedTuple):
    """The agent ends without being asked to."""

    reason: str


class DrillTaken(NamedTuple):
    """A drill has begun, or could not: ``error`` says why."""

    drill: str
    error: str


class NodeEmptied(NamedTuple):
    """The node was emptied. ``survivors``: what even SIGKILL did not end."""

    survivors: list[ProcessState]


ToAgent = Union[
    PrepareNode, ConnectToFirst, CheckNode, CheckLinks, ShareVariables, LaunchRanks, ReadClock, PollProgress,
    InspectRanks, ListConnections, RunCommand, EndCommand, AnswerCaller, BeginDrill, EndDrill, TerminateRanks,
    KillRanks, EmptyNode, LeaveJob,
]  # fmt: skip

SeenEvent = Union[
    e.RankStarted, e.FirstOutput, e.GroupFormed, e.WarmAsked, e.WarmStart, e.WarmDeclined, e.JobWarned,
    e.ExperimentBegan, e.ExperimentEnded,
]  # fmt: skip

FromAgent = Union[
    Hello, NodePrepared, ConnectedToFirst, NodeChecked, RankEnded, TrainingSeen, OtherMpiSeen, ExceptionSeen, ClockRead,
    ProgressPolled, RanksInspected, ConnectionsListed, CommandRequested, CallerGone, CommandEnded, LauncherExited,
    RankAbandoned, RankMisplaced, NoticeReceived, AgentLeaving, DrillTaken, NodeEmptied, SeenEvent,
]  # fmt: skip
