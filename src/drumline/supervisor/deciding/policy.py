"""
Events in, instructions out: how a job goes from its first agent to its end. No clock, no process, no file.

    joining -> preparing -> reaching -> [checking] -> starting -> running -> [stopping] -> emptying -> over
    `------------- Handshake -------------------'                            `------- AttemptEnd --------'

A failure, a cancel or the time limit leads from any phase to ``stopping`` (SIGTERM, grace, SIGKILL), or straight to
``emptying`` when no rank is alive. ``emptying`` ends what ranks left behind; only then is the job over.
While every failure is that of a lost peer, ``running`` goes on for a moment (``explaining/missing_rank.py``).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, assert_never

from drumline.contract import status
from drumline.contract.events import RankExited
from drumline.contract.words import format_seconds
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding.rank_table import CauseSearch, RankTable
from drumline.supervisor.explaining import exit_messages

if TYPE_CHECKING:
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.messages import ProcessState

_ALIVE = ("starting", "running")
"""Phases in which ranks may be alive that nobody has told to end."""

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
        self._join_timeout_s = join_timeout_s
        self._timeout_s = timeout_s
        self._limit_s = limit_s if limit_s is not None else timeout_s
        self._handshake = Handshake(node_count)
        self._ranks = RankTable(members, node_count)
        self._launcher = LauncherWatch(launcher)
        self._search = CauseSearch(self._ranks)
        self._ending = AttemptEnd(self._ranks, node_count, grace_s)
        self._hang = ""
        self._started_count = 0
        """Of the ranks, when the time for their start was last over."""

    @property
    def _phase(self) -> Literal["joining", "starting", "running", "stopping", "emptying", "over"]:
        """Return the phase, of which ``joining`` is all before ``starting``."""
        if self._ending.phase:
            return self._ending.phase
        if self._ranks.runnable is None:
            return "joining"
        return "running" if self._ranks.are_all_started else "starting"

    def begin(self, *, awaits_checks: bool = False) -> list[h.Instruction]:
        """Begin the attempt. ``awaits_checks``: ranks start only when the nodes were checked (``Checked``)."""
        self._handshake.awaits_checks = awaits_checks
        return [h.SetTimer("join", self._join_timeout_s)]

    def handle(self, event: h.Happening) -> list[h.Instruction]:  # noqa: C901, PLR0911, PLR0912 - a case a happening
        """Take in one event; return what to do about it, in order."""
        match event:
            case _ if self._phase == "over":
                return []
            case RankExited():
                return self._on_rank_exited(event)
            case h.Joined() if self._phase == "emptying":
                # It was still starting when the others were told.
                return [h.Empty((event.node,), 0.0)]
            case h.Joined() | h.Prepared() | h.Reached():
                return self._on_answered(event)
            case h.Checked():
                return self._on_checked(event)
            case h.Started():
                was_starting = self._phase == "starting"
                self._ranks.note_start(event)
                return [h.AllRunning()] if was_starting and self._phase == "running" else []
            case h.Lost():
                return self._on_lost(event)
            case h.Broken():
                return self._on_broken(event)
            case h.DaemonsChanged():
                has_fewer = self._launcher.note_daemons(event)
                goes_on = self._phase in _ALIVE and not self._ranks.has_failed
                return self._complete_when_done() if has_fewer and goes_on else []
            case h.LauncherEnded():
                return self._on_launcher_ended(event)
            case h.Emptied():
                return self._ending.note_emptied(event)
            case h.Canceled():
                stop = self._stop_for_failure() if self._search.is_on else []
                return [*stop, *self._ending.cancel(event)]
            case h.PreemptionAnnounced():
                if not self._search.is_on:
                    return self._ending.preempt(event)
                self._ending.shorten(event.grace_s)
                return self._stop_for_failure()
            case h.Hung():
                return self._on_hung(event)
            case h.Found():
                return self._search.take(event)
            case h.Elapsed():
                return self._ending.expire(event.timer) if self._ending.phase else self._expire(event.timer)
            case _:
                assert_never(event)

    def _on_answered(self, event: h.Joined | h.Prepared | h.Reached) -> list[h.Instruction]:
        if self._phase != "joining":
            return []
        if isinstance(event, h.Reached) and event.error:
            reason = f"node {event.node} cannot reach node 0: {event.error}"
            end = h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=event.node, blames="link")
            return self._stop_for(end)
        question = self._handshake.take(event)
        return self._start() if self._handshake.is_over else question

    def _on_checked(self, event: h.Checked) -> list[h.Instruction]:
        """Take in the end of the checks, which go on while the nodes are prepared."""
        self._handshake.awaits_checks = False
        if self._phase != "joining":
            return []
        if event.reason:
            return self._stop_for(h.Finish(status.FAILED, h.UNFIT_CODE, event.reason, node=event.node))
        if event.is_all:
            return self._stop_for(h.Finish(status.COMPLETED, 0, "the nodes were checked"))
        return self._start() if self._handshake.is_over else []

    def _start(self) -> list[h.Instruction]:
        self._ranks.begin(is_launched=bool(self._launcher.name))
        limits: list[h.Instruction] = []
        if self._timeout_s is not None:
            limits = [h.SetTimer("limit", self._timeout_s)]
        return [h.StartRanks(), *limits, h.SetTimer("start", self._launcher.start_timeout_s)]

    def _on_rank_exited(self, event: RankExited) -> list[h.Instruction]:
        is_telling = self._ranks.note_exit(event)
        if self._phase in _ALIVE and self._launcher.has_cut_off(event):
            # The reason for that is still to come.
            name = self._ranks.describe_failure(event)
            reason = f"{name}, as one that has lost its daemon of {self._launcher.name}"
            return self._on_broken(h.Broken(event.node, reason, event.code or 1, ABANDONED_DELAY_S))
        if self._ending.phase:
            return self._ending.go_on()
        self._ranks.note_failure(event)
        if not self._ranks.has_failed:
            return self._complete_when_done()
        if self._search.is_on and event.code == 0:
            # Of many good ends, each judgement would look at all.
            is_telling = self._ranks.is_missed(event)
        if self._ending.end is None or is_telling:
            self._ending.end = self._ranks.judge_failure()
        # The others are told to end once it is known why, or that this cannot be known.
        is_unexplained = self._ranks.is_unexplained(self._ending.end)
        if not is_unexplained or self._phase != "running" or not self._ranks.is_any_left:
            return self._stop_for_failure()
        return [] if self._search.is_on else self._search.begin(self._ending.grace_s)

    def _complete_when_done(self) -> list[h.Instruction]:
        if not self._ranks.are_awaited_done():
            return []
        lost = self._launcher.daemons.lost
        if lost is not None:
            # Its ranks were cut off, whatever the command makes of it.
            reason = f"{lost.reason}; the command ended with exit code 0 all the same"
            return self._stop_for(h.Finish(status.FAILED, lost.code, reason, node=lost.node))
        reason, has_left = self._ranks.describe_completion()
        self._ending.end = h.Finish(status.COMPLETED, 0, reason)
        if has_left:
            return self._stop_for(self._ending.end, "the ranks that were waited for are done")
        if self._launcher.runs or self._launcher.daemons.running:
            # It ends by itself, now that it has nothing to wait for, and tidies up.
            return [h.SetTimer("launcher end", LAUNCHER_END_S)]
        return self._ending.empty(LEFTOVER_GRACE_S)

    def _on_broken(self, event: h.Broken) -> list[h.Instruction]:
        is_news = self._phase in _ALIVE and self._ending.end is None and self._launcher.note_broken(event)
        if not is_news:
            return []
        if event.delay_s == 0:
            return self._stop_for(self._ranks.judge_broken(event))
        return [h.SetTimer("settled", h.BROKEN_DELAY_S), h.SetTimer("broken", event.delay_s)]

    def _on_launcher_ended(self, event: h.LauncherEnded) -> list[h.Instruction]:
        broken = self._launcher.note_end(event)
        # It may have ended for want of a rank that is waited for, as the others did.
        if self._phase not in _ALIVE or self._search.is_on:
            return []
        return self._on_broken(broken) if self._ending.end is None else self._ending.empty(LEFTOVER_GRACE_S)

    def _on_lost(self, event: h.Lost) -> list[h.Instruction]:
        self._ranks.note_lost(event.node)
        reason = f"the agent of node {event.node} {event.reason}"
        end = h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=event.node, kind="node")
        return self._ending.note_lost(event.node, end) if self._ending.phase else self._stop_for(end)

    def _on_hung(self, event: h.Hung) -> list[h.Instruction]:
        self._hang = event.reason
        if not event.ends or self._phase not in _ALIVE or self._ending.end is not None:
            return []
        reason = f"it hung: {event.reason}"
        if event.lost is not None:
            return self._stop_for(self._ranks.blame(event.lost, reason))
        return self._stop_for(h.Finish(status.FAILED, h.HUNG_CODE, reason, kind="hang"))

    def _expire(self, timer: h.Timer) -> list[h.Instruction]:
        match timer:
            case "join" if missing := self._handshake.list_missing():
                late = ", ".join(f"node {node}" for node in missing)
                reason = f"{late} did not answer within {format_seconds(self._join_timeout_s)}"
                return self._stop_for(h.Finish(status.FAILED, h.NODE_LOST_CODE, reason, node=missing[0]))
            case "start" if self._phase == "starting":
                limit_s = self._launcher.start_timeout_s
                before, self._started_count = self._started_count, self._ranks.count_started()
                if not self._launcher.name and self._started_count > before:
                    return [h.SetTimer("start", limit_s)]
                return self._stop_for(
                    self._ranks.judge_unstarted(self._launcher.name, format_seconds(limit_s))
                )
            case "limit" if self._ending.end is None:
                hung = f"; it hung: {self._hang}" if self._hang else ""
                reason = f"it ran into its time limit of {format_seconds(self._limit_s)}{hung}"
                return self._stop_for(h.Finish(status.CANCELED, h.TIMEOUT_CODE, reason))
            case "ask":
                return self._search.ask()
            case "cause" if self._search.is_on:
                self._ending.end = end = self._ranks.judge_failure()
                return self._search.wait_on(end, self._ending.grace_s) or self._stop_for_failure()
            case "settled":
                self._launcher.is_settled = self._launcher.broken is not None
            case "broken" if self._launcher.broken and not self._search.is_on:
                return self._stop_for(self._ranks.judge_broken(self._launcher.broken))
            case "launcher end":
                return self._ending.empty(0.0)
        return []

    def _stop_for_failure(self) -> list[h.Instruction]:
        return self._stop_for(self._ranks.judge_failure())

    def _stop_for(self, end: h.Finish, why: str = "") -> list[h.Instruction]:
        self._search.is_on = False
        return self._ending.begin(end, why)


class Handshake:
    """What all nodes answer before ranks start."""

    def __init__(self, node_count: int) -> None:
        self._nodes = range(node_count)
        self._phase = "joining"
        self._answered: set[int] = set()
        """The nodes that have answered in this phase."""

        self.awaits_checks = False

    @property
    def is_over(self) -> bool:
        return self._phase == "checking" and not self.awaits_checks

    def list_missing(self) -> list[int]:
        """Return the nodes that have still to answer."""
        return [] if self._phase == "checking" else sorted(set(self._nodes) - self._answered)

    def take(self, event: h.Joined | h.Prepared | h.Reached) -> list[h.Instruction]:
        """Take in the answer of a node; return the next question to all of them."""
        asked, following = _ANSWERS[type(event)]
        if self._phase != asked:
            return []
        self._answered.add(event.node)
        # All that answer are expected: a comparison of their numbers takes no longer where there are many.
        if len(self._answered) < len(self._nodes):
            return []
        self._phase, self._answered = following, set()
        if following == "preparing":
            return [h.Prepare()]
        if following == "reaching" and len(self._nodes) > 1:
            self._answered = {0}
            return [h.Reach()]
        self._phase = "checking"
        return []


_ANSWERS = {
    h.Joined: ("joining", "preparing"),
    h.Prepared: ("preparing", "reaching"),
    h.Reached: ("reaching", "checking"),
}
"""The phase in which each node answers so, and the one that follows when all have."""


class AttemptEnd:
    """
    The end of an attempt: ``end`` is why, as far as is known; ``phase`` is empty until ranks are told. ``grace_s``:
    between SIGTERM and SIGKILL.
    """

    def __init__(self, ranks: RankTable, node_count: int, grace_s: float) -> None:
        self._ranks = ranks
        self._all_nodes = frozenset(range(node_count))
        self.grace_s = grace_s
        self.phase: Literal["", "stopping", "emptying", "over"] = ""
        self.end: h.Finish | None = None
        self._preempted: set[int] = set()
        self._emptied: set[int] = set()
        self._survivors: list[ProcessState] = []

    def begin(self, end: h.Finish, why: str = "") -> list[h.Instruction]:
        """
        Stop what is left by SIGTERM. A rank that is about to be started will be, and is then stopped with the others.
        """
        self.end = end
        if not self._ranks.is_any_left:
            return self.empty(0.0)
        self.phase = "stopping"
        nodes = tuple(sorted(self._ranks.nodes))
        return [h.Terminate(why or end.reason, nodes, self.grace_s), h.SetTimer("grace", self.grace_s)]

    def shorten(self, grace_s: float | None) -> None:
        """Shorten the grace: an engine that takes the nodes away may leave less time than the job wishes for."""
        if grace_s is not None:
            self.grace_s = min(self.grace_s, grace_s)

    def cancel(self, event: h.Canceled) -> list[h.Instruction]:
        canceled = h.Finish(status.CANCELED, h.CANCELED_CODE, f"canceled by {event.by}")
        if self.phase:
            if self._preempted and not event.at_once:
                # There is nobody to start it again for.
                self.end = canceled
            return self._kill() if event.at_once else []
        if self.end is not None:
            return []
        self.shorten(event.grace_s)
        stop = self.begin(canceled)
        return [*stop, *self._kill()] if event.at_once and self._ranks.is_any_left else stop

    def preempt(self, event: h.PreemptionAnnounced) -> list[h.Instruction]:
        is_first = self.end is None
        if not is_first and not self._preempted:
            return []
        self.shorten(event.grace_s)
        self._preempted |= self._all_nodes if event.node is None else {event.node}
        is_whole = self._preempted >= self._all_nodes
        if not is_whole and not is_first:
            return []
        reason = f"{'' if is_whole else f'node {event.node} was '}{event.verb} by {event.by}"
        kind: EndKind = "preemption" if is_whole else "node preemption"
        node = None if is_whole else event.node
        end = h.Finish(status.FAILED, h.PREEMPTED_CODE, reason, node=node, kind=kind)
        if is_first:
            return self.begin(end)
        self.end = end
        # There may be less time than at first.
        return [h.SetTimer("grace", self.grace_s)] if self.phase == "stopping" else []

    def note_lost(self, node: int, end: h.Finish) -> list[h.Instruction]:
        """Take in the loss of a node; ``end`` is of an attempt that ends of it."""
        if self.end and self.end.blames == "link" and node == 0 and 0 not in self._emptied:
            # It was gone when the other node looked for it, and this came later than that.
            self.end = end
        self._emptied.add(node)
        return self.go_on()

    def note_emptied(self, event: h.Emptied) -> list[h.Instruction]:
        self._emptied.add(event.node)
        self._survivors += event.survivors
        return self.go_on() if self.phase == "emptying" else []

    def go_on(self) -> list[h.Instruction]:
        """Empty the nodes once all ranks have ended; when all nodes are empty, the attempt is over."""
        if self.phase == "emptying":
            return self._finish() if self._ranks.nodes <= self._emptied else []
        # What a shell started has the rest of the grace; its agent knows.
        return [] if self._ranks.is_any_left else self.empty(LEFTOVER_GRACE_S, self.grace_s)

    def expire(self, timer: h.Timer) -> list[h.Instruction]:
        if self.phase == "stopping" and timer == "grace":
            return self._kill()
        if self.phase == "stopping" and timer == "kill":
            return self.empty(0.0)
        return self._finish() if self.phase == "emptying" and timer == "empty" else []

    def _kill(self) -> list[h.Instruction]:
        return [h.Kill(tuple(sorted(self._ranks.nodes))), h.SetTimer("kill", EMPTY_TIMEOUT_S)]

    def empty(self, grace_s: float, rest_s: float = 0.0) -> list[h.Instruction]:
        """End what ranks left behind. ``rest_s``: what that may have as well, where ranks were told to end."""
        self.phase, self._emptied = "emptying", set()
        grace_s = min(grace_s, self.grace_s)
        empty = h.Empty(tuple(sorted(self._ranks.nodes)), grace_s)
        return self.go_on() or [empty, h.SetTimer("empty", max(grace_s, rest_s) + EMPTY_TIMEOUT_S)]

    def _finish(self) -> list[h.Instruction]:
        self.phase = "over"
        assert self.end is not None, "a job does not end without a reason"
        end = self._ranks.judge_end(self.end)
        if not self._survivors:
            return [end]
        survivors = exit_messages.list_survivors(self._survivors)
        return [end._replace(reason=f"{end.reason}; even SIGKILL did not end {survivors}")]


class LauncherWatch:
    """What is known of the launcher of the ranks. ``name``: empty where the agents start them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = bool(name)
        self.daemons = h.DaemonsChanged(0)
        self.broken: h.Broken | None = None
        """Why the ranks cannot go on, as far as is known."""

        self.start_timeout_s = LAUNCHER_TIMEOUT_S if name else START_TIMEOUT_S
        """For all ranks to start."""

        self.is_settled = False
        """Whether a failure from now on is a consequence of what broke."""

    def note_daemons(self, event: h.DaemonsChanged) -> bool:
        """Return whether fewer of them run than before."""
        before, self.daemons = self.daemons, event
        return event.running < before.running

    def note_broken(self, event: h.Broken) -> bool:
        """Return whether this tells more than what has broken before, for which a better reason is waited for."""
        if self.broken is not None and event.delay_s >= self.broken.delay_s:
            return False
        self.broken, self.is_settled = event, False
        return True

    def note_end(self, event: h.LauncherEnded) -> h.Broken:
        """Return what has broken with it, where ranks are left."""
        self.runs = False
        if self.broken is not None and " see " not in self.broken.reason:
            # A daemon has nobody else to tell why it could not start.
            self.broken = self.broken._replace(reason=self.broken.reason + event.quote)
        reason = event.reason or f"{self.name} ended before its ranks"
        return h.Broken(
            event.node, reason + event.quote, event.code, 0.0 if event.killed else h.BROKEN_DELAY_S
        )

    def has_cut_off(self, event: RankExited) -> bool:
        """Return whether a rank was cut off by an earlier act of its launcher."""
        # No MPI sends SIGKILL to a rank, whose process it does not know.
        if not self.name or event.code == 0 or event.signal == signal.SIGKILL:
            return False
        # A rank that calls MPI_Abort ends with a code, or crashes after an exception; those that it cuts off may crash.
        has_raised = bool((event.evidence or {}).get("failure"))
        is_crash = self.broken is not None and event.signal is not None and not has_raised
        return self.is_settled or is_crash or event.code == LOST_DAEMON_CODE
