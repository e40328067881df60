"""
Events in, instructions out: how a job goes from its first agent to its end. No clock, no process, no file.

    joining -> preparing -> reaching -> [checking] -> starting -> running -> [stopping] -> emptying -> over

A failure, a cancel or the time limit leads from any phase to ``stopping`` (SIGTERM, grace, SIGKILL), or straight to
``emptying`` when no rank is alive. ``emptying`` ends what ranks left behind; only then is the job over.
While every failure is that of a lost peer, ``running`` goes on for a moment (``explaining/missing_rank.py``).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, assert_never

from drumline.contract import status
from drumline.contract.events import RankExited
from drumline.contract.words import format_seconds, name_several
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding.rank_table import CauseSearch, RankTable
from drumline.supervisor.explaining import exit_messages

if TYPE_CHECKING:
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.messages import ProcessState

    Phase = Literal[
        "joining", "preparing", "reaching", "checking", "starting", "running", "stopping", "emptying", "over"
    ]  # fmt: skip
_BEFORE_RANKS: tuple[Phase, ...] = ("joining", "preparing", "reaching", "checking")
_ALIVE: tuple[Phase, ...] = ("starting", "running")
"""Ranks may be alive that nobody has told to end."""

_PHASES: dict[h.Timer, tuple[Phase, ...]] = {
    "join": ("joining", "preparing", "reaching"),
    "preflight": (),
    "start": ("starting",),
    "limit": _ALIVE,
    "ask": _ALIVE,
    "cause": _ALIVE,
    "settled": _ALIVE,
    "broken": _ALIVE,
    "launcher end": _ALIVE,
    "grace": ("stopping",),
    "kill": ("stopping",),
    "empty": ("emptying",),
}
"""In which a timer means anything. That of the checks is for the loop, which then says ``Checked``."""

JOIN_TIMEOUT_S = 60.0
"""From the start of the agents until all have joined and node 0 was reached."""

EMPTY_TIMEOUT_S = 7.0
"""For an agent to say that nothing is left on its node; then it is given up."""

LEFTOVER_GRACE_S = 1.0
"""For what ranks leave behind when they end by themselves."""

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


class Policy:
    """
    Decides what happens to the ranks of an attempt. ``members``: by rank. ``grace_s``: between SIGTERM and SIGKILL.
    ``timeout_s``: of the ranks; None: no limit. ``limit_s``: of all attempts together, of which ``timeout_s`` is what
    is left. ``launcher``: the name of what starts the ranks; empty: the agents do. ``join_timeout_s``: from the start
    of the agents until all have joined and node 0 was reached.
    """

    def __init__(
        self,
        members: dict[int, h.Member],
        node_count: int,
        *,
        grace_s: float,
        timeout_s: float | None = None,
        limit_s: float | None = None,
        launcher: str = "",
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        self._awaits_checks = False
        self._join_timeout_s = join_timeout_s
        self._hang = ""
        self._grace_s = grace_s
        self._timeout_s = timeout_s
        self._limit_s = limit_s if limit_s is not None else timeout_s
        self._launcher = launcher
        self._launcher_runs = bool(launcher)
        self._broken: h.Broken | None = None
        self._settled = False
        """Whether a failure from now on is a consequence of what broke."""

        self._phase: Phase = "joining"
        self._expected = set(range(node_count))
        self._nodes = set(range(node_count))
        self._answered: set[int] = set()
        self._ranks = RankTable(members, is_launched=bool(launcher))
        self._search = CauseSearch()
        self._end: h.Finish | None = None
        self._taken: set[int] = set()
        """The nodes that were preempted."""

        self._blames_link = False
        """Whether a node has not reached node 0."""

        self._daemons = h.DaemonsChanged(0)
        self._survivors: list[ProcessState] = []

    def begin(self, *, awaits_checks: bool = False) -> list[h.Instruction]:
        """Begin the attempt. ``awaits_checks``: ranks start only when the nodes were checked (``Checked``)."""
        self._awaits_checks = awaits_checks
        return [h.SetTimer("join", self._join_timeout_s)]

    def handle(self, event: h.Happening) -> list[h.Instruction]:  # noqa: C901, PLR0911, PLR0912 - a case a happening
        """Take in one event; return what to do about it, in order."""
        match event:
            case _ if self._phase == "over":
                return []
            case RankExited():
                return self._on_rank_exited(event)
            case h.Joined():
                if self._phase == "emptying":
                    # It was still starting when the others were told.
                    return [h.Empty((event.node,), 0.0)]
                return [h.Prepare()] if self._all_answered("joining", event.node, "preparing") else []
            case h.Prepared():
                return self._on_prepared(event)
            case h.Reached():
                return self._on_reached(event)
            case h.Checked():
                return self._on_checked(event)
            case h.Started():
                self._ranks.note_start(event)
                if self._phase != "starting" or not self._ranks.are_all_started:
                    return []
                self._phase = "running"
                return [h.AllRunning()]
            case h.Lost():
                return self._on_lost(event)
            case h.Broken():
                return self._on_broken(event)
            case h.DaemonsChanged():
                has_fewer = event.running < self._daemons.running
                self._daemons = event
                goes_on = self._phase in _ALIVE and not self._ranks.has_failed
                return self._complete_when_done() if has_fewer and goes_on else []
            case h.LauncherEnded():
                return self._on_launcher_ended(event)
            case h.Emptied():
                self._answered.add(event.node)
                self._survivors += event.survivors
                return self._over() if self._phase == "emptying" and self._nodes <= self._answered else []
            case h.Canceled():
                return self._on_canceled(event)
            case h.PreemptionAnnounced():
                return self._on_preempted(event)
            case h.Hung():
                return self._on_hung(event)
            case h.WentOn():
                self._hang = ""
                return []
            case h.Found():
                return self._search.take(event)
            case h.Elapsed():
                return self._expire(event.timer)
            case _:
                assert_never(event)

    def _on_prepared(self, event: h.Prepared) -> list[h.Instruction]:
        if not self._all_answered("preparing", event.node, "reaching"):
            return []
        if len(self._expected) == 1:
            self._phase = "checking"
            return [] if self._awaits_checks else self._start()
        self._answered = {0}
        return [h.Reach()]

    def _on_reached(self, event: h.Reached) -> list[h.Instruction]:
        if event.error:
            reason = f"node {event.node} cannot reach node 0: {event.error}"
            self._blames_link = True
            return self._fail(h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=event.node))
        if not self._all_answered("reaching", event.node, "checking"):
            return []
        return [] if self._awaits_checks else self._start()

    def _on_checked(self, event: h.Checked) -> list[h.Instruction]:
        """Take in the end of the checks, which go on while the nodes are prepared."""
        self._awaits_checks = False
        if self._phase not in _BEFORE_RANKS or self._end is not None:
            return []
        if event.reason:
            return self._fail(h.Finish(status.FAILED, h.UNFIT_CODE, event.reason, node=event.node))
        if event.is_all:
            self._end = h.Finish(status.COMPLETED, 0, "the nodes were checked")
            return self._empty(0.0)
        return self._start() if self._phase == "checking" else []

    def _all_answered(self, phase: Phase, node: int, following: Phase) -> bool:
        if self._phase != phase:
            return False
        self._answered.add(node)
        # All that answer are expected: a comparison of their numbers takes no longer where there are many.
        if len(self._answered) < len(self._expected):
            return False
        self._phase, self._answered = following, set()
        return True

    def _start(self) -> list[h.Instruction]:
        self._phase = "starting"
        timers: list[h.Instruction] = []
        if self._timeout_s is not None:
            timers.append(h.SetTimer("limit", self._timeout_s))
        timers.append(h.SetTimer("start", LAUNCHER_TIMEOUT_S if self._launcher else START_TIMEOUT_S))
        return [h.StartRanks(), *timers]

    def _on_rank_exited(self, event: RankExited) -> list[h.Instruction]:
        is_telling = self._ranks.note_exit(event)
        if self._is_consequence(event):
            name = exit_messages.describe_failure(self._ranks.label_of(event.rank), event)
            reason = f"{name}, as one that has lost its daemon of {self._launcher}"
            return self._on_broken(h.Broken(event.node, reason, event.code or 1, ABANDONED_DELAY_S))
        if self._phase in ("stopping", "emptying"):
            return self._empty_when_still()
        self._ranks.note_failure(event)
        if self._ranks.has_failed:
            if self._search.is_on and event.code == 0:
                # Of many good ends, each judgement would look at all.
                is_telling = self._ranks.is_missed(event)
            if self._end is None or is_telling:
                self._judge()
            return self._stop_or_seek()
        return self._complete_when_done()

    def _judge(self) -> None:
        self._end = self._ranks.judge_failure(self._search.answers)

    def _stop_or_seek(self) -> list[h.Instruction]:
        """Tell the other ranks to end after a failure, once it is known why, or that this cannot be known."""
        unexplained = self._ranks.is_unexplained and self._first_failure.code != 0
        if not unexplained or self._phase != "running" or not self._ranks.is_any_left(self._nodes):
            return self._stop_after_failure()
        return [] if self._search.is_on else self._search.begin(self._nodes, self._grace_s)

    @property
    def _first_failure(self) -> RankExited:
        """
        Return the end of the rank that is named by now; its code is 0 when it ended early, and was not cut off itself.
        """
        assert self._end is not None
        assert self._end.rank is not None
        return self._ranks.exit_of(self._end.rank)

    def _stop_after_failure(self) -> list[h.Instruction]:
        self._search.is_on = False
        self._judge()
        assert self._end is not None
        return self._stop(self._end.reason)

    def _expire_cause(self) -> list[h.Instruction]:
        if not self._search.is_on:
            return []
        self._judge()
        left = self._ranks.list_left(self._nodes)
        return self._search.wait_on(left, self._first_failure, self._grace_s) or self._stop_after_failure()

    def _is_consequence(self, event: RankExited) -> bool:
        """Return whether a rank was cut off by an earlier act of its launcher; the reason for that is still to come."""
        if not self._launcher or event.code == 0 or self._phase not in _ALIVE:
            return False
        if event.signal == signal.SIGKILL:
            return False  # No MPI sends it to a rank, whose process it does not know.
        # A rank that calls MPI_Abort ends with a code, or crashes after an exception; those that it cuts off may crash.
        has_raised = bool((event.evidence or {}).get("failure"))
        is_crash = self._broken is not None and event.signal is not None and not has_raised
        return self._settled or is_crash or event.code == LOST_DAEMON_CODE

    def _complete_when_done(self) -> list[h.Instruction]:
        if not self._ranks.are_awaited_done():
            return []
        lost = self._daemons.lost
        if lost is not None:
            # Its ranks were cut off, whatever the command makes of it.
            reason = f"{lost.reason}; the command ended with exit code 0 all the same"
            return self._fail(h.Finish(status.FAILED, lost.code, reason, node=lost.node))
        reason, left = self._ranks.describe_completion()
        self._end = h.Finish(status.COMPLETED, 0, reason)
        if left:
            return self._stop("the ranks that were waited for are done")
        if self._launcher_runs or self._daemons.running:
            # It ends by itself, now that it has nothing to wait for, and tidies up.
            return [h.SetTimer("launcher end", LAUNCHER_END_S)]
        return self._empty(LEFTOVER_GRACE_S)

    def _on_broken(self, event: h.Broken) -> list[h.Instruction]:
        if self._phase not in _ALIVE or self._end is not None:
            return []
        if self._broken is not None and event.delay_s >= self._broken.delay_s:
            return []
        self._broken, self._settled = event, False
        if event.delay_s == 0:
            return self._expire_broken()
        return [h.SetTimer("settled", h.BROKEN_DELAY_S), h.SetTimer("broken", event.delay_s)]

    def _on_launcher_ended(self, event: h.LauncherEnded) -> list[h.Instruction]:
        self._launcher_runs = False
        if self._phase not in _ALIVE:
            return []
        if self._search.is_on:
            return []  # It ended for want of the rank that is waited for, as the others did.
        if self._end is not None:
            return self._empty(LEFTOVER_GRACE_S)
        reason = event.reason or f"{self._launcher} ended before its ranks"
        if self._broken is not None and " see " not in self._broken.reason:
            # A daemon has nobody else to tell why it could not start.
            self._broken = self._broken._replace(reason=self._broken.reason + event.quote)
        delay_s = 0.0 if event.killed else h.BROKEN_DELAY_S
        return self._on_broken(h.Broken(event.node, reason + event.quote, event.code, delay_s))

    def _on_lost(self, event: h.Lost) -> list[h.Instruction]:
        self._nodes.discard(event.node)
        self._ranks.note_lost(event.node)
        reason = f"the agent of node {event.node} {event.reason}"
        end = h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=event.node, kind="node")
        if self._phase not in ("stopping", "emptying"):
            return self._fail(end)
        if self._blames_link and event.node == 0 and 0 not in self._answered:
            # It was gone when the other node looked for it, and this came later than that.
            self._end = end
        self._answered.add(event.node)
        return self._empty_when_still()

    def _on_canceled(self, event: h.Canceled) -> list[h.Instruction]:
        if self._search.is_on:
            stop = self._stop_after_failure()
            return [*stop, *self._kill()] if event.at_once and self._phase == "stopping" else stop
        canceled = h.Finish(status.CANCELED, h.CANCELED_CODE, f"canceled by {event.by}")
        if self._phase in ("stopping", "emptying"):
            if event.at_once:
                return self._kill()
            # There is nobody to start it again for.
            self._end = canceled if self._taken else self._end
            return []
        if self._end is not None:
            return []
        self._shorten(event.grace_s)
        self._end = canceled
        stop = self._stop(canceled.reason)
        return [*stop, *self._kill()] if event.at_once and self._phase == "stopping" else stop

    def _on_preempted(self, event: h.PreemptionAnnounced) -> list[h.Instruction]:
        is_first = self._end is None
        if self._search.is_on:
            self._shorten(event.grace_s)
            return self._stop_after_failure()
        if not is_first and not self._taken:
            return []
        self._shorten(event.grace_s)
        self._taken |= self._expected if event.node is None else {event.node}
        node = event.node
        kind: EndKind
        if self._taken >= self._expected:
            reason, kind, node = f"{event.verb} by {event.by}", "preemption", None
        elif is_first:
            reason, kind = f"node {event.node} was {event.verb} by {event.by}", "node preemption"
        else:
            return []
        self._end = h.Finish(status.FAILED, h.PREEMPTED_CODE, reason, node=node, kind=kind)
        if is_first:
            return self._stop(reason)
        # There may be less time than at first.
        return [h.SetTimer("grace", self._grace_s)] if self._phase == "stopping" else []

    def _shorten(self, grace_s: float | None) -> None:
        """Shorten the grace: an engine that takes the nodes away may leave less time than the job wishes for."""
        if grace_s is not None:
            self._grace_s = min(self._grace_s, grace_s)

    def _on_hung(self, event: h.Hung) -> list[h.Instruction]:
        self._hang = event.reason
        if not event.ends or self._phase not in _ALIVE or self._end is not None:
            return []
        if event.lost is not None:
            return self._fail(self._ranks.blame(event.lost, f"it hung: {event.reason}"))
        return self._fail(h.Finish(status.FAILED, h.HUNG_CODE, f"it hung: {event.reason}", kind="hang"))

    def _kill(self) -> list[h.Instruction]:
        return [h.Kill(tuple(sorted(self._nodes))), h.SetTimer("kill", EMPTY_TIMEOUT_S)]

    def _expire(self, timer: h.Timer) -> list[h.Instruction]:  # noqa: C901, PLR0911 - a case a timer
        if self._phase not in _PHASES[timer]:
            return []
        match timer:
            case "join":
                missing = sorted(self._expected - self._answered)
                what = ", ".join(f"node {node}" for node in missing)
                reason = f"{what} did not answer within {format_seconds(self._join_timeout_s)}"
                return self._fail(h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=missing[0]))
            case "start":
                return self._expire_start()
            case "limit":
                return self._expire_limit()
            case "ask":
                return self._search.ask(self._nodes)
            case "cause":
                return self._expire_cause()
            case "settled":
                self._settled = self._broken is not None
                return []
            case "broken":
                return self._expire_broken()
            case "grace":
                return self._kill()
            case "launcher end" | "kill":
                return self._empty(0.0)
            case _:
                return self._over()

    def _expire_limit(self) -> list[h.Instruction]:
        if self._end is not None:
            return []
        reason = f"it ran into its time limit of {format_seconds(self._limit_s)}"
        if self._hang:
            reason += f"; it hung: {self._hang}"
        self._end = h.Finish(status.CANCELED, h.TIMEOUT_CODE, reason)
        return self._stop(reason)

    def _expire_broken(self) -> list[h.Instruction]:
        broken = self._broken
        if broken is None or self._search.is_on:
            return []
        unfinished = self._ranks.judge_unfinished(broken.reason)
        end = h.Finish(status.FAILED, broken.code, broken.reason, node=broken.node, blames="launcher")
        return self._fail(unfinished or end)

    def _expire_start(self) -> list[h.Instruction]:
        if not self._launcher and self._ranks.has_progressed():
            return [h.SetTimer("start", START_TIMEOUT_S)]
        late = self._ranks.list_late()
        labels = [self._ranks.label_of(rank) for rank in late]
        if self._launcher:
            limit = format_seconds(LAUNCHER_TIMEOUT_S)
            reason = f"{self._launcher} did not start rank {', '.join(labels)} within {limit}"
            return self._fail(h.Finish(status.FAILED, 1, reason, node=0))
        nodes = sorted({self._ranks.node_of(rank) for rank in late})
        where = ", ".join(f"node {node}" for node in nodes)
        reason = (
            f"{where} did not start {name_several('rank', labels)} within {format_seconds(START_TIMEOUT_S)}"
        )
        return self._fail(h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=nodes[0]))

    def _fail(self, end: h.Finish) -> list[h.Instruction]:
        self._end, self._search.is_on = end, False
        return self._stop(end.reason)

    def _stop(self, reason: str) -> list[h.Instruction]:
        """
        Stop what is left by SIGTERM. A rank that is about to be started will be, and is then stopped with the others.
        """
        nodes = tuple(sorted(self._nodes))
        if not self._ranks.is_any_left(self._nodes) or self._phase in _BEFORE_RANKS:
            return self._empty(0.0)
        self._phase = "stopping"
        return [h.Terminate(reason, nodes, self._grace_s), h.SetTimer("grace", self._grace_s)]

    def _empty_when_still(self) -> list[h.Instruction]:
        if self._phase == "stopping":
            # What a shell started has the rest of the grace; its agent knows.
            rest_s = self._grace_s
            return [] if self._ranks.is_any_left(self._nodes) else self._empty(LEFTOVER_GRACE_S, rest_s)
        return self._over() if self._nodes <= self._answered else []

    def _empty(self, grace_s: float, rest_s: float = 0.0) -> list[h.Instruction]:
        self._phase, self._answered = "emptying", set()
        if not self._nodes:
            return self._over()
        grace_s = min(grace_s, self._grace_s)
        return [
            h.Empty(tuple(sorted(self._nodes)), grace_s),
            h.SetTimer("empty", max(grace_s, rest_s) + EMPTY_TIMEOUT_S),
        ]

    def _over(self) -> list[h.Instruction]:
        self._phase = "over"
        assert self._end is not None, "a job does not end without a reason"
        end = self._ranks.judge_end(self._end, self._search.answers)
        reason = end.reason
        if self._survivors:
            reason += f"; even SIGKILL did not end {exit_messages.list_survivors(self._survivors)}"
        return [end._replace(reason=reason)]
