"""The happenings in an attempt of a job, and the instructions that follow: what ``Policy`` takes and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.events import RankExited
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.messages import ProcessState
    from drumline.supervisor.explaining.missing_rank import RunningRank

    Timer = Literal[
        "join", "limit", "grace", "cause", "ask", "kill", "empty", "settled", "broken", "start", "launcher end",
        "preflight",
    ]  # fmt: skip

CANCELED_CODE = 130
PREEMPTED_CODE = 143
TIMEOUT_CODE = 124
NODE_LOST_CODE = 1
HUNG_CODE = 1
UNFIT_CODE = 1

BROKEN_DELAY_S = 1.0
"""When a launcher gives up, a rank's own failure may be the reason and still on its way; that would tell more."""


class Member(NamedTuple):
    """The facts of a rank that the policy needs."""

    node: int
    label: str
    awaited: bool = True


# What can happen, besides contract.events.RankExited.


class Joined(NamedTuple):
    node: int


class Prepared(NamedTuple):
    node: int


class Reached(NamedTuple):
    node: int
    error: str


class Checked(NamedTuple):
    """
    The nodes were checked. ``reason``: why no rank may start, of node ``node``; empty: ranks may start. ``is_all``: the
    job was to check its nodes alone.
    """

    reason: str = ""
    node: int | None = None
    is_all: bool = False


class Started(NamedTuple):
    """A rank was started. ``time``: seconds since 1970."""

    rank: int
    time: float | None = None


class Lost(NamedTuple):
    """A node was lost. ``reason`` completes "the agent of node 1 ...": "was killed by SIGKILL"."""

    node: int
    reason: str


class Broken(NamedTuple):
    """
    Something that the ranks need has ended; ``reason`` is a sentence, ``code`` the job's exit code.

    ``delay_s``: how long a better reason is waited for.
    """

    node: int
    reason: str
    code: int
    delay_s: float = BROKEN_DELAY_S


class DaemonsChanged(NamedTuple):
    """
    The number of daemons that run now, of an MPI's launcher that the job's own command has started. ``lost``: one that
    was killed, without which ranks cannot go on; None where the command has gone on since.
    """

    running: int
    lost: Broken | None = None


class LauncherEnded(NamedTuple):
    """
    The launcher has ended. ``reason``: empty when it ended well. ``killed``: it did not end by itself. ``quote``: of
    what it has said, and where; it completes any reason.
    """

    node: int
    reason: str
    code: int
    killed: bool = False
    quote: str = ""


class Emptied(NamedTuple):
    node: int
    survivors: tuple[ProcessState, ...]
    """What even SIGKILL did not end."""


class Canceled(NamedTuple):
    """The job was canceled. ``grace_s``: what there is time for; None: the job's own grace period."""

    by: str
    at_once: bool
    grace_s: float | None = None


class PreemptionAnnounced(NamedTuple):
    """
    A preemption was announced. ``node`` None: all nodes are taken away. ``by`` completes "preempted by ...", or
    another ``verb``. ``grace_s`` as of Canceled.
    """

    by: str
    node: int | None = None
    grace_s: float | None = None
    verb: str = "preempted"


class Hung(NamedTuple):
    """
    No rank goes on; ``reason`` says where they are, and is empty where they do again. ``ends``: the job is to be ended
    for it. ``lost``: a rank whose exception did not end it.
    """

    reason: str
    ends: bool = False
    lost: int | None = None


class Found(NamedTuple):
    """The answer of a node's ranks to Seek."""

    node: int
    where: dict[int, RunningRank]


class Elapsed(NamedTuple):
    """A timer that was set."""

    timer: Timer


Happening = (
    RankExited
    | Joined
    | Prepared
    | Reached
    | Checked
    | Started
    | Lost
    | Broken
    | DaemonsChanged
    | LauncherEnded
    | Emptied
    | Canceled
    | PreemptionAnnounced
    | Hung
    | Found
    | Elapsed
)


# What is to be done.


class Prepare(NamedTuple):
    pass


class Reach(NamedTuple):
    """All nodes but the first try to connect to the first."""


class StartRanks(NamedTuple):
    pass


class AllRunning(NamedTuple):
    pass


class Terminate(NamedTuple):
    reason: str
    nodes: tuple[int, ...]
    grace_s: float


class Seek(NamedTuple):
    """Ask the ranks that are left on those nodes where they are, and what they are failing of."""

    nodes: tuple[int, ...]


class Kill(NamedTuple):
    nodes: tuple[int, ...]


class Empty(NamedTuple):
    nodes: tuple[int, ...]
    grace_s: float


class SetTimer(NamedTuple):
    timer: Timer
    seconds: float


class Finish(NamedTuple):
    status: str
    exit_code: int
    reason: str
    rank: int | None = None
    node: int | None = None
    verdict: dict[str, Any] | None = None
    kind: EndKind = "failure"
    blames: Literal["", "rank", "launcher", "link"] = ""
    """
    Whom it blames where more may become known: one of the ranks, the launcher for a rank that aborted, or the link to
    node 0, whose agent may be gone.
    """


Instruction = Prepare | Reach | StartRanks | AllRunning | Terminate | Seek | Kill | Empty | SetTimer | Finish
