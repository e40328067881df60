"""The drills of one attempt: requests, those that are refused, and failures that are made when due and end in time."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import drill_kinds
from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.drill_kinds import KINDS, NOTE, read_groups
from drumline.contract.errors import EngineError
from drumline.contract.record import NamedTuple
from drumline.supervisor.clocks import wall_time
from drumline.tracking import metrics, mlflow_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    from drumline.contract.drill_kinds import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.base import Nodes, PlayedNetwork


_SUFFIX = ".json"
_MOST_REQUESTS = 100
"""In the folder at a time: the job can write to it."""

_STEP_INTERVAL_S = 0.1
"""Between two looks at the metrics of a job with a drill that begins at a step."""


class _WaitingDrill(NamedTuple):
    """``taken_at``: in monotonic seconds."""

    request: DrillRequest
    taken_at: float

    def find_begin(self, start: float) -> float | None:
        """Return when it begins, in monotonic seconds; None: at a step. ``start``: since when all ranks run."""
        if self.request.at_step is not None:
            return None
        return max(start, self.taken_at) + (self.request.after_s or 0.0)


class _RunningDrill(NamedTuple):
    """``until``: in monotonic seconds; None: until the attempt ends."""

    request: DrillRequest
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
        self._waiting: dict[str, _WaitingDrill] = {}
        self._asked: dict[str, DrillRequest] = {}
        """Those that an agent was asked for, and has not answered."""

        self._running: dict[str, _RunningDrill] = {}

    def poll(self) -> None:
        """Take new requests; begin and end what is due."""
        self._take_requests()
        start, now = self._find_start(), time.monotonic()
        # Drills are of ranks that run, and end also while those are ended.
        if start is not None:
            for waiting in list(self._waiting.values()):
                begin, step = waiting.find_begin(start), waiting.request.at_step or 0
                if self._steps.has_reached(step) if begin is None else begin <= now:
                    self._begin(waiting.request)
        for drill in list(self._running.values()):
            if drill.until is not None and drill.until <= now:
                self._end(drill, "its time was over")

    def list_times(self) -> Iterator[float]:
        """List the times at which there is something to do, in monotonic seconds."""
        start = self._find_start()
        if start is not None:
            for waiting in self._waiting.values():
                begin = waiting.find_begin(start)
                yield time.monotonic() + _STEP_INTERVAL_S if begin is None else begin
        yield from (drill.until for drill in self._running.values() if drill.until is not None)

    def take_answer(self, message: m.DrillTaken) -> None:
        """Take in an agent's word on a drill that it was asked for."""
        asked = self._asked.pop(message.drill, None)
        if asked is not None and message.error:
            self._refuse(asked, message.error)
        elif asked is not None:
            self._note_begin(asked, wall_time())
            self._start_clock(asked)

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
            request = drill_kinds.read_request(drill, data or {})
            if request is None or request.kind == drill_kinds.END:
                self._forget(drill)
                if request is not None:
                    self._end_all(request)
            else:
                self._waiting[drill] = _WaitingDrill(request, time.monotonic())

    def _forget(self, drill: str) -> None:
        """Remove a request, before it is performed: another supervisor must not perform it again."""
        self._waiting.pop(drill, None)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder.drills, drill + _SUFFIX))

    def _end_all(self, request: DrillRequest) -> None:
        for waiting in list(self._waiting.values()):
            self._forget(waiting.request.drill)
            self._refuse(waiting.request, f"ended by {request.by} before it began")
        for drill in list(self._running.values()):
            self._end(drill, f"ended by {request.by}")

    # What is due.

    def _begin(self, request: DrillRequest) -> None:
        self._forget(request.drill)
        request = self._find_target(request)
        target = (request.node, request.rank, request.settings)
        why_not = explain_refusal(request.kind, self._plan) or explain_target(
            request.kind, self._plan, *target
        )
        if why_not:
            self._refuse(request, why_not)
            return
        request = self._performer.complete(request)
        began, is_asked = wall_time(), request.kind in _BY_AGENTS
        # A preemption writes down itself what follows from it.
        is_told_first = request.kind == "preempt"
        if is_asked:
            self._asked[request.drill] = request
        elif is_told_first:
            self._note_begin(request, began)
        error = self._performer.begin(request)
        if error:
            self._asked.pop(request.drill, None)
            self._refuse(request, error)
            return
        if not is_asked and not is_told_first:
            self._note_begin(request, began)
        self._start_clock(request)

    def _start_clock(self, request: DrillRequest) -> None:
        """Let the time of a drill that lasts begin: making the failure took some already."""
        one = self._running.get(request.drill)
        if one is not None and request.for_s is not None:
            self._running[request.drill] = one._replace(until=time.monotonic() + request.for_s)

    def _find_target(self, request: DrillRequest) -> DrillRequest:
        """Return the request with the node and the rank that it is about; a rank says which node it is on."""
        if request.rank is not None:
            nodes = {task.rank: node.node for node in self._plan.nodes for task in node.ranks}
            return request._replace(node=nodes.get(request.rank))
        if request.kind == "kill-rank" and request.node is not None and request.node < len(self._plan.nodes):
            return request._replace(rank=self._plan.nodes[request.node].ranks[0].rank)
        return request

    def _note_begin(self, request: DrillRequest, began: float) -> None:
        drill, kind, by, node, rank = request[:5]
        if drill_kinds.KINDS[kind].lasts:
            self._running[drill] = _RunningDrill(request, None)
        self._record(e.DrillBegan(began, drill, kind, by, node, rank, self._attempt, request.settings))

    def _refuse(self, request: DrillRequest, reason: str) -> None:
        what = (request.drill, request.kind, reason, request.node, request.rank)
        self._record(e.DrillEnded(wall_time(), *what, refused=True))

    def _end(self, drill: _RunningDrill, reason: str) -> None:
        request = drill.request
        del self._running[request.drill]
        self._performer.end(request)
        what = (request.drill, request.kind, reason, request.node, request.rank)
        self._record(e.DrillEnded(wall_time(), *what))


# Makes the failures of drills, by agents where they are about a node's processes or its disk.


_BY_AGENTS = ("kill-rank", "wedge", "fill-disk")
"""What agents do, and answer."""

_ON_NETWORKS = ("power-off", "partition", "slow-link", "lossy-link", "slow-cpu", "memory")
"""What is done to the network and the limits of isolated nodes, by the supervisor."""

_AGENT = "wedge-agent"

_SHARED_FOLDERS = ("/", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - whose disks are not to be filled


class DrillPerformer:
    """
    Makes the failures of drills. ``send`` has a message sent to the agent of a node; False: it is gone. ``preempt``
    takes who asks for it, and the node; None: all nodes.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        send: Callable[[int, m.ToAgent], bool],
        preempt: Callable[[str, int | None], None],
        nodes: Nodes,
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._send = send
        self._preempt = preempt
        self._agents = nodes.agents
        self._network = nodes.network

    def complete(self, request: DrillRequest) -> DrillRequest:
        """Return the request with a note on how it is performed, where a reader of its results must know it."""
        given = request.settings or {}
        note = self._network.explain_delays() if self._network and {"latency", "loss"} & set(given) else ""
        return request._replace(settings={**given, NOTE: note}) if note else request

    def begin(self, request: DrillRequest) -> str:
        """Make the failure, or ask an agent to; return why that cannot be, else nothing."""
        node = request.node or 0
        if request.kind == "preempt":
            self._preempt(f"a drill of {request.by}", request.node)
            return ""
        if request.kind in _ON_NETWORKS:
            return self._disturb(request, node)
        if request.kind == _AGENT:
            self._agents.hold(node, wanted=True)
            return ""
        spared = [*_SHARED_FOLDERS, self._folder.path]
        message = m.BeginDrill(request.drill, request.kind, self._list_ranks(request), spared)
        return "" if self._send(node, message) else f"node {node} has no agent any more"

    def end(self, request: DrillRequest) -> None:
        """End a drill that lasts. No error where nothing of it is left."""
        node = request.node or 0
        if request.kind in _ON_NETWORKS:
            if request.kind != "power-off" and self._network is not None:
                # What cannot be undone, such as on a node that is off by now, goes with the attempt.
                with contextlib.suppress(EngineError, OSError):
                    _restore(self._network, request.kind, node)
        elif request.kind == _AGENT:
            self._agents.hold(node, wanted=False)
        elif KINDS[request.kind].lasts:
            self._send(node, m.EndDrill(request.drill, request.kind, self._list_ranks(request)))

    def _disturb(self, request: DrillRequest, node: int) -> str:
        """Change the network or the limits of isolated nodes; return why that cannot be, else nothing."""
        if self._network is None:
            return "its nodes are not isolated"
        try:
            _change(self._network, request.kind, node, request.settings or {})
        except (EngineError, OSError, ValueError) as error:
            return getattr(error, "message", "") or str(error)
        return ""

    def _list_ranks(self, request: DrillRequest) -> list[int]:
        if request.rank is not None:
            return [request.rank]
        return [task.rank for task in self._plan.nodes[request.node or 0].ranks]


def _change(network: PlayedNetwork, kind: str, node: int, settings: Mapping[str, Any]) -> None:
    """Raises EngineError, OSError, ValueError."""
    if kind == "power-off":
        network.cut_power(node)
    elif kind == "partition":
        network.partition(_find_cut_off(node, settings))
    elif kind in ("slow-link", "lossy-link"):
        link = {key: str(value) for key, value in settings.items() if key in ("rate", "latency", "loss")}
        network.set_link(node, **link)
    elif kind == "slow-cpu":
        network.set_cpus(node, float(settings["cpus"]))
    elif kind == "memory":
        network.set_memory(node, int(settings["limit"]))


def _find_cut_off(node: int, settings: Mapping[str, Any]) -> Sequence[Collection[int]]:
    """Return the groups of nodes that are cut off; the first of those given keeps the supervisor."""
    groups = read_groups(str(settings["between"])) if settings.get("between") else None
    return [[node]] if groups is None else groups[1:]


def _restore(network: PlayedNetwork, kind: str, node: int) -> None:
    """Raises EngineError, OSError."""
    if kind == "partition":
        network.heal()
    elif kind in ("slow-link", "lossy-link"):
        network.set_link(node)
    elif kind == "slow-cpu":
        network.set_cpus(node)
    elif kind == "memory":
        network.set_memory(node)


# The drills that a job cannot have, each with the reason.


_STOPPING_RANKS = ("kill-rank", "wedge")
_LIMITING_NODES = ("slow-cpu", "memory")
_CHANGING_MACHINES = ("slow-cpu", "memory", "fill-disk")


def explain_refusal(kind: str, plan: Plan) -> str:
    """Return why that job cannot have a drill of a kind; empty: it can, as far as its plan tells."""
    if plan.engine == "kubernetes":
        return "drills do not reach pods yet"
    if plan.engine != "local":
        return _explain_elsewhere(kind, plan.engine.capitalize())
    is_isolated = bool(plan.compute.get("isolation"))
    if kind == "clock":
        return "its nodes share the clock of this machine, and Linux has no other for a part of its processes"
    if KINDS[kind].is_network and not is_isolated:
        return "its nodes share the network of this machine; isolated nodes have their own"
    if kind in _LIMITING_NODES and not is_isolated:
        return "its nodes share the processors and the memory of this machine; isolated nodes have limits"
    if kind in _STOPPING_RANKS and plan.container:
        return "its ranks run in containers, whose processes only the container engine may stop"
    return ""


def _explain_elsewhere(kind: str, owner: str) -> str:
    if kind == "clock":
        return "the clocks of its nodes are not Drumline's to set"
    if kind == "wedge-agent":
        return f"the agents of its nodes are {owner}'s to stop, and to let go on"
    if KINDS[kind].is_network:
        return f"the network of its nodes is {owner}'s, and other jobs use it"
    if kind in _CHANGING_MACHINES:
        return f"its nodes are {owner}'s, and other jobs use them"
    return ""


def explain_target(
    kind: str, plan: Plan, node: int | None, rank: int | None, settings: Mapping[str, Any] | None = None
) -> str:
    """Return why a drill cannot be about that node or that rank; empty: it can."""
    ranks = {task.rank for task in plan.ranks}
    if rank is not None and KINDS[kind].aims_at != "rank":
        return f"it is about a node, not about rank {rank}"
    if rank is not None and rank not in ranks:
        return f"the job has no rank {rank}"
    if node is not None and not 0 <= node < len(plan.nodes):
        return f"the job has no node {node}"
    if node is not None and rank is not None and rank not in {task.rank for task in plan.nodes[node].ranks}:
        return f"rank {rank} is not on node {node}"
    is_whole = kind == "preempt" or bool((settings or {}).get("between"))
    if node is None and rank is None and not is_whole and len(plan.nodes) > 1:
        return "it needs a node"
    return ""


# The step that a job has reached, by the metrics that it logs to its run in MLflow's file store.


_MOST_METRICS = 50


class StepWatch:
    def __init__(self, plan: Plan) -> None:
        self._run = os.path.dirname(mlflow_files.metrics_of(plan))

    def has_reached(self, step: int) -> bool:
        """Return whether some metric has a value of that step or a later one."""
        last = self.find_last()
        return last is not None and last >= step

    def find_last(self) -> int | None:
        """Return the highest step of which some metric has a value; None without any."""
        if not self._run:
            return None
        names = metrics.list_some_names(self._run)[0][:_MOST_METRICS]
        points = [metrics.read_latest(self._run, name) for name in names]
        return max((point.step for point in points if point is not None), default=None)
