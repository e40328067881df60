"""What Slurm's signals mean, how long it may take to find out, and what follows; with fake commands."""

import shlex
import sys
import time

import pytest
from planning import plan

from drumline.contract.folder import RunFolder
from drumline.engines.base import TIME_LIMIT, SignalMeaning
from drumline.engines.slurm import batch_job as preemption_module
from drumline.engines.slurm import srun_agents as agents_module
from drumline.engines.slurm.batch_job import BatchJob, SlurmAllocation, SlurmFacts, SlurmPreemption
from drumline.engines.slurm.srun_agents import SlurmAgents

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


PREEMPTED = "PreemptTime=2026-01-01T00:00:00"


@pytest.mark.parametrize(
    ("by", "job", "node", "told"),
    [
        (TIME_LIMIT, "JobState=RUNNING", "ALLOCATED", "stopped by Slurm, whose time limit is near"),
        (TO_SUPERVISOR, "JobState=TIMEOUT", "ALLOCATED", "stopped by Slurm, whose time limit has come"),
        (TO_SUPERVISOR, "JobState=NODE_FAIL", "DOWN", "stopped by Slurm, since node e1 is DOWN"),
        (TO_SUPERVISOR, "JobState=PENDING Restarts=2", "IDLE", "stopped by Slurm, which starts it again"),
        (
            TO_SUPERVISOR,
            f"JobState=PENDING Restarts=2 {PREEMPTED}",
            "IDLE",
            "preempted by Slurm, which starts it again",
        ),
        (
            TO_SUPERVISOR,
            f"JobState=COMPLETING {PREEMPTED}",
            "IDLE",
            "preempted by Slurm, for a job with a higher",
        ),
    ],
)
def test_only_what_makes_room_for_another_job_preempts(slurm, monkeypatch, by, job, node, told):
    preemption, _ = make(slurm, monkeypatch)
    answers(slurm, job=f"JobId=7 {job}", node=f"NodeName=e1 State={node}")
    meaning = preemption.explain_signal(None, by)
    assert meaning.kind == "preemption"
    assert f"{meaning.verb} by {meaning.by}".startswith(told)


def answers(slurm, **said):
    """Have ``scontrol show WHAT`` say that;"""
    cases = "".join(f'*"show {what}"*) echo "{text}";;\n' for what, text in said.items())
    slurm.says("scontrol", first=f'case "$*" in\n{cases}esac')


def test_the_settings_are_known_before_a_signal_comes(slurm, monkeypatch):
    preemption, _ = make(slurm, monkeypatch)
    answers(slurm, config="KillWait = 12 sec\nProctrackType = proctrack/linuxproc")
    preemption._job.read_settings()
    preemption._job.read_settings()
    assert slurm.calls("scontrol") == ["show config"]
    slurm.silent("scontrol")
    assert preemption.explain_signal(None, TO_SUPERVISOR).grace_s == 8.0
    assert preemption.has_signaled_ranks()
    assert slurm.calls("scontrol").count("show config") == 1


def test_the_settings_are_read_while_the_agents_start(slurm, monkeypatch, tmp_path):
    monkeypatch.setattr(agents_module, "_SETTINGS_S", 60.0)
    preemption, _ = make(slurm, monkeypatch)
    slurm.says("scontrol", "KillWait = 12 sec\n")
    slurm.says("srun")
    folder = RunFolder(str(tmp_path / "job"))
    folder.create()
    agents = SlurmAgents(plan(2, at={"engine": "slurm"}), folder, preemption._job, preemption._facts)
    agents.start(7, "secret")
    agents.clear()
    assert slurm.calls("scontrol") == ["show config"]
    assert preemption._job.setting("KillWait") == "12 sec"


def test_settings_that_could_not_be_read_are_asked_for_again(slurm, monkeypatch):
    preemption, _ = make(slurm, monkeypatch)
    slurm.silent("scontrol")
    preemption._job.read_settings()
    answers(slurm, config="KillWait = 12 sec", job="JobId=7 JobState=CANCELLED")
    assert preemption.explain_signal(None, TO_SUPERVISOR) == SignalMeaning("cancel", "scancel", 8.0)


@pytest.mark.parametrize("hangs", ["job", "node", "config"])
def test_ranks_are_told_although_slurm_does_not_answer(slurm, monkeypatch, hangs):
    """All questions about one signal have one time limit, and the last of them wait for nothing."""
    # Enough for those that answer, on a busy machine.
    monkeypatch.setattr(preemption_module, "_ASK_S", 4.0)
    preemption, _ = make(slurm, monkeypatch)
    slurm.says(
        "scontrol",
        first=f'case "$*" in *"show {hangs}"*) exec {shlex.quote(sys.executable)} -c "import signal; signal.pause()";; '
        '*"show job"*) echo "JobId=7 JobState=CANCELLED";; esac',
    )
    began = time.monotonic()
    meaning = preemption.explain_signal(1, "slurmstepd")
    assert time.monotonic() - began < 15.0
    expected = ("preemption", "Slurm") if hangs == "job" else ("cancel", "scancel")
    assert (meaning.kind, meaning.by) == expected
    assert hangs in slurm.calls("scontrol")[-1]
    # At the end of the ranks nobody waits again.
    asked = len(slurm.calls("scontrol"))
    assert not preemption.has_signaled_ranks()
    assert len(slurm.calls("scontrol")) == asked


def test_a_job_that_was_canceled_while_slurm_was_silent_is_not_requeued(slurm, monkeypatch):
    preemption, allocation = make(slurm, monkeypatch)
    slurm.silent("scontrol")
    assert preemption.explain_signal(None, TO_SUPERVISOR).kind == "preemption"
    slurm.says("scontrol", "JobId=7 JobState=COMPLETING Restarts=0 Reason=None\n")
    after = allocation.decide_next("preemption", progressed=True)
    assert (after.where, "scancel" in after.reason) == ("nowhere", True)
    assert not any("requeue" in call for call in slurm.calls("scontrol"))


def test_an_answer_counts_though_the_next_question_has_none(slurm, monkeypatch, tmp_path):
    preemption, _ = make(slurm, monkeypatch, restarts=0)
    once = tmp_path / "once"
    slurm.says(
        "scontrol",
        first=f'case "$*" in *"show job"*) [ -e {once} ] && exit 1; : >{once}; echo "JobId=7 JobState=RUNNING";; esac',
    )
    assert preemption.explain_signal(None, TO_SUPERVISOR).kind == "cancel"
