"""A job tuned: the fastest setting is found, failures are results, and a tuning goes on after kill -9 of anything."""

import contextlib
import json
import os
import signal

import pytest
from cli_jobs import background, job_names, one_rank, write_script
from needs import need_torch
from pipelines import driver_of, guard_of
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.spec.jobs.command import Command
from drumline.spec.load import load_job

need_torch()

TRAIN = """
    import os
    import sys
    import time

    import torch
    import torch._dynamo  # Which the first optimizer imports; here the warm interpreter has it.

    assert (os.environ["TOKEN"], os.environ["FROM_FILE"]) == ("open sesame", "yes")
    pause = sys.argv[1]
    if pause == "much":
        raise MemoryError("no room for the optimizer")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=1e-3)
    while True:
        # As an accelerator leaves the processor idle.
        time.sleep(float(pause))
        optimizer.step()
"""
OVER = "pause=0.5|0.02|much"
"""An input: a variable would give each setting a warm interpreter of its own."""


def read_tuning(home):
    """The tuning of this home, and what is known of it; None before it begins."""
    names = [name for name in job_names(home) if name.count("_") == 0 and name.startswith("tune-")]
    folder = RunFolder.for_job(names[0]) if names else None
    return (folder, fold(folder.read_events())) if folder and folder.exists() else None


def kill(*pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(280)
def test_the_same_command_goes_on_after_everything_was_killed(cli, tmp_path, drumline_home):
    inputs = {"batch_size": 8, "pause": 0.5}
    command = "python train.py ${{inputs.pause}}"
    path = write_script(tmp_path, TRAIN, command, inputs=inputs, **one_rank(resources={}))
    (tmp_path / "token").write_text("open sesame")
    (tmp_path / ".env").write_text("FROM_FILE=yes\n")
    given = ["--secret", f"TOKEN=@{tmp_path / 'token'}", "--env-file", tmp_path / ".env"]
    words = ["tune", "-f", path, "--for", "throughput", "--over", OVER, "--steps", "5", *given]
    with background(*words, cwd=tmp_path) as first:
        first.wait_for_error("tune: job tune-")
        folder, _ = wait_until(lambda: read_tuning(drumline_home), 20)

        def trial():
            steps = fold(folder.read_events()).steps
            job = RunFolder.for_job(steps["trial_0"].job) if "trial_0" in steps else None
            return job if job and fold(job.read_events()).started else None

        running = wait_until(trial, 30)
        driver = driver_of(folder.name)
        supervisor = running.read_json(running.supervisor)["pid"]
        kill(first.process.pid, guard_of(driver), driver, supervisor)
    done = cli(*words, "-o", "json")
    assert done.rc == 0, (done.out, done.err)
    assert f"tune: job {folder.name} is under way, and goes on" in done.err
    assert "it is measured once more" in done.err
    values = json.loads(done.out)
    assert (values["name"], values["status"], values["metric"]) == (folder.name, "Completed", "samples_per_s")
    fast, slow, failed = values["settings"]
    assert [row["setting"]["pause"] for row in (fast, slow, failed)] == [0.02, 0.5, "much"]
    assert fast["step_s"] >= 0.02
    assert fast["metric"] == pytest.approx(8 / fast["step_s"])
    assert values["best"]["setting"] == fast["setting"]
    assert slow["step_s"] >= 0.5
    assert "no room for the optimizer" in failed["reason"]
    spreads = {
        step.detail["setting"]: step.detail.get("spread")
        for step in fold(folder.read_events()).steps.values()
    }
    assert {setting: spread is not None for setting, spread in spreads.items()} == {
        0: True,
        1: True,
        2: False,
    }
    assert failed["metric"] is None
    # Each is measured once, but for the one that was killed, and the one that won and was confirmed.
    assert values["runs"] == 5
    assert len(job_names(drumline_home)) == 6
    won = load_job(str(tmp_path / "job.tuned.yml"))
    assert isinstance(won, Command)
    assert dict(won.inputs) == {"batch_size": 8, "pause": 0.02}
    # What was given with the command is not the job file's.
    assert not won.environment_variables
    assert not won.drumline.get("secrets")

    os.remove(tmp_path / "job.tuned.yml")
    again = cli(*words, "-o", "table")
    assert again.rc == 0, again.err
    assert f"tune: job {folder.name} was measured before" in again.err
    assert "samples/s (best)" in again.out
    assert "written: " in again.out
    assert (tmp_path / "job.tuned.yml").exists()
    assert len(job_names(drumline_home)) == 6
    shown = json.loads(cli("job", "show", folder.name, "-o", "json").out)
    assert shown["best_trial"]["params"] == fast["setting"]


def test_what_cannot_be_tuned_is_refused_before_anything_runs(cli, tmp_path, drumline_home):
    path = write_script(tmp_path, "pass", **one_rank(resources={}))

    def refuse(*words):
        done = cli("tune", "-f", path, *words)
        assert done.rc == 2, (done.out, done.err)
        return done.err.splitlines()[0].removeprefix("error: ")

    fast = ("--for", "throughput")
    assert refuse(*fast, "--over", "nothing").startswith("--over: 'nothing' is neither a setting")
    assert refuse(*fast, "--steps", "4").startswith("--steps must be 5 or more")
    assert refuse(*fast, "--write", tmp_path / "nowhere" / "x.yml").startswith("--write: ")
    assert refuse(*fast, "--query", "[").startswith("--query: '[' is not a JMESPath expression: ")
    assert cli("tune", "-f", "-", *fast).rc == 2
    assert job_names(drumline_home) == []
