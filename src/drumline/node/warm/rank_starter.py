"""Starts an agent's ranks warm: asks for a warm interpreter and has the ranks forked, or leaves them to the agent."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.node.warm.fork_server import ForkServer, PoolRequest
    from drumline.node.warm.pool_start import OwnPool
    from drumline.node.warm.ranks import StartedRank, Task


class WarmRankStarter:
    """
    Starts ranks by the machine's warm pool. ``tell`` sends a message to the supervisor. ``is_isolated``: whether this
    process is in namespaces other than the pool's.
    """

    def __init__(
        self,
        poller: select.epoll,
        scratch: str,
        tell: Callable[[m.FromAgent], object],
        *,
        is_isolated: bool = False,
    ) -> None:
        self._is_isolated = is_isolated
        self._poller = poller
        self._scratch = scratch
        self._tell = tell
        self._request: PoolRequest | None = None
        self._is_asked_for = False
        """Whether the job said ``warm: on``."""

        self._waiting: list[Task] = []
        self._pool: OwnPool | None = None
        self.fork_server: ForkServer | None = None
        """Whose children the ranks are; None: they are the agent's own, or there are none yet."""

    def begin(self, start: m.LaunchRanks, tasks: list[Task]) -> bool:
        """Ask for a warm interpreter; return False when these ranks are not to wait for one."""
        mode = start.warm.mode
        if mode == "off":
            return False
        self._is_asked_for = mode == "on"
        why = self._why_not(start, tasks)
        if why:
            if self._is_asked_for:
                self._decline(why)
            return False
        # Not everybody's to load: a rank that is started as ever waits for none of it.
        from drumline.node.warm.fork_server import PoolRequest

        try:
            self._request = PoolRequest(start.warm.pool or self._own_folder, mode, tasks)
        except Exception as error:  # noqa: BLE001 - no rank fails for want of a warm interpreter
            self._decline(_explain(error))
            self.end()
            return False
        self._waiting = tasks
        self._tell(e.WarmAsked(self._request.began, m.HERE))
        self._poller.register(self._request, select.EPOLLIN)
        return True

    def _why_not(self, start: m.LaunchRanks, tasks: Sequence[Task]) -> str:
        if start.container:
            return "its ranks run in containers"
        if start.by_launcher:
            return "its ranks are started by a launcher"
        if not any("python" in word for task in tasks for word in task.argv):
            return "its command is not a Python program"
        if start.warm.mode == "auto" and not any(
            may_import_third_party(task.argv, task.cwd) for task in tasks[:1]
        ):
            return "there is nothing to import ahead"
        if not start.warm.pool and not self._begin_pool():
            return "no warm pool can be started on its node"
        return ""

    @property
    def _own_folder(self) -> str:
        return os.path.join(self._scratch, "warm")

    def _begin_pool(self) -> bool:
        """Start a pool of this agent's own, below it, where all of a job must be below its agents."""
        if not self._scratch or self._pool is not None:
            return False
        from drumline.node.warm import pool_start

        self._pool = pool_start.start_own_pool(self._own_folder)
        return self._pool is not None

    def has_answer(self, ready: Sequence[int]) -> bool:
        """Return whether the warm pool has answered, or will not answer any more."""
        return self._request is not None and (self._request.fileno() in ready or self._request.is_overdue())

    def go_on(self) -> tuple[list[Task], list[StartedRank]]:
        """Return the tasks that waited, and the ranks started from them; none if each must be started cold."""
        from drumline.node.warm.shell_command import NotWarm

        assert self._request is not None
        request, tasks = self._request, self._waiting
        self._forget()
        try:
            self.fork_server = request.answer()
            if self._is_isolated:
                self.fork_server.enter_node()
            if not cgroups.move_to_own_group(self.fork_server.pid):
                raise NotWarm("its fork server could not be brought into the job's control group")
            self.fork_server.limit_open_files()
            before = time.monotonic()
            born = self.fork_server.start(tasks, request.programs)
        except Exception as error:  # noqa: BLE001 - no rank fails for want of a warm interpreter
            self._decline(_explain(error))
            self.end()
            return tasks, []
        self.fork_server.aside = self._pool.pid if self._pool else 0
        facts = self.fork_server.facts
        self._tell(
            e.WarmStart(
                before,
                m.HERE,
                request.began,
                facts["reused"],
                facts["import_s"],
                facts["modules"],
                facts["stopped"] or request.until,
                facts["pid"],
            )
        )
        for one in born:
            if one.cold:
                self._decline(one.cold, one.rank)
        return tasks, [one._replace(before=before) for one in born]

    def give_up(self) -> list[Task]:
        """Stop waiting for an answer, and return the tasks that waited."""
        tasks, request = self._waiting, self._request
        self._forget()
        if request:
            request.close()
        if self.fork_server is None:
            self.end()
        return tasks

    def _forget(self) -> None:
        if self._request:
            self._poller.unregister(self._request)
        self._request, self._waiting = None, []

    def _decline(self, reason: str, rank: int | None = None) -> None:
        self._tell(e.WarmDeclined(time.monotonic(), m.HERE, reason, self._is_asked_for, rank))

    def lost_with(self, pid: int) -> int:
        """Return the fork server with which a rank ended; 0 if the rank ended by itself."""
        return self.fork_server.pid if self.fork_server and pid in self.fork_server.lost else 0

    def leave(self) -> None:
        """End the fork server and everything below it."""
        if self.fork_server:
            self.fork_server.close()
            self.fork_server = None

    def end(self) -> None:
        """End the fork server and this agent's own pool. Blocks until then, for some seconds at most."""
        self.leave()
        if self._pool is not None:
            self._pool.end()
            self._pool = None


def _explain(error: Exception) -> str:
    """Return the reason in words: NotWarm and errors of the system have their own."""
    from drumline.node.warm.shell_command import NotWarm

    is_said = isinstance(error, (NotWarm, OSError)) and str(error)
    return str(error) if is_said else f"{type(error).__name__}: {error}"


# A first look, which costs next to nothing, at whether a program may have anything to import ahead.


_MAX_BYTES = 1 << 20
_PROGRAM = re.compile(r"[^\s'\"=;&|]+\.py(?=$|[\s'\";&|])")
_IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([^#;\n]+)|from[ \t]+([.\w]+))", re.MULTILINE)


def may_import_third_party(argv: Sequence[str], cwd: str) -> bool:
    """
    Return whether the program's text may import a third-party package; False: all its imports are of the standard
    library.
    """
    standard = getattr(sys, "stdlib_module_names", None)
    programs = _PROGRAM.findall(" ".join(argv))
    if not programs or standard is None:
        return True
    for program in programs:
        try:
            with open(os.path.join(cwd, program), encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_BYTES)
        except OSError:
            return True
        for several, one in _IMPORT.findall(text):
            for name in several.split(",") if several else [one]:
                if name.strip().partition(" ")[0].partition(".")[0] not in standard:
                    return True
    return False
