"""The SIGTERM by which an agent learns that its node is taken away in a while."""

from __future__ import annotations

import select
import signal
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.linux import kernel
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.node.agent.children import Children

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
