"""The ranks of the node: from what the supervisor says of them to processes, and to what is told of their ends."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.node.agent import exit_evidence, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.linux import descendants
    from drumline.node.agent.children import Children
    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.agent.observing import Observer
    from drumline.node.warm.rank_starter import WarmRankStarter
    from drumline.node.warm.tasks import Task


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
        self._tell(m.RankStarting(rank, pid, at))

    def note_end(self, ended: descendants.EndedProcess, at: float, told_at: float | None) -> int:
        """Tell of the end of a rank's process, and return which rank that is. ``told_at``: as of ExitEvidence."""
        rank = self.by_pid.pop(ended.pid)
        self._observer.note_end(rank, ended, at)
        code = os.waitstatus_to_exitcode(ended.status)
        error = self._errors.pop(ended.pid, "")
        since = self._started_at.pop(ended.pid, 0.0)
        evidence = None
        if not error:
            lost = self._warm.lost_with(ended.pid)
            evidence = exit_evidence.collect(
                self._environment, rank, ended, since, self._observer.memory, lost
            )
            evidence = evidence._replace(told_at=told_at)
        exit_code, signal = (code, None) if code >= 0 else (None, -code)
        self._tell(m.RankEnded(rank, exit_code, signal, error, at, evidence))
        return rank
