"""An agent's ranks, from when it asks for a warm interpreter until they are forked, or are started as ever."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

from drumline.node import cgroups
from drumline.node.warm import worth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.node.warm.beginning import Own
    from drumline.node.warm.nursery import Nursery, Request
    from drumline.node.warm.tasks import Born, Task


class WarmStarts:
    """``tell``: a kind of message and its content, for the supervisor."""

    def __init__(self, poller: select.epoll, scratch: str, tell: Callable[..., object]) -> None:
        self._poller = poller
        self._scratch = scratch
        self._tell = tell
        self._request: Request | None = None
        self._waiting: list[Task] = []
        self._keeper: Own | None = None
        self.nursery: Nursery | None = None
        """Whose children the ranks are; None: they are the agent's own, or there are none yet."""

    def begin(self, start: dict[str, Any], tasks: list[Task]) -> bool:
        """Ask for a warm interpreter; False when these ranks are not to wait for one. ``start``: the message."""
        warm = start.get("warm") or {}
        mode = warm.get("mode", "off")
        if mode == "off":
            return False
        why = self._why_not(start, warm, tasks)
        if why:
            if mode == "on":
                self._decline(why)
            return False
        # Not everybody's to load: a rank that is started as ever waits for none of it.
        from drumline.node.warm.nursery import Request

        try:
            self._request = Request(warm["keeper"], mode, tasks)
        except Exception as error:  # noqa: BLE001 - no rank fails for want of a warm interpreter
            self._decline(_words(error))
            self.end()
            return False
        self._waiting = tasks
        self._tell("asked", at=self._request.began)
        self._poller.register(self._request, select.EPOLLIN)
        return True

    def _why_not(self, start: dict[str, Any], warm: dict[str, Any], tasks: Sequence[Task]) -> str:
        if start.get("container"):
            return "its ranks run in containers"
        if start["by_launcher"]:
            return "its ranks are started by a launcher"
        if not any("python" in word for task in tasks for word in task.argv):
            return "its command is not a Python program"
        if warm["mode"] == "auto" and not any(worth.may_gain(task.argv, task.cwd) for task in tasks[:1]):
            return "there is nothing to import ahead"
        if not warm["keeper"] and not self._begin_keeper(warm):
            return "no keeper of warm interpreters can be started on its node"
        return ""

    def _begin_keeper(self, warm: dict[str, Any]) -> bool:
        """One of this agent's own, below it, where all of a job must be below its agents."""
        if not self._scratch or self._keeper is not None:
            return False
        from drumline.node.warm import beginning

        folder = os.path.join(self._scratch, "warm")
        self._keeper = beginning.own(folder)
        warm["keeper"] = folder
        return self._keeper is not None

    def has_answer(self, ready: Sequence[int]) -> bool:
        """Or there will be none."""
        return self._request is not None and (self._request.fileno() in ready or self._request.is_overdue())

    def go_on(self) -> tuple[list[Task], list[Born]]:
        """What waited, and the ranks that it has become; none where each must be started as ever."""
        from drumline.node.warm.command import NotWarm

        assert self._request is not None
        request, tasks = self._request, self._waiting
        self._forget()
        try:
            self.nursery = request.answer()
            if not cgroups.bring(self.nursery.pid):
                raise NotWarm("its nursery could not be brought into the job's control group")
            before = time.monotonic()
            born = self.nursery.start(tasks, request.programs)
        except Exception as error:  # noqa: BLE001 - no rank fails for want of a warm interpreter
            self._decline(_words(error))
            self.end()
            return tasks, []
        self.nursery.aside = self._keeper.pid if self._keeper else 0
        facts = self.nursery.facts
        self._tell(
            "warmed",
            began=request.began,
            at=before,
            reused=facts["reused"],
            import_s=facts["import_s"],
            modules=facts["modules"],
            until=facts["stopped"] or request.until,
            pid=facts["pid"],
        )
        for one in born:
            if one.cold:
                self._decline(one.cold, one.rank)
        return tasks, [one._replace(before=before) for one in born]

    def give_up(self) -> list[Task]:
        """What waits for an answer that is not waited for any more."""
        tasks, request = self._waiting, self._request
        self._forget()
        if request:
            request.close()
        if self.nursery is None:
            self.end()
        return tasks

    def _forget(self) -> None:
        if self._request:
            self._poller.unregister(self._request)
        self._request, self._waiting = None, []

    def _decline(self, reason: str, rank: int | None = None) -> None:
        self._tell("declined", at=time.monotonic(), reason=reason, rank=rank)

    def lost_with(self, pid: int) -> int:
        """The process that a rank ended with, because it had forked that rank; 0: the rank ended by itself."""
        return self.nursery.pid if self.nursery and pid in self.nursery.lost else 0

    def leave(self) -> None:
        """The nursery ends, and all that is below it."""
        if self.nursery:
            self.nursery.close()
            self.nursery = None

    def end(self) -> None:
        """Nothing more is started, and what is this agent's own ends. Blocks until then, for some seconds at most."""
        self.leave()
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None


def _words(error: Exception) -> str:
    """NotWarm and the system's errors speak for themselves."""
    from drumline.node.warm.command import NotWarm

    is_said = isinstance(error, (NotWarm, OSError)) and str(error)
    return str(error) if is_said else f"{type(error).__name__}: {error}"
