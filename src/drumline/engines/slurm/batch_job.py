"""The batch job of which this process is the batch step: answers of Slurm about it, its nodes and the settings."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines import network as networks
from drumline.engines.base import TIME_LIMIT, Allocation, NextAttempt, NodeFacts, Preemption, SignalMeaning
from drumline.engines.slurm import jobs, options
from drumline.engines.slurm.slurm_commands import SilentError, Slurm

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from drumline.contract.events import EndKind
    from drumline.contract.plan import Plan
    from drumline.engines.base import Network


SETTLED_S = 1.0
"""For the controller to say of a job what its processes have noticed."""

_NODES_S = 2.0
"""For which an answer about the nodes serves all of them: they are often lost together."""

_NODES_TIMEOUT_S = 5.0
"""For that answer: the attempt waits for it."""

_SILENCE_S = 30.0
"""After a question about the nodes without an answer, until the next one."""

_NONE = ("None", "N/A", "Unknown", "(null)")


class BatchJob:
    """Answers are empty where Slurm does not answer; nothing raises but ``requeue``."""

    def __init__(self, plan: Plan) -> None:
        self._slurm = Slurm(str(plan.compute.get("slurm_conf") or ""), in_job=True)
        self._number = os.environ.get("SLURM_JOB_ID", "")
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self._settings: dict[str, str] = {}
        self._nodes: list[dict[str, str]] = []
        self._nodes_until = 0.0
        """In monotonic seconds: when the nodes are to be asked for again."""

    def within(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Give all questions of a block so many seconds together; those for which nothing is left have no answer."""
        return self._slurm.within(seconds)

    def requeue(self) -> None:
        """Put the job back in the queue; this ends all that runs of it, this process included. Raises EngineError."""
        self._slurm.requeue(self._number)

    def read(self) -> dict[str, str]:
        """Return the fields that the controller shows."""
        with contextlib.suppress(EngineError):
            return self._slurm.job(self._number) or {}
        return {}

    def read_when_settled(self, *, is_by_slurm: bool) -> dict[str, str]:
        """Wait a moment for the job's new state: Slurm signals its processes before the controller shows it."""
        deadline = time.monotonic() + SETTLED_S
        job: dict[str, str] = {}
        while True:
            job = self.read() or job
            settled = job.get("JobState", "RUNNING") != "RUNNING" or was_preempted(job)
            if settled or not is_by_slurm or time.monotonic() > deadline:
                return job
            time.sleep(0.05)

    def is_requeued(self, job: dict[str, str]) -> bool:
        """Return whether Slurm has started, or will start, the job again. ``job``: its fields."""
        return parse_seconds(job.get("Restarts"), 0) > self._restarts

    def read_settings(self) -> None:
        """Read the settings of slurm.conf, unless they are known."""
        if not self._settings:
            with contextlib.suppress(EngineError):
                self._settings = self._slurm.config()

    def setting(self, name: str) -> str:
        """Return a setting of slurm.conf; empty where it could not be read yet. Asks nothing."""
        return self._settings.get(name, "")

    def partition_setting(self, partition: str, name: str) -> str:
        with contextlib.suppress(EngineError):
            return (self._slurm.partition(partition) or {}).get(name, "")
        return ""

    def describe_fault(self, node: int, host: str) -> str:
        """
        Return the state of a node that does not work: ``DOWN (Not responding)``; else empty. ``host``: its name; empty:
        the node is known by its place in Slurm's list.
        """
        for place, fields in enumerate(self._list_nodes()):
            state = fields.get("State", "")
            is_it = fields.get("NodeName") == host if host else place == node
            if is_it and re.search(r"DOWN|FAIL|NOT_RESPONDING|REBOOT|POWER|\*", state):
                reason = fields.get("Reason", "")
                return state + (f" ({reason})" if reason not in ("", "none") else "")
        return ""

    def _list_nodes(self) -> list[dict[str, str]]:
        """Return the job's nodes as Slurm has shown them a moment ago; none while it does not answer."""
        if time.monotonic() >= self._nodes_until:
            self._nodes, serves_s = [], _SILENCE_S
            with contextlib.suppress(EngineError), self._slurm.within(_NODES_TIMEOUT_S):
                self._nodes, serves_s = self._slurm.nodes(_node_list()), _NODES_S
            self._nodes_until = time.monotonic() + serves_s
        return self._nodes

    def find_down_nodes(self) -> dict[str, str]:
        """Return name and state of those of the job's nodes that Slurm has given up."""
        with contextlib.suppress(EngineError):
            return {
                fields["NodeName"]: fields["State"]
                for fields in self._slurm.nodes(_node_list())
                if re.search(r"DOWN|FAIL", fields.get("State", ""))
            }
        return {}


def was_preempted(job: dict[str, str]) -> bool:
    """Return whether Slurm has preempted the job with these fields for another one."""
    return job.get("PreemptTime", "None") not in _NONE


def parse_seconds(text: str | None, otherwise: float) -> float:
    """
    Parse ``30 sec``, ``00:00:30``, ``1-00:00:00`` or ``30``.

    >>> parse_seconds("1-00:00:30", 0), parse_seconds("", 5)
    (86430.0, 5)
    """
    found = re.match(r"(?:(\d+)-)?((?:\d+:)*\d+)", text or "")
    if not found:
        return otherwise
    total = 0
    for part in found[2].split(":"):
        total = total * 60 + int(part)
    return float(total + 86400 * int(found[1] or 0))


def _node_list() -> str:
    return os.environ.get("SLURM_JOB_NODELIST", "")


# The allocation of a batch job: there from the beginning, and again after a requeue.


class SlurmAllocation(Allocation):
    """Slurm's nodes for one job. Others come with a requeue, which starts the supervisor again."""

    needs_progress = True

    def __init__(self, plan: Plan, job: BatchJob, preemption: SlurmPreemption) -> None:
        self._plan = plan
        self._job = job
        self._preemption = preemption
        if options.may_requeue(plan):
            self.lost_node_kind = "node preemption"

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        """Return at once: the nodes are there, or this process would not be."""
        return not canceled()

    def decide_next(self, end_kind: EndKind, *, progressed: bool) -> NextAttempt:
        may_requeue, at_limit = options.may_requeue(self._plan), self._preemption.is_at_limit
        # Slurm may have taken all nodes while the ranks ended for another reason.
        is_slurms = self._preemption.is_whole or at_limit or end_kind == "node"
        if not is_slurms and not (end_kind == "preemption" and may_requeue):
            return NextAttempt("same nodes")
        job = self._job.read()
        if self._job.is_requeued(job):
            return NextAttempt("new supervisor")
        if self._preemption.was_cancel(job):
            return NextAttempt("nowhere", "it is not started again, for scancel has ended it")
        if not may_requeue or job.get("Requeue") == "0":
            how = "job_tier: spot, drumline.max_restarts, or requeue of the compute, allows it"
            return NextAttempt("nowhere", f"Slurm does not start it again, for requeue is off ({how})")
        if at_limit and not progressed:
            return NextAttempt("nowhere", "it is not started again, for its ranks left nothing new")
        return self._requeue()

    def _requeue(self) -> NextAttempt:
        """Have Slurm requeue the job; it ends all that runs of the job while it answers."""
        try:
            self._job.requeue()
        except SilentError:
            # The outcome is seen later, in the job's state.
            return NextAttempt("new supervisor")
        except EngineError as error:
            deadline = time.monotonic() + SETTLED_S
            while not self._job.is_requeued(self._job.read()):
                if time.monotonic() > deadline:
                    return NextAttempt("nowhere", f"Slurm does not start it again: {error.message}")
                time.sleep(0.05)
        return NextAttempt("new supervisor")


# Signals from Slurm, explained by asking it about the job.

MARGIN_S = 4.0
"""Of the time that Slurm leaves, for the ranks' end to be seen and written down."""

_ASK_S, _ASK_SHARE = 3.0, 0.25
"""
For all that is asked about a signal, at least, and of KillWait: Slurm's SIGKILL comes after that, and the ranks are to
be told first.
"""

_KILL_WAIT_S = 30.0
"""Between SIGTERM and SIGKILL of Slurm, where it does not say. Source: slurm.conf(5), KillWait."""

STEPD = "slurmstepd"
"""The name of the process of Slurm that signals agents."""


class SlurmPreemption(Preemption):
    """The preemptions by Slurm. After one of the whole job nothing of it is started again beside this process."""

    def __init__(self, plan: Plan, job: BatchJob, facts: SlurmFacts) -> None:
        self._plan = plan
        self._job = job
        self._facts = facts
        self._meaning: SignalMeaning | None = None
        """Of the first signal that is for the whole job."""

        self.is_at_limit = False
        """Whether Slurm's time limit has come, or is near."""

        self._is_unanswered = False
        """Whether Slurm has said nothing of the job when it was asked about a signal."""

    @property
    def is_whole(self) -> bool:
        """Return whether Slurm has taken all nodes."""
        return self._meaning is not None

    def has_signaled_ranks(self) -> bool:
        """
        Return whether Slurm's signal has reached the ranks as well.

        Only linuxproc does that: with pgid ranks are in sessions of their own, and cgroup sends any signal but SIGKILL
        only to the process that Slurm itself has started, which is the agent.
        """
        return self.is_whole and self._job.setting("ProctrackType").endswith("linuxproc")

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        """Explain a signal: Slurm's is for the whole job, and Slurm knows why. Another's is for a node."""
        if by == TIME_LIMIT:
            self.is_at_limit = True
            return _stop("Slurm, whose time limit is near", self._plan.grace_s)
        # Slurm signals all agents at once.
        if node is not None and self._meaning is not None:
            return self._meaning
        kill_wait_s = parse_seconds(self._job.setting("KillWait"), 0.0)
        with self._job.within(max(_ASK_S, _ASK_SHARE * kill_wait_s)):
            meaning = self._ask(node, by)
        if meaning.kind != "node preemption":
            self._meaning = meaning
        return meaning

    def _ask(self, node: int | None, by: str) -> SignalMeaning:
        job = self._job.read_when_settled(is_by_slurm=node is None or STEPD in by)
        down = self._job.find_down_nodes()
        self._job.read_settings()
        kill_wait_s = parse_seconds(self._job.setting("KillWait"), _KILL_WAIT_S)
        grace_s = min(self._plan.grace_s, max(1.0, kill_wait_s - MARGIN_S))
        state = job.get("JobState", "")
        self._is_unanswered = not state
        lost = self._facts.find_nodes(down)
        since = f", since node {next(iter(down))} is {next(iter(down.values()))}" if down else ""
        if self._job.is_requeued(job):
            how = since or " (requeue)"
            verb = "preempted" if was_preempted(job) else "stopped"
            return _stop(f"Slurm, which starts it again{how}", grace_s, lost, verb)
        if was_preempted(job):
            # The notice is the partition's GraceTime, which may be 0, and KillWait.
            grace_time_s = parse_seconds(
                self._job.partition_setting(job.get("Partition", ""), "GraceTime"), 0
            )
            if grace_time_s:
                grace_s = min(self._plan.grace_s, max(1.0, grace_time_s + grace_s - 1))
            return SignalMeaning("preemption", "Slurm, for a job with a higher priority", grace_s)
        if state == "RUNNING" and node is not None and STEPD not in by:
            return SignalMeaning("node preemption", by)
        if down:
            return _stop(f"Slurm{since}", grace_s, lost)
        if state == "TIMEOUT" or job.get("Reason") == "TimeLimit":
            self.is_at_limit = True
            return _stop("Slurm, whose time limit has come", grace_s)
        if state in ("COMPLETING", "CANCELLED"):
            return SignalMeaning("cancel", "scancel", grace_s)
        if jobs.phase(state) == jobs.ENDED:
            return _stop(f"Slurm: {jobs.why_ended(state)}", grace_s)
        if node is None and state and not options.may_requeue(self._plan):
            return SignalMeaning("cancel", by, grace_s)
        # Slurm does not answer, or does not know the job: the machine may be about to go down.
        return SignalMeaning("preemption", "Slurm" if node is not None else by, grace_s)

    def was_cancel(self, job: dict[str, str]) -> bool:
        """Return whether a signal of which Slurm said nothing was scancel's. ``job``: what it says by now."""
        is_ending = job.get("JobState") in ("COMPLETING", "CANCELLED")
        is_other = was_preempted(job) or job.get("Reason") == "TimeLimit"
        return self._is_unanswered and is_ending and not is_other and not self._job.find_down_nodes()


def _stop(by: str, grace_s: float, lost: tuple[int, ...] = (), verb: str = "stopped") -> SignalMeaning:
    """Return the meaning of an end of all nodes for which no other job is the reason, unless ``verb`` says so."""
    return SignalMeaning("preemption", by, grace_s, lost, verb)


# Facts of Slurm's nodes, as the agents on them tell.


def find_memory(variables: Mapping[str, str], cores: int) -> int:
    """
    Return the bytes of memory that Slurm has given the job of each node; 0: it has set no limit.

    ``variables``: those of the batch step, with the wish of the job, its compute or the partition's default in MiB.
    ``cores``: of each node. Source: sbatch(1), OUTPUT ENVIRONMENT VARIABLES.

    >>> find_memory({"SLURM_MEM_PER_NODE": "2048"}, 8) >> 30, find_memory({"SLURM_MEM_PER_CPU": "1024"}, 8) >> 30
    (2, 8)
    >>> find_memory({}, 8), find_memory({"SLURM_MEM_PER_NODE": "0"}, 8)
    (0, 0)
    """
    for name, count in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_CPU", cores)):
        text = variables.get(name, "")
        if text.isdecimal():
            return (int(text) << 20) * count
    return 0


class SlurmFacts(NodeFacts):
    """Slurm has bound the GPUs for each agent."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.memory_bytes = find_memory(os.environ, max(1, options.cores_of(plan)))

    def forget(self) -> None:
        """Forget the agents of the attempt before."""
        self._hellos.clear()

    def host(self, node: int) -> str:
        """Return the host name of a node whose agent has joined; else empty."""
        return self._hellos[node].host if node in self._hellos else ""

    def find_nodes(self, hosts: Container[str]) -> tuple[int, ...]:
        """Return the nodes on these hosts."""
        return tuple(node for node, hello in self._hellos.items() if hello.host in hosts)

    def choose_network(self) -> Network | None:
        hellos = [self._hellos[task.node] for task in self._plan.nodes]
        return networks.choose(hellos, str(self._plan.compute.get("interface") or ""))
