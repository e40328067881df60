"""The allocation of a batch job: there from the beginning, and again after a requeue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.base import NextAttempt
from drumline.engines.slurm import options
from drumline.engines.slurm.batch_job import SETTLED_S
from drumline.engines.slurm.client import SilentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from drumline.contract.events import EndKind
    from drumline.contract.plan import Plan
    from drumline.engines.slurm.batch_job import BatchJob
    from drumline.engines.slurm.preemption import SlurmPreemption


class SlurmAllocation:
    """Slurm's nodes for one job. Others come with a requeue, which starts the supervisor again."""

    needs_progress = True

    def __init__(self, plan: Plan, job: BatchJob, preemption: SlurmPreemption) -> None:
        self._plan = plan
        self._job = job
        self._preemption = preemption
        self.lost_node_kind: Literal["node", "node preemption"] = (
            "node preemption" if options.may_requeue(plan) else "node"
        )

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

    def release(self) -> None:
        """Do nothing: Slurm takes the nodes back when the batch step ends."""
