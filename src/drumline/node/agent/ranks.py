"""The ranks of the node: processes, made of what the supervisor says of them, and their end, of which it is told."""

from __future__ import annotations

import contextlib
import select
import signal
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.folder import write_whole
from drumline.linux import descendants, kernel
from drumline.node.agent import observing, processes
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from drumline.contract.messages import EmptyNode, TerminateRanks
    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.agent.observing import Observer
    from drumline.node.agent.processes import Children
    from drumline.node.warm.rank_starter import WarmRankStarter
    from drumline.node.warm.ranks import Task


class Ranks:
    """Starts the ranks of this node. ``tell`` sends a message to the supervisor."""

    def __init__(
        self,
        environment: JobEnvironment,
        children: Children,
        warm: WarmRankStarter,
        observer: Observer,
        tell: Callable[[m.FromAgent], object],
    ) -> None:
        self._environment = environment
        self._children = children
        self._warm = warm
        self._observer = observer
        self._tell = tell
        self.by_pid: dict[int, int] = {}
        """Those that run."""

        self._started_at: dict[int, float] = {}
        self._errors: dict[int, str] = {}

    def start_all(self) -> None:
        """Start all ranks of the node, from a warm interpreter if that can be, which may take a while."""
        launch = self._environment.launch
        inherited = self._environment.inherited_variables()
        tasks = [self._task(rank, {**inherited, **rank.env}) for rank in launch.ranks]
        if not tasks or not self._warm.begin(launch, tasks):
            self._start_cold(tasks)

    def start_for_launcher(self, rank: m.RankLaunch, added: Mapping[str, str]) -> None:
        """Start a rank with the variables that its launcher has ``added``."""
        variables = {**self._environment.inherited_variables(), **rank.env, **added}
        self._start_cold([self._task(rank, variables)])

    def start_forked(self) -> None:
        """Start the ranks that waited for the warm pool, warm or cold, once it has answered."""
        tasks, born = self._warm.go_on()
        for one in born:
            if one.error:
                self._errors[one.pid] = one.error
            self._note_start(one.rank, one.pid, one.before)
        if not born:
            self._start_cold(tasks)

    def start_waiting(self) -> None:
        """Start those that wait for a warm interpreter without one: they end with the others."""
        self._start_cold(self._warm.give_up())

    def _task(self, rank: m.RankLaunch, variables: dict[str, str]) -> Task:
        task = self._environment.rank_task(rank, variables)
        self._observer.first_output.expect(rank.rank, rank.log, self._environment.notes_of(rank.rank))
        return task

    def _start_cold(self, tasks: Sequence[Task]) -> None:
        started = []
        for task in tasks:
            before = time.monotonic()
            process = processes.start_process(
                task.argv, env=task.env, cwd=task.cwd, log=task.log, cores=task.cores
            )
            self._note_start(task.rank, process.pid, before)
            started.append(process)
        for process in started:
            error = process.error()
            if error:
                self._errors[process.pid] = error

    def _note_start(self, rank: int, pid: int, before: float) -> None:
        at = time.monotonic()
        self._started_at[pid] = before
        self._children.watch(pid)
        self.by_pid[pid] = rank
        self._tell(e.RankStarted(at, rank, m.HERE, pid))

    def note_end(self, ended: descendants.EndedProcess, at: float, told_at: float | None) -> int:
        """Tell of the end of a rank's process, and return which rank that is. ``told_at``: as of ExitEvidence."""
        rank = self.by_pid.pop(ended.pid)
        self._observer.note_end(rank, ended, at)
        code = ended.exit_code
        error = self._errors.pop(ended.pid, "")
        since = self._started_at.pop(ended.pid, 0.0)
        evidence = None
        if not error:
            lost = self._warm.lost_with(ended.pid)
            evidence = observing.collect_evidence(
                self._environment, rank, ended, since, self._observer.memory, lost
            )
            evidence = evidence._replace(told_at=told_at)
        exit_code, signal = (code, None) if code >= 0 else (None, -code)
        self._tell(m.RankEnded(rank, exit_code, signal, error, at, evidence))
        return rank


# the end


class Ending:
    """The end of the ranks: those that were told to end, and until when they may take their time."""

    def __init__(
        self, environment: JobEnvironment, ranks: Ranks, warm: WarmRankStarter, notice: Notice
    ) -> None:
        self._environment = environment
        self._ranks = ranks
        self._warm = warm
        self._notice = notice
        self.told_at: float | None = None
        """When the ranks were told to end."""

        self.told: set[int] = set()
        self._shells: set[int] = set()
        """Ranks that were one when they were told."""

        self._told_until: float | None = None
        self._has_heirs = False
        """Whether a rank ended at once, as a shell does, and what it started may still be saving."""

    def terminate(self, message: TerminateRanks, spared: Collection[int]) -> None:
        """Send SIGTERM to the ranks. ``spared``: processes that are not told, nor what is below them."""
        self._ranks.start_waiting()
        self.told_at = self.told_at or time.monotonic()
        deadline = self._environment.deadline
        if deadline:
            # Whoever finds no room for it learns of the end by the signal.
            with contextlib.suppress(OSError):
                write_whole(deadline, f"{time.time() + message.grace_s:.3f}\n")
        self._shells = {pid for pid in self._ranks.by_pid if descendants.is_shell(pid)}
        if message.may_be_told:
            self._notice.await_late()
        self.told = (
            set(descendants.list_all_below(self._warm.fork_server))
            if self._notice.reaches_ranks and message.may_be_told
            else descendants.ask_to_end(spared, self._warm.fork_server)
        )
        self._told_until = time.monotonic() + message.grace_s

    def kill(self, spared: Collection[int]) -> None:
        """Send SIGKILL to the ranks. ``spared``: as of ``terminate``."""
        self._ranks.start_waiting()
        self.told_at = self.told_at or time.monotonic()
        # A process that changes its parent just now is missed, and is ended when the node is emptied, without delay.
        self._told_until = None
        descendants.signal_all(signal.SIGKILL, spared, self._warm.fork_server)

    def begin_emptying(self) -> None:
        self.told_at = self.told_at or time.monotonic()

    def empty(
        self, message: EmptyNode, children: Children, is_urgent: Callable[[], bool]
    ) -> tuple[list[descendants.EndedProcess], list[int]]:
        """End everything that is left; return what has ended, and what even SIGKILL did not end. Blocks."""
        until = self._told_until if self._has_heirs and message.grace_s > 0 else None
        self._ranks.start_waiting()
        return children.end_all(message.grace_s, self.told, until, is_urgent)

    def note_end(self, ended: descendants.EndedProcess) -> None:
        """Note the end of a rank's process; to be called with each."""
        passes_on = ended.exit_code == -signal.SIGTERM or ended.pid in self._shells
        self._has_heirs = self._has_heirs or (ended.pid in self.told and passes_on)


# the notice that the node is taken away


_TOLD_TOO_S = 0.05
_TOLD_LATE_S = 2.0
"""A busy machine takes its time from one process to the next."""


class Notice:
    """
    The notice that the node is taken away. ``ended_by``: the program whose SIGTERM to this process reaches all that is
    below it too; empty: there is none. ``tell`` sends a message to the supervisor.
    """

    def __init__(self, ended_by: str, children: Children, tell: Callable[[m.FromAgent], object]) -> None:
        self._ended_by = ended_by
        self._children = children
        self._tell = tell
        self.descriptor = -1
        """Readable when this process was sent SIGTERM."""

        self.is_given = False
        self.is_given_twice = False
        self.reaches_ranks = False
        """Whether the ranks may have had their SIGTERM, from whoever sent it to this process."""

    def listen(self, poller: select.epoll) -> None:
        self.descriptor = kernel.open_signal_descriptor(signal.SIGTERM)
        poller.register(self.descriptor, select.EPOLLIN)

    def is_waiting(self) -> bool:
        """Return whether another notice has come since the first."""
        return self.is_given and bool(select.select([self.descriptor], [], [], 0)[0])

    def comes_before(self, ready: Sequence[int]) -> bool:
        """
        Return whether this process was sent SIGTERM, by a sender that sends it to the ranks too.

        When a rank has failed, it may have been sent SIGTERM a moment earlier; that is then why it failed.
        """
        if not self._ended_by or self.is_given:
            return False
        if self.descriptor in ready:
            return True
        if not self._children.has_failed(ready):
            return False
        return bool(select.select([self.descriptor], [], [], _TOLD_TOO_S)[0])

    def take(self) -> bool:
        """Tell of the signal; False when it cannot be waited for what the supervisor makes of it."""
        try:
            sender = failures.make_printable(kernel.read_signal_sender(self.descriptor), 100)
        except BlockingIOError:  # It was taken in before the exits were told.
            return True
        if self._ended_by and self._ended_by in sender:
            if self.is_given:
                return True  # Its SIGKILL follows.
            self.reaches_ranks = True
        if self.is_given:
            self.is_given_twice = True
            self._tell(m.AgentLeaving(f"it was sent SIGTERM twice{sender}"))
            return False
        self.is_given = True
        self._tell(m.NoticeReceived(f"a SIGTERM{sender} to its agent"))
        return True

    def await_late(self) -> None:
        """
        Wait for the signal of whoever ends this node and has signalled the supervisor.

        It signals one process after the other: its signal to this agent and the ranks may still come, and they are to
        have it once.
        """
        if (
            self._ended_by
            and not self.reaches_ranks
            and select.select([self.descriptor], [], [], _TOLD_LATE_S)[0]
        ):
            self.take()
