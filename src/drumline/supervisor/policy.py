"""
Events in, instructions out: how a job goes from its first agent to its end. No clock, no process, no file.

    joining -> preparing -> reaching -> starting -> running -> [stopping] -> emptying -> over

A failure, a cancel or the time limit leads from any phase to ``stopping`` (SIGTERM, grace, SIGKILL), or straight to
``emptying`` when no rank is alive. ``emptying`` ends what ranks left behind; only then is the job over.
While all failures are of ranks that were cut off, ``running`` goes on for a moment (``supervisor/cause.py``).
"""

from __future__ import annotations

import signal
from typing import Any

from drumline.contract import status
from drumline.contract.events import RankExited
from drumline.contract.record import NamedTuple
from drumline.supervisor import cause, verdict, words

JOIN_TIMEOUT_S = 60.0
"""From the start of the agents until all have joined and node 0 was reached."""

EMPTY_TIMEOUT_S = 7.0
"""For an agent to say that nothing is left on its node; then it is given up."""

LEFTOVER_GRACE_S = 1.0
"""For what ranks leave behind when they end by themselves."""

BROKEN_DELAY_S = 1.0
"""When a launcher gives up, a rank's own failure may be the reason and still on its way; that would tell more."""

ABANDONED_DELAY_S = 3.0
"""When a launcher ends a rank, it is about to say why, and to end."""

LOST_DAEMON_CODE = 195
"""
With which Open MPI ends a rank that lost its daemon, which is a consequence of something else: -61.
Source: pmix_common.h, PMIX_ERR_LOST_CONNECTION.
"""

LAUNCHER_TIMEOUT_S = 60.0
"""For a launcher to ask for all its ranks."""

START_TIMEOUT_S = 600.0
"""For the agents to start another rank: imports for a warm start can take minutes on a slow file system."""

LAUNCHER_END_S = 5.0
"""For a launcher to end after its ranks."""

CANCELED_CODE = 130
PREEMPTED_CODE = 143
TIMEOUT_CODE = 124
NODE_LOST_CODE = 1
HUNG_CODE = 1


class Member(NamedTuple):
    """What the policy needs to know of a rank."""

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


class Started(NamedTuple):
    """``time``: seconds since 1970."""

    rank: int
    time: float | None = None


class Lost(NamedTuple):
    """``reason`` completes "the agent of node 1 ...": "was killed by SIGKILL"."""

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


class LauncherEnded(NamedTuple):
    """``reason``: empty when it ended well. ``killed``: it did not end by itself."""

    node: int
    reason: str
    code: int
    killed: bool = False


class Emptied(NamedTuple):
    node: int
    survivors: tuple[dict[str, Any], ...]
    """What even SIGKILL did not end: pid, name, state, waits_in."""


class Canceled(NamedTuple):
    """``grace_s``: what there is time for; None: the job's own grace period."""

    by: str
    at_once: bool
    grace_s: float | None = None


class Preempted(NamedTuple):
    """``node`` None: all nodes are taken away. ``by`` completes "preempted by ...". ``grace_s`` as of Canceled."""

    by: str
    node: int | None = None
    grace_s: float | None = None


class Hung(NamedTuple):
    """No rank goes on; ``reason`` says where they are. ``is_sure``: enough is known to end the job for it."""

    reason: str
    is_sure: bool = True


class WentOn(NamedTuple):
    """After it hung."""


class Found(NamedTuple):
    """What the ranks of a node answered to Seek."""

    node: int
    where: dict[int, cause.Where]


class Elapsed(NamedTuple):
    """A timer that was set."""

    timer: str


Happening = (
    RankExited
    | Joined
    | Prepared
    | Reached
    | Started
    | Lost
    | Broken
    | LauncherEnded
    | Emptied
    | Canceled
    | Preempted
    | Hung
    | WentOn
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
    timer: str
    seconds: float


class Finish(NamedTuple):
    status: str
    exit_code: int
    reason: str
    rank: int | None = None
    node: int | None = None
    verdict: dict[str, Any] | None = None
    kind: str = "failure"
    """
    What failed: ``failure`` (a rank, or what starts them), ``node`` (an agent was lost), ``hang``; or ``preemption``
    (of the job) and ``node preemption``, which are no failures.
    """


Instruction = Prepare | Reach | StartRanks | AllRunning | Terminate | Seek | Kill | Empty | SetTimer | Finish


class Policy:
    """
    ``members``: by rank. ``grace_s``: between SIGTERM and SIGKILL. ``timeout_s``: of the ranks; None: no limit.
    ``limit_s``: of all attempts together, of which ``timeout_s`` is what is left.
    ``launcher``: the name of what starts the ranks; empty: the agents do. ``ends_when_hung``: whether a job that hangs
    is ended. ``join_timeout_s``: from the start of the agents until all have joined and node 0 was reached.
    """

    def __init__(
        self,
        members: dict[int, Member],
        node_count: int,
        *,
        grace_s: float,
        timeout_s: float | None = None,
        limit_s: float | None = None,
        launcher: str = "",
        ends_when_hung: bool = False,
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        self._join_timeout_s = join_timeout_s
        self._ends_when_hung = ends_when_hung
        self._hang = ""
        self._members = members
        self._grace_s = grace_s
        self._timeout_s = timeout_s
        self._limit_s = limit_s if limit_s is not None else timeout_s
        self._launcher = launcher
        self._launcher_runs = bool(launcher)
        self._broken: Broken | None = None
        self._settled = False
        """Whether a failure from now on is a consequence of what broke."""

        self._phase = "joining"
        self._expected = set(range(node_count))
        self._nodes = set(range(node_count))
        self._answered: set[int] = set()
        self._started: set[int] = set()
        self._started_before = 0
        """How many had been when this was last looked at."""

        self._exited: dict[int, RankExited] = {}
        self._start_time: float | None = None
        self._lost_ranks: set[int] = set()
        """Those that ended with their node: nothing is known of that."""

        self._last_failure: RankExited | None = None
        """The last that was heard of before the others were told to end."""

        self._seeks = False
        """Whether ranks have failed for want of another, and that one is waited for."""

        self._asked: set[int] = set()
        """Nodes that have still to answer what they were asked."""

        self._where: dict[int, cause.Where] = {}
        self._waited_s = 0.0

        self._end: Finish | None = None
        self._taken: set[int] = set()
        """The nodes that were preempted."""

        self._survivors: list[dict[str, Any]] = []

    def begin(self) -> list[Instruction]:
        return [SetTimer("join", self._join_timeout_s)]

    def handle(self, event: Happening) -> list[Instruction]:
        """Take in one event; return what to do about it, in order."""
        if self._phase == "over":
            return []
        handler = getattr(self, f"_on_{type(event).__name__.lower()}")
        instructions: list[Instruction] = handler(event)
        return instructions

    def _on_joined(self, event: Joined) -> list[Instruction]:
        if self._phase == "emptying":
            # It was still starting when the others were told.
            return [Empty((event.node,), 0.0)]
        return [Prepare()] if self._all_answered("joining", event.node, "preparing") else []

    def _on_prepared(self, event: Prepared) -> list[Instruction]:
        if not self._all_answered("preparing", event.node, "reaching"):
            return []
        if len(self._expected) == 1:
            return self._start()
        self._answered = {0}
        return [Reach()]

    def _on_reached(self, event: Reached) -> list[Instruction]:
        if event.error:
            reason = f"node {event.node} cannot reach node 0: {event.error}"
            return self._fail(Finish(status.FAILED, NODE_LOST_CODE, reason, node=event.node))
        return self._start() if self._all_answered("reaching", event.node, "starting") else []

    def _all_answered(self, phase: str, node: int, following: str) -> bool:
        if self._phase != phase:
            return False
        self._answered.add(node)
        if self._answered < self._expected:
            return False
        self._phase, self._answered = following, set()
        return True

    def _start(self) -> list[Instruction]:
        self._phase = "starting"
        timers: list[Instruction] = []
        if self._timeout_s is not None:
            timers.append(SetTimer("limit", self._timeout_s))
        if self._launcher:
            timers.append(SetTimer("launcher", LAUNCHER_TIMEOUT_S))
        else:
            timers.append(SetTimer("start", START_TIMEOUT_S))
        return [StartRanks(), *timers]

    def _on_started(self, event: Started) -> list[Instruction]:
        self._started.add(event.rank)
        if event.time is not None:
            self._start_time = min(event.time, self._start_time or event.time)
        if self._phase == "starting" and len(self._started) == len(self._members):
            self._phase = "running"
            return [AllRunning()]
        return []

    def _on_rankexited(self, event: RankExited) -> list[Instruction]:
        self._exited[event.rank] = event
        if self._is_consequence(event):
            name = words.failed(self._label(event), event)
            reason = f"{name}, as one that has lost its daemon of {self._launcher}"
            return self._on_broken(Broken(event.node, reason, event.code or 1, ABANDONED_DELAY_S))
        if self._phase in ("stopping", "emptying"):
            return self._empty_when_still()
        if event.code != 0 or self._last_failure:
            self._last_failure = event if event.code != 0 else self._last_failure
            self._end = self._failure()
            return self._stop_or_seek()
        return self._complete_when_done()

    def _stop_or_seek(self) -> list[Instruction]:
        """A rank has failed: the others are told to end, once it is known why, or that this cannot be known."""
        unexplained = cause.is_unexplained(self._exited.values()) and self._first_is_cut_off
        if not unexplained or self._phase != "running" or not self._ranks_left(self._nodes):
            return self._stop_after_failure()
        if self._seeks:
            return []
        self._seeks = True
        self._waited_s = min(cause.SETTLE_S, self._grace_s)
        return [*self._seek(), SetTimer("cause", self._waited_s)]

    def _seek(self) -> list[Instruction]:
        """A node that is slow to answer must not hear of the end behind a queue of questions."""
        nodes = tuple(sorted(self._nodes - self._asked))
        self._asked |= self._nodes
        return [Seek(nodes)] if nodes else []

    @property
    def _first_is_cut_off(self) -> bool:
        """Whether whoever is named by now was cut off itself, and did not end early, for example."""
        assert self._end is not None
        assert self._end.rank is not None
        return self._exited[self._end.rank].code != 0

    def _stop_after_failure(self) -> list[Instruction]:
        self._seeks = False
        assert self._end is not None
        return self._stop(self._end.reason)

    def _on_found(self, event: Found) -> list[Instruction]:
        self._asked.discard(event.node)
        for rank, where in event.where.items():
            self._where[rank] = cause.merged(self._where.get(rank), where)
        return [SetTimer("ask", cause.ASK_AGAIN_S)] if self._seeks else []

    def _expire_ask(self) -> list[Instruction]:
        return self._seek() if self._seeks else []

    def _expire_cause(self) -> list[Instruction]:
        if not self._seeks:
            return []
        assert self._end is not None
        assert self._end.rank is not None
        left = [self._where[rank] for rank in self._ranks_left(self._nodes) if rank in self._where]
        waits_s = min(cause.patience_s(left, self._exited[self._end.rank]), self._grace_s)
        if waits_s <= self._waited_s:
            return self._stop_after_failure()
        more_s, self._waited_s = waits_s - self._waited_s, waits_s
        return [SetTimer("cause", more_s)]

    def _is_consequence(self, event: RankExited) -> bool:
        """Whether a rank was cut off by what its launcher did before; why it did that is still to come."""
        if not self._launcher or event.code == 0 or not self._is_running:
            return False
        if event.signal == signal.SIGKILL:
            return False  # No MPI sends it to a rank, whose process it does not know.
        # A rank that calls MPI_Abort ends with a code; those that are cut off by it may crash.
        is_crash = self._broken is not None and event.signal is not None
        return self._settled or is_crash or event.code == LOST_DAEMON_CODE

    def _complete_when_done(self) -> list[Instruction]:
        if any(member.awaited and rank not in self._exited for rank, member in self._members.items()):
            return []
        awaited = [member.label for member in self._members.values() if member.awaited]
        left = [member.label for rank, member in self._members.items() if rank not in self._exited]
        self._end = Finish(status.COMPLETED, 0, words.completed(awaited, left))
        if left:
            return self._stop("the ranks that were waited for are done")
        if self._launcher_runs:
            # It ends by itself, now that it has nothing to wait for, and tidies up.
            return [SetTimer("launcher end", LAUNCHER_END_S)]
        return self._empty(LEFTOVER_GRACE_S)

    def _on_broken(self, event: Broken) -> list[Instruction]:
        if not self._is_running or self._end is not None:
            return []
        if self._broken is not None and event.delay_s >= self._broken.delay_s:
            return []
        self._broken, self._settled = event, False
        if event.delay_s == 0:
            return self._fail(Finish(status.FAILED, event.code, event.reason, node=event.node))
        return [SetTimer("settled", BROKEN_DELAY_S), SetTimer("broken", event.delay_s)]

    def _on_launcherended(self, event: LauncherEnded) -> list[Instruction]:
        self._launcher_runs = False
        if not self._is_running:
            return []
        if self._seeks:
            return []  # It ended for want of the rank that is waited for, as the others did.
        if self._end is not None:
            return self._empty(LEFTOVER_GRACE_S)
        reason = event.reason or f"{self._launcher} ended before its ranks"
        return self._on_broken(
            Broken(event.node, reason, event.code, 0.0 if event.killed else BROKEN_DELAY_S)
        )

    def _on_lost(self, event: Lost) -> list[Instruction]:
        self._nodes.discard(event.node)
        for rank in self._ranks_left({event.node}):
            self._exited[rank] = RankExited(0.0, rank, event.node, None, 9)
            self._lost_ranks.add(rank)
        if self._phase in ("stopping", "emptying"):
            self._answered.add(event.node)
            return self._empty_when_still()
        reason = f"the agent of node {event.node} {event.reason}"
        return self._fail(Finish(status.FAILED, NODE_LOST_CODE, reason, node=event.node, kind="node"))

    def _on_canceled(self, event: Canceled) -> list[Instruction]:
        if self._phase == "stopping" and event.at_once:
            return self._kill()
        if self._phase == "emptying" and event.at_once:
            return [Kill(tuple(sorted(self._nodes)))]
        if self._seeks:
            stop = self._stop_after_failure()
            return [*stop, *self._kill()] if event.at_once and self._phase == "stopping" else stop
        if self._taken and self._phase in ("stopping", "emptying"):
            # It is ending already, and there is nobody to start it again for.
            self._end = Finish(status.CANCELED, CANCELED_CODE, f"canceled by {event.by}")
        if self._phase in ("stopping", "emptying") or self._end is not None:
            return []
        self._shorten(event.grace_s)
        self._end = Finish(status.CANCELED, CANCELED_CODE, f"canceled by {event.by}")
        stop = self._stop(f"canceled by {event.by}")
        return [*stop, *self._kill()] if event.at_once and self._phase == "stopping" else stop

    def _on_preempted(self, event: Preempted) -> list[Instruction]:
        is_first = self._end is None
        if self._seeks:
            self._shorten(event.grace_s)
            return self._stop_after_failure()
        if not is_first and not self._taken:
            return []
        self._shorten(event.grace_s)
        self._taken |= self._expected if event.node is None else {event.node}
        node = event.node
        if self._taken >= self._expected:
            reason, kind, node = f"preempted by {event.by}", "preemption", None
        elif is_first:
            reason, kind = f"node {event.node} was preempted by {event.by}", "node preemption"
        else:
            return []
        self._end = Finish(status.FAILED, PREEMPTED_CODE, reason, node=node, kind=kind)
        if is_first:
            return self._stop(reason)
        # There may be less time than at first.
        return [SetTimer("grace", self._grace_s)] if self._phase == "stopping" else []

    def _shorten(self, grace_s: float | None) -> None:
        """Whoever takes the nodes away may leave less time than the job wishes for."""
        if grace_s is not None:
            self._grace_s = min(self._grace_s, grace_s)

    def _on_hung(self, event: Hung) -> list[Instruction]:
        self._hang = event.reason
        if not event.is_sure or not self._ends_when_hung or not self._is_running or self._end is not None:
            return []
        return self._fail(Finish(status.FAILED, HUNG_CODE, f"it hung: {event.reason}", kind="hang"))

    def _on_wenton(self, _event: WentOn) -> list[Instruction]:
        self._hang = ""
        return []

    def _kill(self) -> list[Instruction]:
        return [Kill(tuple(sorted(self._nodes))), SetTimer("kill", EMPTY_TIMEOUT_S)]

    def _on_elapsed(self, event: Elapsed) -> list[Instruction]:
        expire = {
            "join": self._expire_join,
            "limit": self._expire_limit,
            "grace": self._expire_grace,
            "cause": self._expire_cause,
            "ask": self._expire_ask,
            "kill": self._expire_kill,
            "empty": self._expire_empty,
            "settled": self._expire_settled,
            "broken": self._expire_broken,
            "launcher": self._expire_launcher,
            "start": self._expire_start,
            "launcher end": self._expire_launcher_end,
        }[event.timer]
        return expire()

    def _expire_join(self) -> list[Instruction]:
        if self._phase not in ("joining", "preparing", "reaching"):
            return []
        missing = sorted(self._expected - self._answered)
        what = ", ".join(f"node {node}" for node in missing)
        reason = f"{what} did not answer within {self._join_timeout_s:.0f} s"
        return self._fail(Finish(status.FAILED, NODE_LOST_CODE, reason, node=missing[0]))

    def _expire_limit(self) -> list[Instruction]:
        if not self._is_running or self._end is not None:
            return []
        reason = f"it ran into its time limit of {self._limit_s:g} s"
        if self._hang:
            reason += f"; it hung: {self._hang}"
        self._end = Finish(status.CANCELED, TIMEOUT_CODE, reason)
        return self._stop(reason)

    def _expire_grace(self) -> list[Instruction]:
        return self._kill() if self._phase == "stopping" else []

    def _expire_kill(self) -> list[Instruction]:
        return self._empty(0.0) if self._phase == "stopping" else []

    def _expire_empty(self) -> list[Instruction]:
        return self._over() if self._phase == "emptying" else []

    def _expire_settled(self) -> list[Instruction]:
        self._settled = self._broken is not None
        return []

    def _expire_broken(self) -> list[Instruction]:
        broken = self._broken
        if broken is None or not self._is_running or self._seeks:
            return []
        return self._fail(Finish(status.FAILED, broken.code, broken.reason, node=broken.node))

    def _expire_launcher(self) -> list[Instruction]:
        if self._phase != "starting":
            return []
        late = sorted(self._members.keys() - self._started)
        labels = ", ".join(self._members[rank].label for rank in late)
        reason = f"{self._launcher} did not start rank {labels} within {LAUNCHER_TIMEOUT_S:.0f} s"
        return self._fail(Finish(status.FAILED, 1, reason, node=0))

    def _expire_start(self) -> list[Instruction]:
        if self._phase != "starting":
            return []
        if len(self._started) > self._started_before:
            self._started_before = len(self._started)
            return [SetTimer("start", START_TIMEOUT_S)]
        late = sorted(self._members.keys() - self._started)
        nodes = sorted({self._members[rank].node for rank in late})
        who = words.ranks([self._members[rank].label for rank in late])
        where = ", ".join(f"node {node}" for node in nodes)
        reason = f"{where} did not start {who} within {START_TIMEOUT_S:.0f} s"
        return self._fail(Finish(status.FAILED, NODE_LOST_CODE, reason, node=nodes[0]))

    def _expire_launcher_end(self) -> list[Instruction]:
        return self._empty(0.0) if self._is_running else []

    @property
    def _is_running(self) -> bool:
        """Whether ranks may be alive that nobody has told to end."""
        return self._phase in ("starting", "running")

    def _on_emptied(self, event: Emptied) -> list[Instruction]:
        self._answered.add(event.node)
        self._survivors += event.survivors
        return self._over() if self._phase == "emptying" and self._nodes <= self._answered else []

    def _fail(self, end: Finish) -> list[Instruction]:
        self._end, self._seeks = end, False
        return self._stop(end.reason)

    def _stop(self, reason: str) -> list[Instruction]:
        """SIGTERM to what is left. A rank that is about to be started will be, and is then stopped with the others."""
        nodes = tuple(sorted(self._nodes))
        if not self._ranks_left(self._nodes) or self._phase in ("joining", "preparing", "reaching"):
            return self._empty(0.0)
        self._phase = "stopping"
        return [Terminate(reason, nodes, self._grace_s), SetTimer("grace", self._grace_s)]

    def _empty_when_still(self) -> list[Instruction]:
        if self._phase == "stopping":
            # What a shell started has the rest of the grace; its agent knows.
            rest_s = self._grace_s
            return [] if self._ranks_left(self._nodes) else self._empty(LEFTOVER_GRACE_S, rest_s)
        return self._over() if self._nodes <= self._answered else []

    def _empty(self, grace_s: float, rest_s: float = 0.0) -> list[Instruction]:
        self._phase, self._answered = "emptying", set()
        if not self._nodes:
            return self._over()
        grace_s = min(grace_s, self._grace_s)
        return [
            Empty(tuple(sorted(self._nodes)), grace_s),
            SetTimer("empty", max(grace_s, rest_s) + EMPTY_TIMEOUT_S),
        ]

    def _over(self) -> list[Instruction]:
        self._phase = "over"
        assert self._end is not None, "a job does not end without a reason"
        end = self._failure() if self._end.rank is not None else self._end
        reason = end.reason
        if self._survivors:
            reason += f"; even SIGKILL did not end {words.survivors(self._survivors)}"
        return [end._replace(reason=reason)]

    def _failure(self) -> Finish:
        stopped_after = self._last_failure.time if self._last_failure else None
        known = {rank: exit_ for rank, exit_ in self._exited.items() if rank not in self._lost_ranks}
        found = verdict.judge(self._members, known, stopped_after, self._start_time, self._where)
        return Finish(status.FAILED, found.exit_code, found.reason, found.rank, found.node, found.fields)

    def _label(self, event: RankExited) -> str:
        return self._members[event.rank].label

    def _ranks_left(self, nodes: set[int]) -> list[int]:
        return [
            rank
            for rank, member in self._members.items()
            # With a launcher, a rank that was not started by now will not be: agents refuse it.
            if member.node in nodes
            and rank not in self._exited
            and (not self._launcher or rank in self._started)
        ]
