"""Cores and GPUs of this machine for one job, from the machine's queue."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.folder import RunFolder, base_home
from drumline.engines.base import NextAttempt, SignalMeaning
from drumline.engines.local import machine
from drumline.engines.local.queue import JobQueue, QueueEntry
from drumline.node import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.plan import Plan

_QUEUE_POLL_S = 0.5
"""
For the first job in the queue: the end of a running job wakes it at once, this is for everything else. Jobs behind it
check less often, so that a thousand of them cost next to nothing; the one that starts wakes the next.
"""

_LONGEST_QUEUE_POLL_S = 120.0
_CANCEL_POLL_S = 2.0
"""A cancel from this machine wakes the supervisor at once."""


class LocalAllocation:
    """A job's place in the queue, and the cores and GPUs that it gets there."""

    lost_node_kind: Literal["node", "node preemption"] = "node"
    needs_progress = False

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan = plan
        self._folder = folder
        self._who = identity.identify_process(os.getpid()) or {}
        self._gpus = machine.gpus()
        self._queue = JobQueue(
            os.path.join(base_home(), "engines", "local", identity.name_machine()),
            len(machine.cores()),
            self._gpus,
        )
        self.gpus: tuple[str, ...] = ()
        """Those that the queue has granted."""

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        wanted_gpus = min(sum(node.gpu_count for node in self._plan.nodes), len(self._gpus))
        cores = min(self._plan.cores_wanted, len(machine.cores()))
        entry = QueueEntry(self._plan.job, self._who, cores, wanted_gpus, folder=self._folder.path)
        top = self._plan.user_env.get("AZUREML_ROOT_RUN_ID", "")
        entry.top = "" if top == self._plan.job else top
        told = ""
        while (blocked := self._queue.advance(entry)) is not None:
            if blocked.reason != told:
                told = blocked.reason
                on_wait(told)
            self._clear_dropped()
            pause_s = min(_LONGEST_QUEUE_POLL_S, _QUEUE_POLL_S * (1 + blocked.ahead) ** 1.5)
            again = time.monotonic() + pause_s
            while not _wait_for_any(blocked.holders, wake, again) and not canceled():
                pass
            if canceled():
                self._queue.leave(self._who)
                return False
        self._clear_dropped()
        self.gpus = entry.gpus
        return True

    def _clear_dropped(self) -> None:
        for entry in self._queue.dropped:
            leftovers.clear_leftovers(
                RunFolder(entry.folder) if entry.folder else RunFolder.for_job(entry.job, base_home())
            )
        self._queue.dropped.clear()

    def decide_next(self, end_kind: EndKind, *, progressed: bool) -> NextAttempt:
        # A job that lost one of its nodes keeps the others, and the resources of that one for a new one.
        return NextAttempt("queue" if end_kind == "preemption" else "same nodes")

    def release(self) -> None:
        self._queue.leave(self._who)


class LocalPreemption:
    """A signal to the supervisor ends the job, one to an agent takes its node away."""

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        return SignalMeaning("cancel" if node is None else "node preemption", by)

    def has_signaled_ranks(self) -> bool:
        return False


def _wait_for_any(holders: tuple[dict[str, object], ...], wake: int, deadline: float) -> bool:
    """
    Wait until one of them ends, or ``wake`` is readable, or the deadline (monotonic seconds); False after a moment in
    which none of that happened.
    """
    pidfds = [pidfd for holder in holders if (pidfd := identity.open_pidfd(holder)) is not None]
    try:
        if len(pidfds) < len(holders):
            return True
        poller = select.poll()
        for descriptor in (wake, *pidfds):
            poller.register(descriptor, select.POLLIN)
        left_s = max(0.0, deadline - time.monotonic())
        ready = [descriptor for descriptor, _ in poller.poll(min(left_s, _CANCEL_POLL_S) * 1000)]
        if wake in ready:
            os.read(wake, 512)
        return bool(ready) or left_s <= _CANCEL_POLL_S
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
