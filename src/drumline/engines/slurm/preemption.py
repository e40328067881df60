"""Signals from Slurm, explained by asking it about the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.engines.base import TIME_LIMIT, SignalMeaning
from drumline.engines.slurm import options, states
from drumline.engines.slurm.batch_job import parse_seconds, was_preempted

if TYPE_CHECKING:
    from drumline.contract.plan import Plan
    from drumline.engines.slurm.batch_job import BatchJob
    from drumline.engines.slurm.node_facts import SlurmFacts

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


class SlurmPreemption:
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
            notice_s = self._find_notice_s(job, grace_s)
            return SignalMeaning("preemption", "Slurm, for a job with a higher priority", notice_s)
        if state == "RUNNING" and node is not None and STEPD not in by:
            return SignalMeaning("node preemption", by)
        if down:
            return _stop(f"Slurm{since}", grace_s, lost)
        if state == "TIMEOUT" or job.get("Reason") == "TimeLimit":
            self.is_at_limit = True
            return _stop("Slurm, whose time limit has come", grace_s)
        if state in ("COMPLETING", "CANCELLED"):
            return SignalMeaning("cancel", "scancel", grace_s)
        if states.phase(state) == states.ENDED:
            return _stop(f"Slurm: {states.why_ended(state)}", grace_s)
        if node is None and state and not options.may_requeue(self._plan):
            return SignalMeaning("cancel", by, grace_s)
        # Slurm does not answer, or does not know the job: the machine may be about to go down.
        return SignalMeaning("preemption", "Slurm" if node is not None else by, grace_s)

    def was_cancel(self, job: dict[str, str]) -> bool:
        """Return whether a signal of which Slurm said nothing was scancel's. ``job``: what it says by now."""
        is_ending = job.get("JobState") in ("COMPLETING", "CANCELLED")
        is_other = was_preempted(job) or job.get("Reason") == "TimeLimit"
        return self._is_unanswered and is_ending and not is_other and not self._job.find_down_nodes()

    def _find_notice_s(self, job: dict[str, str], grace_s: float) -> float:
        """Return the notice of a preemption: the partition's GraceTime, which may be 0, and KillWait."""
        notice_s = parse_seconds(self._job.partition_setting(job.get("Partition", ""), "GraceTime"), 0)
        if notice_s:
            return min(self._plan.grace_s, max(1.0, notice_s + grace_s - 1))
        return grace_s


def _stop(by: str, grace_s: float, lost: tuple[int, ...] = (), verb: str = "stopped") -> SignalMeaning:
    """Return the meaning of an end of all nodes for which no other job is the reason, unless ``verb`` says so."""
    return SignalMeaning("preemption", by, grace_s, lost, verb)
