"""
The events of a job: appended once to ``events.jsonl``, one JSON object a line, never edited.

Events are the truth; status, reason and timeline are one fold over them (``outcome.fold``).
``time`` is seconds since 1970 by the clock of the supervisor's machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional, Union, get_args

from drumline.contract.record import NamedTuple, list_types, read_record

if TYPE_CHECKING:
    from typing import Literal

    from drumline.contract.evidence import RecordedEvidence

    EndKind = Literal["failure", "node", "hang", "preemption", "node preemption"]
    """
    What ended an attempt: the failure of a rank or of what starts them, the loss of a node, a hang; or a preemption of
    the job or of a node, which are no failures.
    """

# Named tuples: a tenth of what dataclasses cost to import, and a command line imports these.


class JobSubmitted(NamedTuple):
    """
    The job was submitted. ``kind``: command, pipeline or sweep; the two latter have a driver in the place of a
    supervisor.
    """

    time: float
    user: str
    engine: str = "local"
    kind: str = "command"


class JobWaiting(NamedTuple):
    """The job waits in line; ``reason`` says for what, and who holds it."""

    time: float
    reason: str


class JobPreparing(NamedTuple):
    """Nodes are there; code and inputs are being put in place."""

    time: float


class TransferProgress(NamedTuple):
    """
    Data is on its way; told at most once in two seconds. ``name``: ``inputs.digits``, ``outputs.model``.
    ``total_bytes`` and ``total_files`` grow while a folder is being listed.
    """

    time: float
    name: str
    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int


class Transferred(NamedTuple):
    """
    Data is where it is to be. ``uri``: without secrets. ``cached_bytes``: how many of them the cache had.
    ``verified``: how many files were compared with a digest that the service gives. ``note``: what differs from what
    the job asked for, such as that nothing was mounted.
    """

    time: float
    name: str
    uri: str
    size_bytes: int
    file_count: int
    cached_bytes: int = 0
    seconds: float = 0.0
    verified: int = 0
    note: str = ""


class EnvironmentBuilding(NamedTuple):
    """The environment of the job is being built. ``what``: in words. ``log``: relative to the run folder."""

    time: float
    what: str
    log: str = ""


class EnvironmentReady(NamedTuple):
    """The environment of the job is there. ``reused``: an earlier job, or another one meanwhile, has made it."""

    time: float
    digest: str
    prefix: str
    seconds: float = 0.0
    reused: bool = False


class ServiceStarted(NamedTuple):
    """
    A service beside the job was started, or could not be. ``url``: empty where there is nothing to open. ``error``: why
    it did not start; the job goes on.
    """

    time: float
    name: str
    kind: str
    url: str = ""
    node: int = 0
    error: str = ""


class JobStarting(NamedTuple):
    """The agents are being started."""

    time: float


class AgentJoined(NamedTuple):
    """
    The agent of a node has joined. ``who``: its identity, where it runs on the supervisor's machine. ``containment``:
    what holds together all that its ranks start: ``cgroup``, else ``subreaper``. ``host``: the machine's name; empty
    where all nodes are this one.
    """

    time: float
    node: int
    pid: int
    address: str
    who: Optional[dict[str, Any]] = None
    containment: str = "subreaper"
    host: str = ""


class NetworkChosen(NamedTuple):
    """The network by which the ranks reach each other was chosen: interface and address by node, and why these."""

    time: float
    interfaces: list[str]
    addresses: list[str]
    reason: str


class PreflightEnded(NamedTuple):
    """
    The nodes were checked before the ranks start, which took ``seconds``. ``detail``: ``findings``, each with id,
    status, node, finding and remedy; ``links``, each with from, to, bytes_per_s and seconds (there and back).
    """

    time: float
    seconds: float
    detail: dict[str, Any]


class RankStarted(NamedTuple):
    time: float
    rank: int
    node: int
    pid: int


class WarmAsked(NamedTuple):
    """The ranks of a node wait for a warm interpreter, which may have to import first."""

    time: float
    node: int


class WarmStart(NamedTuple):
    """
    The ranks of a node are forked from an interpreter that has imported ``modules``. ``began``: when it was asked for.
    ``reused``: it was warm already; else it took ``import_s`` to become so. ``until``: what in the program kept the
    rest from being imported ahead, as ``train.py:12: os.environ.update(...)``; empty: nothing.
    """

    time: float
    node: int
    began: float
    reused: bool
    import_s: float
    modules: list[str]
    until: str = ""
    pid: int = 0


class WarmDeclined(NamedTuple):
    """The ranks of a node, or one of them, were started cold, and why. ``asked``: the job said ``warm: on``."""

    time: float
    node: int
    reason: str
    asked: bool = False
    rank: Optional[int] = None


class FirstOutput(NamedTuple):
    """A rank of this attempt wrote its first bytes."""

    time: float
    rank: int
    node: int


class GroupFormed(NamedTuple):
    """A rank had joined its first process group, where that can be seen: PyTorch's."""

    time: float
    rank: int
    node: int
    backend: str = ""


class JobRunning(NamedTuple):
    """Every rank was started."""

    time: float


class RankExited(NamedTuple):
    """One of ``code`` and ``signal`` is set; ``error`` when the program could not be started (code 126, 127)."""

    time: float
    rank: int
    node: int
    code: Optional[int]
    signal: Optional[int]
    error: str = ""
    evidence: Optional[RecordedEvidence] = None


class NodeLost(NamedTuple):
    """The agent of a node ended, or could not be reached."""

    time: float
    node: int
    reason: str


class AgentSilent(NamedTuple):
    """The agent of a node does not answer: ``reason`` completes "the agent of node 1 ..."; empty: it does now."""

    time: float
    node: int
    reason: str


class CancelRequested(NamedTuple):
    """The end of the job was requested. ``at_once``: without the grace period."""

    time: float
    by: str
    at_once: bool = False


class Preempted(NamedTuple):
    """The ranks are asked to save what they have; ``node`` None: all nodes are taken away."""

    time: float
    by: str
    node: Optional[int] = None

    @property
    def reason(self) -> str:
        what = "its nodes are" if self.node is None else f"node {self.node} is"
        return f"{what} being taken away by {self.by}"


class JobStopping(NamedTuple):
    """The ranks that are left were sent SIGTERM."""

    time: float
    reason: str


class AttemptEnded(NamedTuple):
    """
    The ranks failed or were preempted, and are started again; ``attempt`` counts from 0. The rest is as in
    JobEnded. ``progressed``: whether it left anything new; None: unknown.
    """

    time: float
    attempt: int
    exit_code: int
    reason: str
    rank: Optional[int] = None
    node: Optional[int] = None
    verdict: Optional[dict[str, Any]] = None
    kind: EndKind = "failure"
    progressed: Optional[bool] = None

    @property
    def was_preempted(self) -> bool:
        return self.kind in ("preemption", "node preemption")


class JobHung(NamedTuple):
    """No rank goes on; ``reason`` says since when and where they are. The run folder's hang.json has their stacks."""

    time: float
    reason: str


class JobWentOn(NamedTuple):
    """The job goes on after it hung."""

    time: float


class JobWarned(NamedTuple):
    """
    Something about the job is likely wrong, and it goes on. ``kind``: world (its ranks are not connected), outputs
    (some of them stayed where it ran), pods (the cluster has ended one of a node), libuv (its PyTorch was built without
    it).
    """

    time: float
    kind: str
    text: str


class DrillBegan(NamedTuple):
    """
    A drill began: a failure that somebody makes on purpose. ``drill`` names it among those of the job, ``by`` says who
    asked for it. ``node`` and ``rank`` None: it is not about one. ``attempt``: in which it began.
    """

    time: float
    drill: str
    kind: str
    by: str
    node: Optional[int] = None
    rank: Optional[int] = None
    attempt: int = 0
    settings: Optional[dict[str, Any]] = None


class DrillEnded(NamedTuple):
    """A drill that lasts was ended, for that reason; or one was refused, and did not begin."""

    time: float
    drill: str
    kind: str
    reason: str
    node: Optional[int] = None
    rank: Optional[int] = None
    refused: bool = False


class StepStarted(NamedTuple):
    """
    A step of a pipeline, or a trial of a sweep, begins: ``job`` is about to be submitted for it. ``detail``: ``reused``
    for a step that takes over what ``job`` has written before; ``not_reused``, why a step runs again; ``params`` of a
    trial.
    """

    time: float
    step: str
    job: str
    detail: Optional[dict[str, Any]] = None


class StepEnded(NamedTuple):
    """
    A step or a trial has ended. ``status`` is one of status.TERMINAL, or Skipped; ``detail``: of a trial, its
    ``metric``.
    """

    time: float
    step: str
    status: str
    reason: str = ""
    detail: Optional[dict[str, Any]] = None


class ExperimentBegan(NamedTuple):
    """
    DeepSpeed's autotuner began an experiment, which is processes of this job. ``number``: the autotuner's own; None: it
    gave none.
    """

    time: float
    experiment: str
    number: Optional[int] = None


class ExperimentEnded(NamedTuple):
    """An experiment has ended. ``status`` is Completed or Failed; ``reason``: the cause of a failure, in a sentence."""

    time: float
    experiment: str
    status: str
    reason: str = ""


class JobFinalizing(NamedTuple):
    """Every rank has ended; what they left behind is being ended too."""

    time: float


class OutputRegistered(NamedTuple):
    """
    An output has become the asset ``name`` of that version, or, for that ``error``, not. ``away``: its home cannot be
    reached from the machine that tried; whoever looks from there tries again.
    """

    time: float
    output: str
    name: str
    version: str
    error: str = ""
    away: bool = False


class JobEnded(NamedTuple):
    """
    The last event that counts for the status. ``status`` is one of status.TERMINAL.

    ``exit_code`` is that of the rank that decided, 128 + its signal, 130 for a canceled job, 124 for one
    that ran into its time limit; ``rank`` is the one that failed first, None when none did. ``verdict``: what
    ``reason`` says of that rank and the others, as fields (``supervisor/explaining/verdict.py``).
    """

    time: float
    status: str
    exit_code: int
    reason: str
    rank: Optional[int] = None
    node: Optional[int] = None
    verdict: Optional[dict[str, Any]] = None


class JobEdited(NamedTuple):
    """
    The user changed fields of the job. ``changes``: field to new value, of display_name, description, tags, properties.
    """

    time: float
    changes: dict[str, Any]


class JobPruned(NamedTuple):
    """
    Parts of the job were pruned. ``parts``: folders of its run folder that were removed, such as ``outputs``; the job
    itself stays.
    """

    time: float
    parts: list[str]


class JobArchived(NamedTuple):
    time: float


class JobRestored(NamedTuple):
    time: float


Event = Union[
    JobSubmitted, JobWaiting, JobPreparing, TransferProgress, Transferred, EnvironmentBuilding, EnvironmentReady,
    ServiceStarted, JobStarting, AgentJoined, NetworkChosen, PreflightEnded, RankStarted, WarmAsked, WarmStart,
    WarmDeclined, FirstOutput, GroupFormed, JobRunning,
    RankExited, NodeLost, AgentSilent, CancelRequested, Preempted, JobStopping, AttemptEnded, JobHung, JobWentOn,
    JobWarned, DrillBegan, DrillEnded, StepStarted, StepEnded, ExperimentBegan, ExperimentEnded, JobFinalizing,
    OutputRegistered, JobEnded, JobEdited, JobPruned, JobArchived, JobRestored,
]  # fmt: skip

_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_decode = json.JSONDecoder().decode
_LATEST = 4e9


def to_line(event: Event) -> bytes:
    """Return one line of ``events.jsonl``, with its end."""
    data = {"type": type(event).__name__, **event._asdict()}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def begin_of(kind: type) -> bytes:
    """Return how each line of events of that kind begins, so that others need not be parsed."""
    return b'{"type":"%b"' % kind.__name__.encode()


def from_line(line: bytes) -> Event | None:
    """
    Return the event of a line; None if it is cut short, damaged, or of a type that a newer version writes.

    A field that a newer version added is left out. A value of another type, or a time that no clock shows, makes the
    line a damaged one: all that reads events counts on their types, and one job must not end a list of all.
    """
    try:
        data = _decode(line.decode())
        kind = _TYPES[data.pop("type")]
        known = list_types(kind)
        if not data.keys() <= known.keys():
            data = {field: value for field, value in data.items() if field in known}
        event: Event = read_record(kind, data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return event if 0 <= event.time < _LATEST else None
