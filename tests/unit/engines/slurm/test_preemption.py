"""What Slurm's signals mean, how long it may take to find out, and what follows; with fake commands."""

import pytest
from planning import plan

from drumline.engines.base import TIME_LIMIT
from drumline.engines.slurm.allocation import SlurmAllocation
from drumline.engines.slurm.batch_job import BatchJob
from drumline.engines.slurm.node_facts import SlurmFacts
from drumline.engines.slurm.preemption import SlurmPreemption

TO_SUPERVISOR = "a SIGTERM to its supervisor"


def make(slurm, monkeypatch, restarts=1):
    """Return the job's preemptions and allocation; it may be started again so often."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "e1")
    made = plan(2, at={"engine": "slurm"})._replace(max_restarts=restarts)
    job = BatchJob(made)
    preemption = SlurmPreemption(made, job, SlurmFacts(made))
    return preemption, SlurmAllocation(made, job, preemption)


@pytest.mark.parametrize("end_kind", ["failure", "hang", "node preemption"])
@pytest.mark.parametrize(
    ("state", "by", "where"),
    [
        ("", "", "same nodes"),
        ("JobState=PENDING Restarts=1", TO_SUPERVISOR, "new supervisor"),
        ("JobState=PENDING Restarts=1", TIME_LIMIT, "new supervisor"),
        ("JobState=RUNNING Restarts=0 Requeue=0", TIME_LIMIT, "nowhere"),
    ],
)
def test_nodes_that_slurm_takes_are_no_place_for_the_next_attempt(
    slurm, monkeypatch, end_kind, state, by, where
):
    """Whatever the ranks had ended for before Slurm said so."""
    slurm.says("scontrol", f"JobId=7 {state}\n")
    preemption, allocation = make(slurm, monkeypatch)
    if by:
        preemption.explain_signal(None, by)
    assert allocation.decide_next(end_kind, progressed=True).where == where
