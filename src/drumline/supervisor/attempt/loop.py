"""Feeds the policy with what happens, does what it says, and waits until something is due."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol, assert_never

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.supervisor.attempt.attempt_start import RankStart
from drumline.supervisor.attempt.connections import AgentConnections, AgentLosses, Inbox
from drumline.supervisor.attempt.progress_poll import ClockPoll, ProgressPoll
from drumline.supervisor.attempt.rank_reports import RankReports
from drumline.supervisor.attempt.remote_commands import LauncherReports, RemoteCommands
from drumline.supervisor.attempt.stop_requests import DrillRequests, StopRequests
from drumline.supervisor.clocks import Clocks, wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p
from drumline.supervisor.explaining import exit_messages
from drumline.supervisor.supervised_folder import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.base import Nodes
    from drumline.supervisor.deciding.happenings import Timer
    from drumline.supervisor.drills import Drills
    from drumline.supervisor.supervised_folder import EndRequests


_NONE: dict[str, str] = {}


class Loop:
    """
    One attempt. ``timeout_s``: what is left of the job's time limit when the ranks start; None: no limit. ``secrets``:
    more variables of the ranks.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        nodes: Nodes,
        requests: EndRequests,
        *,
        attempt: int = 0,
        timeout_s: float | None = None,
        secrets: Mapping[str, str] = _NONE,
    ) -> None:
        self._folder = folder
        self._nodes = nodes
        self._end: h.Finish | None = None
        known = (os.urandom(32).hex(), len(plan.nodes), nodes.agents.silence_s)
        self._agents = AgentConnections(nodes.agents.listen(), *known)
        labels = {task.rank: task.label for task in plan.ranks}
        limits = (plan.hang_after_s, plan.hang_action != "report")
        self._poll = ProgressPoll(folder, self._agents, labels, *limits, self._record, self._handle)
        clocks = Clocks()
        self._clock_poll: ClockPoll | None = None
        if nodes.facts.clocks_differ:
            # Nodes of one machine have one clock.
            self._clock_poll = ClockPoll(folder, attempt, self._agents, clocks)
        self._start = RankStart(folder, plan, nodes, self._agents, attempt, secrets)
        self._policy = _make_policy(plan, timeout_s, nodes.agents.join_timeout_s)
        self._reports = RankReports(plan, clocks, self._record, self._handle)
        launcher = LauncherReports(plan, folder, self._handle)
        self._commands = RemoteCommands(plan, self._agents, self._start.find_node, self._handle, launcher)
        self._losses = AgentLosses(plan, nodes.agents, self._agents, self._record, self._handle)
        lose = self._losses.lose
        self._requests = StopRequests(folder, attempt, requests, self._record, self._handle, lose)
        self._drills = DrillRequests(folder, lambda: self._make_drills(plan, attempt))
        self._inbox = Inbox(self._agents, nodes.agents, requests.wake, self._take_in, self._losses)
        self._timers = Timers(self._inbox.wait, (self._poll,), (self._drills, self._reports, self._losses))

    def _make_drills(self, plan: Plan, attempt: int) -> Drills:
        # Few jobs have any.
        from drumline.supervisor import drills

        does = (self._agents.send, self._requests.preempt, self._nodes)
        performer = drills.DrillPerformer(self._folder, plan, *does)
        return drills.Drills(
            self._folder, plan, attempt, lambda: self._start.running, performer, self._record
        )

    @property
    def ranks_started(self) -> float | None:
        """Return when the ranks were started, in monotonic seconds; None: not yet."""
        return self._start.launched

    def run(self) -> h.Finish:
        """Run from the start of the agents until nothing of them is left. Blocks. Raises EngineError, OSError."""
        try:
            return self._run()
        except BaseException:
            # Agents end their ranks when they see that.
            self._agents.close()
            raise
        finally:
            self._inbox.close()

    def _run(self) -> h.Finish:
        self._inbox.start_agents()
        for instruction in self._policy.begin(awaits_checks=self._start.may_check):
            self._do(instruction)
        while self._end is None:
            self._turn()
        self._drills.finish()
        self._agents.send_all(self._agents.connected_nodes(), m.LeaveJob())
        self._inbox.wait_for_ends()
        return self._end

    def _turn(self) -> None:
        """Wait once, and take in everything that has happened."""
        ready = self._timers.wait()
        self._requests.poll()
        self._drills.poll()
        self._losses.lose_failed()
        self._poll.start_requested()
        for descriptor in ready:
            self._inbox.hear(descriptor)
        for timer in self._timers.take_due():
            if timer == "join":
                self._losses.lose_late()
            if timer == "preflight":
                self._start.conclude_checks()
                continue
            self._handle(h.Elapsed(timer))
        self._poll.start_when_due()
        if self._reports.wants_connections:
            self._agents.send_all(self._agents.connected_nodes(), m.ListConnections())
        self._losses.lose_silent()
        if self._clock_poll:
            self._clock_poll.poll()

    def _handle(self, happening: h.Happening) -> None:
        for instruction in self._policy.handle(happening):
            self._do(instruction)

    # Messages of agents.

    def _take_in(self, node: int, message: m.FromAgent) -> None:  # noqa: C901, PLR0912 - a case a message
        match message:
            case m.Hello():
                self._admit(node, message)
            case m.NodePrepared():
                self._start.add_ports(node, message)
                self._handle(h.Prepared(node))
            case m.ConnectedToFirst():
                self._handle(h.Reached(node, message.error))
            case m.NodeChecked():
                self._start.add_checked(node, message)
            case m.RankEnded():
                self._reports.note_end(node, message)
            case m.OtherMpiSeen():
                self._reports.note_other_mpi(message)
            case m.ExceptionSeen():
                self._poll.note_exception()
            case m.TrainingSeen():
                self._reports.note_training(message.rank)
            case m.ConnectionsListed():
                self._reports.note_connections(message)
            case m.ClockRead():
                if self._clock_poll:
                    self._clock_poll.take_answer(node, message)
            case m.ProgressPolled():
                self._poll.take_in(node, message)
            case m.RanksInspected():
                self._reports.note_inspection(node, message)
            case m.CommandRequested():
                self._commands.start(node, message)
            case m.CallerGone():
                self._commands.hang_up(node, message)
            case m.CommandEnded():
                self._commands.end(node, message)
            case m.LauncherExited():
                self._commands.launcher.note_exit(node, message)
            case m.RankAbandoned():
                self._commands.launcher.note_abandoned(node, message)
            case m.RankMisplaced():
                self._commands.launcher.note_misplaced(node, message)
            case m.NoticeReceived():
                self._requests.take_notice(node, message.by)
            case m.DrillTaken():
                self._drills.take_answer(message)
            case m.AgentLeaving():
                self._losses.lose(node, "left: " + message.reason)
            case m.NodeEmptied():
                self._handle(h.Emptied(node, tuple(message.survivors)))
            case _:
                self._reports.note_event(node, message)

    def _admit(self, node: int, hello: m.Hello) -> None:
        self._start.add_node(node, hello)
        self._losses.note_joined(node)
        if self._clock_poll:
            self._clock_poll.ask(node)
        who = self._nodes.facts.identify(hello.pid)
        self._record(
            e.AgentJoined(wall_time(), node, hello.pid, hello.address, who, hello.containment, hello.host)
        )
        self._handle(h.Joined(node))

    # Instructions of the policy.

    def _do(self, instruction: h.Instruction) -> None:  # noqa: C901, PLR0912 - a case an instruction
        match instruction:
            case h.Prepare():
                patience_s = self._start.prepare_nodes(self._record, self._handle)
                if patience_s is not None:
                    self._timers.set("preflight", patience_s)
            case h.Reach():
                self._start.connect_to_first()
            case h.StartRanks():
                self._start.launch()
            case h.AllRunning():
                self._start.running = time.monotonic()
                self._record(e.JobRunning(wall_time()))
                self._poll.begin()
            case h.Terminate():
                self._leave_ranks_alone()
                told = self._nodes.preemption.has_signaled_ranks()
                self._agents.send_all(instruction.nodes, m.TerminateRanks(instruction.grace_s, told))
                self._record(e.JobStopping(wall_time(), instruction.reason))
            case h.Seek():
                self._agents.send_all(instruction.nodes, m.InspectRanks())
            case h.Kill():
                self._agents.send_all(instruction.nodes, m.KillRanks())
            case h.Empty():
                self._leave_ranks_alone()
                self._record(e.JobFinalizing(wall_time()))
                for node in instruction.nodes:
                    if not self._agents.send(node, m.EmptyNode(instruction.grace_s)):
                        self._nodes.agents.end(node)
            case h.SetTimer():
                self._timers.set(instruction.timer, instruction.seconds)
            case h.Finish():
                reason = exit_messages.add_host(instruction.reason, self._start.hosts)
                self._end = instruction._replace(reason=reason)
                self._losses.is_over = True
            case _:
                assert_never(instruction)

    def _leave_ranks_alone(self) -> None:
        self._poll.end()
        self._start.running = None

    def _record(self, event: e.Event) -> None:
        try:
            self._folder.append(event)
        except OSError as error:
            # A full disk must not end a job that may yet write its result elsewhere.
            log(f"could not record {event}: {error}")


def _make_policy(plan: Plan, timeout_s: float | None, join_timeout_s: float) -> p.Policy:
    members = {
        task.rank: h.Member(node.node, task.label, task.awaited) for node in plan.nodes for task in node.ranks
    }
    return p.Policy(
        members,
        len(plan.nodes),
        grace_s=plan.grace_s,
        timeout_s=timeout_s,
        limit_s=plan.timeout_s,
        launcher=plan.launcher.name if plan.launcher else "",
        join_timeout_s=join_timeout_s,
    )


# The timers that the policy sets, and the wait until one of them is due, or anything else happens.


_LONGEST_WAIT_S = 1.0
"""Between two looks for a request to cancel, when no signal tells of it."""

_SUSPENDED_S = 5.0
"""More than a busy machine lets a process wait."""


class Timed(Protocol):
    """A part of an attempt that has something to do at certain times."""

    def list_times(self) -> Iterable[float]:
        """List those times, in monotonic seconds."""


class Postponed(Timed, Protocol):
    """A part whose times are put off while the job is suspended."""

    def leave_out(self, passed_s: float) -> None: ...


class Timers:
    """
    The moments at which timers are due, in monotonic seconds. ``wait`` returns the descriptors that can be heard, after
    as many seconds at the latest. ``postponed`` and ``others``: who else has something to do at certain times.
    """

    def __init__(
        self, wait: Callable[[float], list[int]], postponed: Iterable[Postponed], others: Iterable[Timed]
    ) -> None:
        self._wait = wait
        self._postponed = tuple(postponed)
        self._others = tuple(others)
        self._due: dict[Timer, float] = {}

    def set(self, timer: Timer, seconds: float) -> None:
        due = time.monotonic() + seconds
        # A grace period that has begun may become shorter.
        before = self._due.get(timer, due) if timer == "grace" else due
        self._due[timer] = min(due, before)

    def wait(self) -> list[int]:
        """
        Wait until something is due or a descriptor is ready, and return those that are. Time in which this process was
        suspended does not count.
        """
        now = time.monotonic()
        others = (moment for part in (*self._postponed, *self._others) for moment in part.list_times())
        due = min((*self._due.values(), *others), default=now + _LONGEST_WAIT_S)
        patience_s = max(0.0, min(_LONGEST_WAIT_S, due - now))
        before = time.monotonic()
        ready = self._wait(patience_s)
        suspended_s = time.monotonic() - before - patience_s
        if suspended_s > _SUSPENDED_S:
            # The engine has suspended the whole job.
            self._due = {timer: due + suspended_s for timer, due in self._due.items()}
            for part in self._postponed:
                part.leave_out(suspended_s)
        return ready

    def take_due(self) -> Iterator[Timer]:
        """Yield and remove the timers that are due now."""
        now = time.monotonic()
        for timer in [timer for timer, due in self._due.items() if due <= now]:
            del self._due[timer]
            yield timer
