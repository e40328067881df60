"""The processes of the job that the agent started, or had forked: which have ended, and in which order."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from drumline.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from drumline.node.warm.rank_starter import WarmRankStarter


class Children:
    """
    The agent's children, those of ``warm.fork_server`` included. Each has a descriptor in ``poller`` until it ends.
    """

    def __init__(self, poller: select.epoll, warm: WarmRankStarter) -> None:
        self._poller = poller
        self._warm = warm
        self._pidfds: dict[int, int] = {}
        self._early: list[descendants.EndedProcess] = []
        """Ends that were seen before they could be told."""

    def watch(self, pid: int) -> None:
        self._pidfds[pid] = os.pidfd_open(pid)
        self._poller.register(self._pidfds[pid], select.EPOLLIN)

    def forget(self, pid: int) -> bool:
        """Return False for a process that was not watched: an orphan of a rank."""
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is None:
            return False
        self._poller.unregister(pidfd)
        os.close(pidfd)
        return True

    def has_failed(self, ready: Sequence[int]) -> bool:
        """Return whether a child whose descriptor is ready has ended otherwise than well. Nothing is reaped by it."""
        return any(self._has_failed(pid) for pid, pidfd in self._pidfds.items() if pidfd in ready)

    def _has_failed(self, pid: int) -> bool:
        """
        Return whether that child has ended otherwise than well; ours is not reaped yet, a fork server's is told later.
        """
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            if self._warm.fork_server:
                self._early += self._warm.fork_server.reap()
            return any(one.pid == pid and one.status != 0 for one in self._early)
        return ended is not None and ended.si_status != 0

    def reap(self, ready: Sequence[int] = (), until: int | None = None) -> list[descendants.EndedProcess]:
        """
        Return those that have ended, in that order; orphans of ranks too.

        ``ready``: descriptors in the order in which things happened to them; what happened from the place ``until`` on
        is returned later.
        """
        if until is not None and not set(ready[:until]) & set(self._pidfds.values()):
            return []
        order = {descriptor: index for index, descriptor in enumerate(ready)}
        ended = [*self._early, *descendants.reap_children(self._warm.fork_server)]
        self._early = []
        places = {one.pid: order.get(self._pidfds.get(one.pid, -1), len(order)) for one in ended}
        ended.sort(key=lambda one: places[one.pid])
        if until is not None:
            self._early = [one for one in ended if places[one.pid] >= until]
            ended = [one for one in ended if places[one.pid] < until]
        return ended

    def end_all(
        self,
        grace_s: float,
        told: Collection[int],
        told_until: float | None,
        is_urgent: Callable[[], bool],
    ) -> tuple[list[descendants.EndedProcess], list[int]]:
        """End all as ``descendants.end_descendants`` does; the ends that were not told before come first."""
        ended, survivors = descendants.end_descendants(
            grace_s, told=told, told_until=told_until, is_urgent=is_urgent, other=self._warm.fork_server
        )
        early, self._early = self._early, []
        return [*early, *ended], survivors
