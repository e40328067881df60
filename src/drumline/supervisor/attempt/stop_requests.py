"""
Requests to stop an attempt: cancel and preempt by people, and signals by which an engine takes nodes away. And requests
to practise: drills.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.ownership import is_network
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract import messages as m
    from drumline.contract.folder import RunFolder
    from drumline.engines.base import SignalMeaning
    from drumline.supervisor.drills import Drills
    from drumline.supervisor.supervised_folder import EndRequests


class StopRequests:
    """Records each request once, and gives it to the policy."""

    def __init__(
        self,
        folder: RunFolder,
        attempt: int,
        requests: EndRequests,
        record: Callable[[e.Event], None],
        handle: Callable[[h.Happening], None],
        lose: Callable[[int, str], None],
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._requests = requests
        self._record = record
        self._handle = handle
        self._lose = lose
        self._cancel_seen: h.Canceled | None = None
        self._preempt_seen: dict[str, Any] = {}
        self._preemptions: list[h.PreemptionAnnounced] = []
        self._is_on_network = is_network(folder.path)

    def poll(self) -> None:
        """Take in all requests that have come since."""
        if self._is_on_network:
            # Files of another machine show when their folder is read again.
            with contextlib.suppress(OSError):
                os.listdir(self._folder.path)
        request = self._requests.read()
        if request is not None:
            self._cancel(request)
        self._poll_preempt_file()
        while self._requests.meanings:
            self._take(None, self._requests.meanings.pop(0))

    def take_notice(self, node: int, by: str) -> None:
        """Take in a signal to the agent of a node. The engine knows its meaning."""
        self._take(node, self._requests.explain(node, by))

    def _take(self, node: int | None, meaning: SignalMeaning) -> None:
        if meaning.kind == "cancel":
            self._cancel(h.Canceled(meaning.by, at_once=False, grace_s=meaning.grace_s))
        else:
            taken = None if meaning.kind == "preemption" else node
            self.preempt(meaning.by, taken, meaning.grace_s, meaning.verb)
        for lost in meaning.lost:
            self._lose(lost, "was lost")

    def _cancel(self, request: h.Canceled) -> None:
        if request == self._cancel_seen:
            return
        self._cancel_seen = request
        self._record(e.CancelRequested(wall_time(), request.by, request.at_once))
        self._handle(request)

    def _poll_preempt_file(self) -> None:
        request = self._folder.read_json(self._folder.preempt) or {}
        if request.get("attempt") != self._attempt or request == self._preempt_seen:
            return
        self._preempt_seen = request
        node = request.get("node")
        self.preempt(str(request.get("by")), node if isinstance(node, int) else None)

    def preempt(
        self, by: str, node: int | None, grace_s: float | None = None, verb: str = "preempted"
    ) -> None:
        """Take a node away, or all of them (None). ``by`` and ``verb``: as of the happening. Once for each of these."""
        happening = h.PreemptionAnnounced(by, node, grace_s, verb)
        if happening not in self._preemptions:
            self._preemptions.append(happening)
            self._record(e.Preempted(wall_time(), by, node))
            self._handle(happening)


class DrillRequests:
    """The drills of an attempt, from the first request on: a job without any does not load what ``make`` takes."""

    def __init__(self, folder: RunFolder, make: Callable[[], Drills]) -> None:
        self._folder = folder
        self._make = make
        self._drills: Drills | None = None

    def poll(self) -> None:
        """Take in requests; begin and end drills that are due."""
        if self._drills is None and os.path.isdir(self._folder.drills):
            self._drills = self._make()
        if self._drills is not None:
            self._drills.poll()

    def list_times(self) -> Iterable[float]:
        """List the times at which there is something to do, in monotonic seconds."""
        return () if self._drills is None else self._drills.list_times()

    def take_answer(self, message: m.DrillTaken) -> None:
        """Take in an agent's word on a drill."""
        if self._drills is not None:
            self._drills.take_answer(message)

    def finish(self) -> None:
        """End the drills of an attempt that is over."""
        if self._drills is not None:
            self._drills.finish()
