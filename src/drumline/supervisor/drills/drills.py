"""Performs the drills of one attempt: takes requests, begins each when it is due, and ends those that last."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import drills
from drumline.contract import events as e
from drumline.contract.record import NamedTuple
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.drills.steps import StepWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract import messages as m
    from drumline.contract.drills import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.supervisor.drills.performing import DrillPerformer

_SUFFIX = ".json"
_MOST_REQUESTS = 100
"""In the folder at a time: the job can write to it."""

_STEP_INTERVAL_S = 0.1
"""Between two looks at the metrics of a job with a drill that begins at a step."""


class _Target(NamedTuple):
    node: int | None
    rank: int | None


class _RunningDrill(NamedTuple):
    """``until``: in monotonic seconds; None: until the attempt ends."""

    request: DrillRequest
    target: _Target
    until: float | None


class Drills:
    """
    The drills of one attempt. ``record`` takes an event of the job, ``performer`` makes the failures. ``find_start``:
    since when all ranks run, in monotonic seconds; None while they do not.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        attempt: int,
        find_start: Callable[[], float | None],
        performer: DrillPerformer,
        record: Callable[[e.Event], None],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._attempt = attempt
        self._find_start = find_start
        self._performer = performer
        self._record = record
        self._steps = StepWatch(plan)
        self._waiting: dict[str, DrillRequest] = {}
        self._taken_at: dict[str, float] = {}
        self._asked: dict[str, _RunningDrill] = {}
        """Those that an agent was asked for, and has not answered."""

        self._running: dict[str, _RunningDrill] = {}

    def poll(self) -> None:
        """Take new requests; begin and end what is due."""
        self._take_requests()
        start, now = self._find_start(), time.monotonic()
        # Drills are of ranks that run, and end also while those are ended.
        if start is not None:
            for request in list(self._waiting.values()):
                if self._is_due(request, start, now):
                    self._begin(request)
        for one in list(self._running.values()):
            if one.until is not None and one.until <= now:
                self._end(one, "its time was over")

    def list_times(self) -> Iterator[float]:
        """List the times at which there is something to do, in monotonic seconds."""
        start = self._find_start()
        if start is not None:
            for request in self._waiting.values():
                is_timed = request.at_step is None
                yield self._find_begin(request, start) if is_timed else time.monotonic() + _STEP_INTERVAL_S
        for one in self._running.values():
            if one.until is not None:
                yield one.until

    def take_answer(self, message: m.DrillTaken) -> None:
        """Take in an agent's word on a drill that it was asked for."""
        asked = self._asked.pop(message.drill, None)
        if asked is None:
            return
        if message.error:
            self._refuse(asked.request, message.error, asked.target)
        else:
            self._note_begin(asked, wall_time())
            self._start_clock(asked.request)

    def finish(self) -> None:
        """End what is left: the attempt is over. Those that have not begun are for the next one."""
        for one in list(self._running.values()):
            self._end(one, "its attempt ended")

    # Requests.

    def _take_requests(self) -> None:
        try:
            names = sorted(os.listdir(self._folder.drills))[:_MOST_REQUESTS]
        except OSError:
            return
        for name in names:
            drill = name.removesuffix(_SUFFIX)
            if not name.endswith(_SUFFIX) or drill in self._waiting:
                continue
            data = self._folder.read_json(os.path.join(self._folder.drills, name))
            request = drills.read_request(drill, data or {})
            if request is None or request.kind == drills.END:
                self._forget(drill)
                if request is not None:
                    self._end_all(request)
            else:
                self._waiting[drill] = request
                self._taken_at[drill] = time.monotonic()

    def _forget(self, drill: str) -> None:
        """Remove a request, before it is performed: another supervisor must not perform it again."""
        self._waiting.pop(drill, None)
        self._taken_at.pop(drill, None)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder.drills, drill + _SUFFIX))

    def _end_all(self, request: DrillRequest) -> None:
        for waiting in list(self._waiting.values()):
            self._forget(waiting.drill)
            self._refuse(
                waiting, f"ended by {request.by} before it began", _Target(waiting.node, waiting.rank)
            )
        for one in list(self._running.values()):
            self._end(one, f"ended by {request.by}")

    def _find_begin(self, request: DrillRequest, start: float) -> float:
        """Return when a drill begins, in monotonic seconds. ``start``: since when all ranks run."""
        return max(start, self._taken_at[request.drill]) + (request.after_s or 0.0)

    def _is_due(self, request: DrillRequest, start: float, now: float) -> bool:
        if request.at_step is not None:
            return self._steps.has_reached(request.at_step)
        return self._find_begin(request, start) <= now

    # What is due.

    def _begin(self, request: DrillRequest) -> None:
        self._forget(request.drill)
        target = self._find_target(request)
        why_not = self._performer.explain_refusal(request, target.node, target.rank)
        if why_not:
            self._refuse(request, why_not, target)
            return
        request = self._performer.complete(request)
        one = _RunningDrill(request, target, None)
        began, is_asked = wall_time(), self._performer.is_for_agent(request.kind)
        # A preemption writes down itself what follows from it.
        is_told_first = request.kind == "preempt"
        if is_asked:
            self._asked[request.drill] = one
        elif is_told_first:
            self._note_begin(one, began)
        error = self._performer.begin(request, target.node, target.rank)
        if error:
            self._asked.pop(request.drill, None)
            self._refuse(request, error, target)
            return
        if not is_asked and not is_told_first:
            self._note_begin(one, began)
        self._start_clock(request)

    def _start_clock(self, request: DrillRequest) -> None:
        """Let the time of a drill that lasts begin: making the failure took some already."""
        one = self._running.get(request.drill)
        if one is not None and request.for_s is not None:
            self._running[request.drill] = one._replace(until=time.monotonic() + request.for_s)

    def _find_target(self, request: DrillRequest) -> _Target:
        """Return the node and the rank that a drill is about; a rank says which node it is on."""
        if request.rank is not None:
            nodes = {task.rank: node.node for node in self._plan.nodes for task in node.ranks}
            return _Target(nodes.get(request.rank), request.rank)
        if request.kind == "kill-rank" and request.node is not None and request.node < len(self._plan.nodes):
            return _Target(request.node, self._plan.nodes[request.node].ranks[0].rank)
        return _Target(request.node, None)

    def _note_begin(self, one: _RunningDrill, began: float) -> None:
        request, target = one.request, one.target
        if drills.KINDS[request.kind].lasts:
            self._running[request.drill] = one
        self._record(
            e.DrillBegan(
                began,
                request.drill,
                request.kind,
                request.by,
                target.node,
                target.rank,
                self._attempt,
                request.settings,
            )
        )

    def _refuse(self, request: DrillRequest, reason: str, target: _Target) -> None:
        event = e.DrillEnded(wall_time(), request.drill, request.kind, reason, *target, refused=True)
        self._record(event)

    def _end(self, one: _RunningDrill, reason: str) -> None:
        del self._running[one.request.drill]
        self._performer.end(one.request, one.target.node, one.target.rank)
        event = e.DrillEnded(wall_time(), one.request.drill, one.request.kind, reason, *one.target)
        self._record(event)
