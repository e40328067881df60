"""What it costs to follow a job while nothing is printed: CPU time a second, for each kind of job."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from cli_jobs import one_rank, wait_for_status, write_job
from pipelines import step, waits_for, write_pipeline
from waiting import wait_until

from drumline.control.jobs.ending import cancel

WATCHED_S = 1.0

IDLE_CORES = 0.15
"""Measured: 0.004 to 0.008 on a quiet machine; a loop without a pause took 0.9."""


def cpu_s(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def cores_while_waiting(pid):
    """CPU seconds a second of a process that nothing is asked of."""
    began, before = time.monotonic(), cpu_s(pid)
    wait_until(lambda: time.monotonic() - began > WATCHED_S)
    return (cpu_s(pid) - before) / (time.monotonic() - began)


@contextmanager
def streamed(name, until):
    """``job stream`` of it, once that text has come out."""
    argv = [sys.executable, "-m", "drumline", "job", "stream", "-n", name]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    os.set_blocking(process.stdout.fileno(), False)
    seen = bytearray()

    def has_come():
        seen.extend(process.stdout.read() or b"")
        return until.encode() in seen

    try:
        wait_until(has_come, 20.0, f"{until!r} of job {name}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        cancel(name)


def write_command(folder, gate):
    return write_job(folder, f"echo ready; {waits_for(gate)}", name="p", **one_rank())


def write_steps(folder, gate):
    """The first has ended, with lines of its own; the second runs."""
    return write_pipeline(folder, {"a": step("echo first"), "b": step(f"echo ready; {waits_for(gate)}", "a")})


def write_sweep(folder, gate):
    """One trial has ended, and another runs."""
    trial = "test ${{search_space.what}} = 1 || { echo ready; " + waits_for(gate) + "; }"
    path = folder / "sweep.yml"
    path.write_text(
        json.dumps(
            {
                "type": "sweep",
                "name": "p",
                "trial": {"command": f"echo line; {trial}", "drumline": {"grace": 0.5}},
                "search_space": {"what": {"type": "choice", "values": [1, 2]}},
                "sampling_algorithm": "grid",
                "objective": {"goal": "minimize", "primary_metric": "loss"},
                "limits": {"max_total_trials": 2, "max_concurrent_trials": 1},
            }
        )
    )
    return path


@pytest.mark.parametrize(
    ("write", "until"),
    [(write_command, "ready"), (write_steps, "[b] ready"), (write_sweep, "[trial_1] ready")],
)
def test_following_a_job_that_prints_nothing_costs_next_to_nothing(cli, tmp_path, write, until):
    result = cli("job", "create", "-f", write(tmp_path, tmp_path / "gate"))
    assert result.rc == 0, result.err
    wait_for_status("p", "Running")
    with streamed("p", until) as process:
        assert cores_while_waiting(process.pid) < IDLE_CORES
