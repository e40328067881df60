"""``--warm``, ``DRUMLINE_WARM`` and ``drumline warm``."""

import json

import pytest
from cli_jobs import logs_of, write_script
from waiting import wait_until

from drumline.contract import process_identity

WAITS = """
import os, time
import yaml
print("ready", flush=True)
while not os.path.exists({go!r}):
    time.sleep(0.01)
print("done")
"""


@pytest.fixture
def job_file(tmp_path):
    def write(text):
        path = tmp_path / "job.yml"
        path.write_text(text)
        return path

    return write


def planned(home, name):
    return json.loads((home / "jobs" / name / "plan.json").read_text())["warm"]


def test_the_flag_wins_over_the_file_and_that_over_the_variable(cli, job_file, drumline_home):
    path = job_file("command: 'true'\ndrumline: {warm: on}\n")
    surroundings = {"DRUMLINE_WARM": "off"}
    for name, flag, means in (("one", (), "on"), ("two", ("--warm", "auto"), "auto")):
        done = cli("job", "create", "-f", path, "-n", name, *flag, "--stream", env=surroundings)
        assert done.rc == 0, done.err
        assert planned(drumline_home, name) == means
    assert "warm: auto" in (drumline_home / "jobs" / "two" / "job.yml").read_text()


def test_a_program_without_a_file(cli, drumline_home):
    surroundings = {"DRUMLINE_WARM": "off"}
    for name, flag, means in (("one", (), "off"), ("two", ("--warm", "on"), "on")):
        assert cli("run", "--name", name, *flag, "--", "true", env=surroundings).rc == 0
        assert planned(drumline_home, name) == means
    done = cli("run", "--name", "three", "--", "true", env={"DRUMLINE_WARM": "sure"})
    assert (done.rc, done.err.splitlines()[0]) == (
        2,
        "error: DRUMLINE_WARM: must be one of auto, on, off; got 'sure'",
    )
    assert cli("run", "--warm", "sure", "--", "true").rc == 2
    assert not (drumline_home / "jobs" / "three").exists()


def test_all_trials_of_a_sweep_but_not_the_steps_of_a_pipeline(cli, job_file, drumline_home):
    sweep = job_file(
        "type: sweep\ntrial: {command: 'echo ${{search_space.x}}'}\n"
        "search_space: {x: {type: choice, values: [1]}}\n"
        "objective: {goal: maximize, primary_metric: a}\nlimits: {max_total_trials: 1}\n"
    )
    # It has failed, because its one trial logs no metric.
    assert cli("job", "create", "-f", sweep, "-n", "search", "--warm", "off", "--stream").rc == 1
    assert planned(drumline_home, "search_0") == "off"
    pipeline = job_file("type: pipeline\njobs: {a: {command: 'true'}}\n")
    done = cli("job", "create", "-f", pipeline, "-n", "steps", "--warm", "off")
    assert done.rc == 2
    assert done.err.splitlines() == [
        "error: --warm: a pipeline's steps set it themselves",
        "hint: DRUMLINE_WARM=off applies wherever it is not set",
    ]


def test_a_plan_says_what_is_not_the_default(cli, job_file):
    path = job_file("command: python train.py\n")
    assert "warm" not in cli("plan", "-f", path).out
    assert "\nwarm start: off\n" in cli("plan", "-f", path, "--set", "drumline.warm=off").out


def test_what_a_job_leaves_warm_is_listed_and_stopped(cli, tmp_path, drumline_home):
    go, home = tmp_path / "go", drumline_home / "jobs" / "job"
    path = write_script(tmp_path, WAITS.format(go=str(go)))
    assert cli("job", "create", "-f", path, "--warm", "on").rc == 0
    wait_until(lambda: logs_of(home) == ["ready\n"] * 4, 20)
    (one,) = json.loads(cli("warm", "list", "-o", "json").out)
    assert (one["program"], one["modules"], one["used"], one["users"]) == ("train.py", ["yaml"], 4, 2)
    assert (one["idle"], one["memory_bytes"] > 1 << 20) == ("in use", True)
    warm, pool = (
        process_identity.identify_process(one["pid"]),
        process_identity.identify_process(one["keeper"]),
    )
    unknown = cli("warm", "stop", "--pid", "1")
    assert (unknown.rc, unknown.err.splitlines()[0]) == (3, "error: there is no warm interpreter 1")
    assert cli("warm", "stop", "--pid", str(one["pid"])).err == f"stopped warm interpreter {one['pid']}\n"
    assert not process_identity.is_alive(warm)
    assert json.loads(cli("warm", "list", "-o", "json").out) == []
    assert cli("warm", "stop").err == "there are no warm interpreters\n"
    wait_until(lambda: not process_identity.is_alive(pool), what="the end of who held it")
    # Its ranks go on.
    go.touch()
    assert cli("job", "stream", "job").rc == 0
    assert logs_of(home) == ["ready\ndone\n"] * 4
