"""Jobs that do not fit on the machine together wait in line: in order, with a reason, and behind nobody who is gone."""

import os
import signal

import pytest
from cli_jobs import CORES, WAIT_FOR_SIGNAL, background, status_of, wait_for_status, write_job
from pipelines import step, steps_of, waits_for, write_pipeline
from waiting import wait_until

from drumline.control.facts import description


@pytest.fixture
def submit(cli, tmp_path):
    """Submit a job of as many ranks as there are cores; those left at the end are ended."""
    names = []

    def create(name, command=f'exec python -c "{WAIT_FOR_SIGNAL}"', ranks=CORES):
        distribution = {"type": "pytorch", "process_count_per_instance": ranks}
        job = write_job(tmp_path, command, distribution=distribution)
        result = cli("job", "create", "-f", job, "-n", name)
        assert result.rc == 0, result.err
        names.append(name)

    yield create
    for name in reversed(names):
        cli("job", "cancel", name, "--at-once")


def test_the_second_job_waits_says_for_whom_and_starts_when_the_first_ends(cli, submit):
    submit("first")
    wait_for_status("first", "Running")
    submit("second", "true")
    queued = wait_for_status("second", "Queued")
    assert f"waiting for {CORES} of {CORES} cores held by job first" == queued["reason"]
    cli("job", "cancel", "first")
    wait_for_status("second", "Completed")


def test_a_step_that_holds_the_cores_is_named_with_its_pipeline(cli, submit, tmp_path):
    go = tmp_path / "go"
    wide = {"type": "pytorch", "process_count_per_instance": CORES}
    path = write_pipeline(tmp_path, {"hold": step(waits_for(go), distribution=wide)})
    assert cli("job", "create", "-f", path).rc == 0
    try:
        wait_until(lambda: steps_of("p") == {"hold": "Running"}, 30, "the step to run")
        submit("second", "true")
        queued = wait_for_status("second", "Queued")
        assert queued["reason"] == f"waiting for {CORES} of {CORES} cores held by job p-hold of job p"
    finally:
        go.touch()
    wait_for_status("second", "Completed")
    wait_for_status("p", "Completed")


def test_order_is_kept(cli, submit):
    submit("first")
    wait_for_status("first", "Running")
    waiting = [f"job{number}" for number in range(4)]
    for name in waiting:
        submit(name, "true")
        wait_for_status(name, "Queued")
    assert description.show_job("job3")["reason"].endswith("held by job first; 3 ahead in the queue")
    cli("job", "cancel", "first")
    started = [wait_for_status(name, "Completed")["started_at"] for name in waiting]
    assert started == sorted(started)


@pytest.mark.skipif(CORES < 2, reason="two jobs run side by side")
def test_a_small_job_does_not_pass_a_big_one_that_waits(cli, submit):
    submit("small", ranks=1)
    wait_for_status("small", "Running")
    submit("big")
    assert f"waiting for 1 of {CORES} cores held by job small" == wait_for_status("big", "Queued")["reason"]
    submit("late", "true", ranks=1)
    assert wait_for_status("late", "Queued")["reason"] == "waiting behind job big in the queue"
    cli("job", "cancel", "big")
    wait_for_status("late", "Completed")
    assert status_of("small") == "Running"


def test_a_job_can_be_canceled_while_it_waits(cli, submit):
    submit("first")
    wait_for_status("first", "Running")
    submit("second")
    wait_for_status("second", "Queued")
    canceled = cli("job", "cancel", "second")
    assert "job second is Canceled" in canceled.err
    assert description.show_job("second")["ranks"] == []
    assert status_of("first") == "Running"


def test_a_cancel_is_seen_far_back_in_line_though_nobody_wakes_it(submit, drumline_home):
    """As from another machine or container that shares the home."""
    submit("first")
    for number in range(6):
        submit(f"w{number}")
    wait_for_status("w5", "Queued")
    folder = drumline_home / "jobs" / "w5"
    (folder / "cancel").write_text('{"by": "ada"}')
    wait_for_status("w5", "Canceled")
    assert description.show_job("w5")["reason"] == "canceled by ada before it started"


def test_run_waits_in_line_and_an_interrupt_ends_the_wait(submit, tmp_path):
    submit("first")
    wait_for_status("first", "Running")
    with background("run", "--procs", str(CORES), "--name", "second", "--", "true", cwd=tmp_path) as run:
        wait_for_status("second", "Queued")
        run.wait_for_error(f"job second is in line: waiting for {CORES} of {CORES} cores held by job first")
        run.interrupt()
        assert run.end() == 130


def test_a_supervisor_that_was_killed_holds_up_nobody(submit):
    submit("first")
    pid = wait_for_status("first", "Running")["processes"]["supervisor"]
    submit("second", "true")
    wait_for_status("second", "Queued")
    os.kill(pid, signal.SIGKILL)
    wait_for_status("second", "Completed")
    assert wait_for_status("first", "Failed")["reason"].startswith("its supervisor was killed")


def test_a_killed_supervisor_that_waited_holds_up_nobody(cli, submit):
    submit("first")
    wait_for_status("first", "Running")
    submit("second")
    pid = wait_for_status("second", "Queued")["processes"]["supervisor"]
    submit("third", "true")
    wait_for_status("third", "Queued")
    os.kill(pid, signal.SIGKILL)
    cli("job", "cancel", "first")
    wait_for_status("third", "Completed")


def test_the_ranks_of_a_killed_supervisor_are_gone(submit):
    submit("first")
    running = wait_for_status("first", "Running")["processes"]
    pids = [*running["agents"], *(rank["pid"] for rank in running["ranks"])]
    os.kill(running["supervisor"], signal.SIGKILL)
    wait_until(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), what="the end of agents and ranks"
    )
