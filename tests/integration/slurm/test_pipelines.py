"""Pipelines with steps on this machine and on a real Slurm cluster."""

import os
import signal

import pytest
from cli_jobs import two_by_two
from pipelines import (
    counts,
    driver_of,
    guard_of,
    runs,
    step,
    steps_of,
    wait_for_end,
    wait_for_step,
    waits_for,
    write_pipeline,
)
from slurm_jobs import COMPUTE

from drumline import load_job
from drumline.control.facts import description
from drumline.control.jobs.ending import cancel
from drumline.control.submission.submit import submit

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def begin(slurm, tmp_path):
    """A pipeline whose step in the middle runs on two nodes of the cluster."""

    def and_return(middle):
        there = {"compute": f"azureml:{COMPUTE}", **two_by_two()}
        steps = {
            "before": step(counts(tmp_path / "before", "echo from here > ${{outputs.o}}/x")),
            "there": step(middle, "before", **there),
            "after": step(counts(tmp_path / "after", "cat ${{inputs.there}}/*"), "there"),
        }
        submit(load_job(write_pipeline(tmp_path, steps)))

    return and_return


def test_steps_here_and_there_feed_each_other(slurm, begin):
    begin("echo $RANK $(hostname) $(cat ${{inputs.before}}/x) > ${{outputs.o}}/$RANK")
    shown = wait_for_end()
    assert shown["status"] == "Completed", shown["reason"]
    assert slurm.logs("p-after") == ["".join(f"{rank} e{rank // 2 + 1} from here\n" for rank in range(4))]
    assert description.show_job("p-there")["slurm"]["slurm_job_id"]


def test_a_driver_that_is_killed_meanwhile_finds_the_step_again(slurm, begin, tmp_path):
    begin(f"echo ran >> {tmp_path}/there-$RANK; touch ${{{{outputs.o}}}}/x; {waits_for(tmp_path / 'go')}")
    wait_for_step("there")
    driver = driver_of("p")
    os.kill(guard_of(driver), signal.SIGKILL)
    os.kill(driver, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert wait_for_end()["status"] == "Completed"
    assert [runs(tmp_path / name) for name in ("before", "there-0", "there-3", "after")] == [1, 1, 1, 1]


def test_a_canceled_pipeline_leaves_nothing_in_the_queue(slurm, begin):
    other = slurm.fill()
    begin("true")
    wait_for_step("there", status="Queued")
    cancel("p")
    assert wait_for_end()["status"] == "Canceled"
    assert steps_of("p") == {"before": "Completed", "there": "Canceled", "after": "Skipped"}
    assert list(slurm.cluster.squeue()) == [other]
