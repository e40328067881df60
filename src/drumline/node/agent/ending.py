"""The end of the ranks: SIGTERM, a grace period, SIGKILL, and then everything that they have left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from drumline.contract.folder import write_whole
from drumline.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from drumline.contract.messages import EmptyNode, TerminateRanks
    from drumline.node.agent.children import Children
    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.agent.notice import Notice
    from drumline.node.agent.ranks import Ranks
    from drumline.node.warm.rank_starter import WarmRankStarter


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
        passes_on = os.waitstatus_to_exitcode(ended.status) == -signal.SIGTERM or ended.pid in self._shells
        self._has_heirs = self._has_heirs or (ended.pid in self.told and passes_on)
