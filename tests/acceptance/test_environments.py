"""Environments that are built: by uv from wheels in a folder, and by a program that stands for micromamba."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import wheels
from cli_jobs import background, job_names, wait_for_status, write_job
from programs import first_lines
from waiting import wait_until

from drumline.control.environments.environment_builds import TargetMachine, plan_environment
from drumline.entities import Environment
from drumline.staging.environments import environment_builder

ROOT = Path(__file__).parents[2]
SHOW = "python -c 'import sums, parts, sys; print(sys.prefix, parts.version)'; parts; pip"

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).with_name("uv").exists() or shutil.which("uv")), reason="there is no uv"
)


@pytest.fixture
def index(tmp_path):
    return wheels.index(tmp_path / "wheels")


@pytest.fixture
def job(tmp_path, index):
    """The file of a job, whose environment has the packages in those lines."""

    def write(name, *lines, command=SHOW, packages=(), **fields):
        wheels.conda_file(tmp_path / "conda.yml", index, *lines, packages=packages)
        return write_job(
            tmp_path, command, name=name, environment={"image": "ubuntu", "conda_file": "conda.yml"}, **fields
        )

    return write


@pytest.fixture(autouse=True)
def no_containers(monkeypatch):
    monkeypatch.setenv("DRUMLINE_CONTAINER", "none")


def events(home, name, kind=""):
    lines = (home / "jobs" / name / "events.jsonl").read_text().splitlines()
    plan_environment = [json.loads(line) for line in lines]
    return [one for one in plan_environment if not kind or one["type"] == kind]


def log_of(home, name):
    path = home / "jobs" / name / "system_logs" / "environment.log"
    return path.read_text() if path.exists() else ""


def test_a_second_job_with_the_same_packages_starts_with_no_build(cli, job, drumline_home, tmp_path):
    done = cli("job", "create", "-f", job("first", "sums"), "--stream")
    assert done.rc == 0, done.err + done.out
    (prefix,) = [path for path in (drumline_home / "environments").iterdir() if path.is_dir()]
    assert f"{prefix} 2.0\n2.0\n99.0\n" in done.out
    assert "ubuntu is not used" in done.err
    assert "a virtual environment of 1 package, by uv" in log_of(drumline_home, "first")
    locked = (drumline_home / "jobs" / "first" / "environment.lock").read_text()
    assert locked.split() == ["parts==2.0", "pip==99.0", "sums==1.0"]
    (tmp_path / "conda.yml").unlink()
    path = job("second", "sums  # the same, written in another way")
    os.utime(prefix / ".complete", (0, 0))
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    (ready,) = events(drumline_home, "second", "EnvironmentReady")
    assert (ready["reused"], ready["prefix"]) == (True, str(prefix))
    assert events(drumline_home, "second", "EnvironmentBuilding") == []
    assert log_of(drumline_home, "second") == ""
    assert (drumline_home / "jobs" / "second" / "environment.lock").read_text() == locked
    assert (prefix / ".complete").stat().st_mtime > 0, "the last use is noted"


def test_what_activation_would_set_is_set(cli, job, drumline_home, monkeypatch):
    monkeypatch.setenv("CONDA_PREFIX", "/another")
    done = cli(
        "job", "create", "-f", job("one", "parts", command='echo "$VIRTUAL_ENV:$CONDA_PREFIX"'), "--stream"
    )
    (prefix,) = [path for path in (drumline_home / "environments").iterdir() if path.is_dir()]
    assert f"{prefix}:\n" in done.out


def test_what_cannot_be_resolved_fails_before_a_rank_starts(cli, job, drumline_home):
    done = cli("job", "create", "-f", job("broken", "sums", "parts==1.0"), "--stream")
    assert done.rc == 1
    (end,) = events(drumline_home, "broken", "JobEnded")
    assert end["reason"].startswith("environment: it could not be built: ")
    assert "parts" in end["reason"]
    assert "unsatisfiable" in end["reason"]
    assert end["reason"].endswith("jobs/broken/system_logs/environment.log")
    assert "\n" not in end["reason"]
    assert events(drumline_home, "broken", "RankStarted") == []
    assert os.listdir(drumline_home / "environments") == [
        name for name in os.listdir(drumline_home / "environments") if name.endswith(".lock")
    ]


def test_of_four_at_once_one_builds(cli, job, drumline_home):
    path = job("job", "sums")
    for number in range(4):
        assert cli("job", "create", "-f", path, "--set", f"name=job{number}").rc == 0
    for number in range(4):
        wait_for_status(f"job{number}", "Completed")
    logs = [log_of(drumline_home, f"job{number}") for number in range(4)]
    assert sum(log.count(" venv ") for log in logs) == 1
    reused = [events(drumline_home, f"job{number}", "EnvironmentReady")[0]["reused"] for number in range(4)]
    assert sorted(reused) == [False, True, True, True]


# Killed while it builds


@pytest.fixture
def gate(tmp_path, index):
    """While that file is there, building waits; it then has the process id of what builds."""
    gate = tmp_path / "gate"
    gate.touch()
    wheels.gated(index, gate)
    return gate


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_below(pid, text):
    """That of the ancestor whose command line has the text."""
    while pid > 1:
        if text in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError(text)


def building(cli, job, gate, name):
    """The process that builds for a job, which waits."""
    assert cli("job", "create", "-f", job(name, "gated", command="python -c 'import gated'")).rc == 0
    wait_until(gate.read_text, 20.0, "the build to begin")
    return int(gate.read_text())


def test_a_builder_that_is_killed_leaves_nothing_and_the_next_builds_again(cli, job, gate, drumline_home):
    backend = building(cli, job, gate, "killed")
    os.kill(pid_below(backend, "drumline.staging.environments"), signal.SIGKILL)
    wait_for_status("killed", "Failed")
    wait_until(lambda: not is_alive(backend), 20.0, "what it started to end")
    assert not list((drumline_home / "environments").glob("*/.complete"))
    gate.unlink()
    assert (
        cli("job", "create", "-f", job("again", "gated", command="python -c 'import gated'"), "--stream").rc
        == 0
    )


def test_with_the_supervisor_all_that_builds_ends(cli, job, gate, drumline_home):
    backend = building(cli, job, gate, "orphan")
    supervisor = json.loads((drumline_home / "jobs" / "orphan" / "supervisor.json").read_text())["pid"]
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_alive(backend), 20.0, "what it started to end")
    wait_for_status("orphan", "Failed")


def test_a_build_can_be_canceled(cli, job, gate, drumline_home):
    backend = building(cli, job, gate, "unwanted")
    assert cli("job", "cancel", "-n", "unwanted").rc == 0
    wait_for_status("unwanted", "Canceled")
    wait_until(lambda: not is_alive(backend), 20.0, "what it started to end")


def test_whoever_waits_is_told_for_whom(cli, job, gate, drumline_home):
    building(cli, job, gate, "before")
    assert cli("job", "create", "-f", job("after", "gated")).rc == 0
    wait_until(lambda: events(drumline_home, "after", "EnvironmentBuilding"), 20.0, "it to wait")
    (waiting,) = events(drumline_home, "after", "EnvironmentBuilding")
    assert waiting["what"] == "waiting for job before, which builds the same"
    for name in ("after", "before"):
        cli("job", "cancel", "-n", name)
        wait_for_status(name, "Canceled")


# What is refused, and what is not used


def test_packages_of_conda_without_conda_are_refused_with_their_line(cli, tmp_path, drumline_home):
    (tmp_path / "conda.yml").write_text("dependencies:\n  - python=3.11\n  - numpy=1.26\n")
    path = write_job(tmp_path, "true", environment={"image": "ubuntu", "conda_file": "conda.yml"})
    nowhere = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MAMBA_EXE": "", "CONDA_EXE": ""}
    if shutil.which("conda", path="/opt/conda/bin:/opt/miniforge3/bin"):
        pytest.skip("there is a conda in /opt")
    done = cli("job", "create", "-f", path, env=nowhere)
    assert done.rc == 2
    assert (
        "conda.yml:3:5: environment.conda_file.dependencies.1: 'numpy=1.26' is a package of conda" in done.err
    )
    assert "micromamba is one file" in done.err
    assert "DRUMLINE_ENVIRONMENT=current" in done.err
    assert job_names(drumline_home) == []
    assert (
        cli("job", "create", "-f", path, "--stream", env={**nowhere, "DRUMLINE_ENVIRONMENT": "current"}).rc
        == 0
    )


@pytest.mark.parametrize("how", ["job", "variable"])
def test_the_python_at_hand_whatever_the_job_says(cli, job, drumline_home, how):
    fields = {"drumline": {"environment": "current"}} if how == "job" else {}
    path = job(
        "plain", "nothing-of-that-name", command="python -c 'import sys; print(sys.executable)'", **fields
    )
    done = cli(
        "job", "create", "-f", path, "--stream", env={} if fields else {"DRUMLINE_ENVIRONMENT": "current"}
    )
    assert done.rc == 0
    assert f"{sys.executable}\n" in done.out
    assert not (drumline_home / "environments").exists()


def test_another_word_in_the_variable_is_refused(cli, job):
    done = cli("job", "create", "-f", job("plain"), env={"DRUMLINE_ENVIRONMENT": "other"})
    assert done.rc == 2
    assert "DRUMLINE_ENVIRONMENT is 'other', and can be 'current' alone" in done.err


# By a program that stands for micromamba


@pytest.fixture
def mamba(tmp_path):
    program = tmp_path / "bin" / "micromamba"
    program.parent.mkdir()
    program.write_text(first_lines() + (ROOT / "tests" / "jobs" / "micromamba.py").read_text())
    program.chmod(0o755)
    return {"MAMBA_EXE": str(program)}


def test_packages_of_conda_are_made_by_what_the_machine_has(cli, job, drumline_home, mamba):
    command = 'echo "$CONDA_PREFIX"; python -c "import sys; print(sys.prefix)"'
    path = job("conda", "toolz", command=command, packages=("python=3.11", "numpy=1.26"))
    done = cli("job", "create", "-f", path, "--stream", env=mamba)
    assert done.rc == 0, done.err
    (prefix,) = [path for path in (drumline_home / "environments").iterdir() if path.is_dir()]
    assert f"{prefix}\n{prefix}\n" in done.out
    locked = json.loads((drumline_home / "jobs" / "conda" / "environment.lock").read_text())
    assert locked["dependencies"][:3] == ["python=3.11", "numpy=1.26", "pip"]
    assert locked["dependencies"][3]["pip"][-1] == "toolz"


def test_what_conda_cannot_solve_is_said_in_its_words(cli, job, drumline_home, mamba):
    done = cli("job", "create", "-f", job("conda", packages=("numpy=99",)), "--stream", env=mamba)
    assert done.rc == 1
    (end,) = events(drumline_home, "conda", "JobEnded")
    assert "numpy =99 * does not exist (perhaps a typo or a missing channel)" in end["reason"]


# drumline environment build, show


def test_build_makes_it_before_any_job_and_show_says_so(cli, job, tmp_path, drumline_home):
    path = job("first", "sums")
    assert cli("environment", "create", "-n", "e", "-i", "ubuntu", "-c", "conda.yml").rc == 0
    before = json.loads(cli("environment", "show", "e").out)
    assert before["built"]["is_ready"] is False
    built = cli("environment", "build", "-n", "e")
    assert built.rc == 0, built.err
    made = json.loads(built.out)
    assert (made["kind"], made["reused"]) == ("uv", False)
    assert "Installed 2 packages" in built.err
    shown = json.loads(cli("environment", "show", "e").out)["built"]
    assert (shown["is_ready"], shown["prefix"]) == (True, made["prefix"])
    assert 0 < shown["size_mb"] < 20
    assert json.loads(cli("environment", "build", "-f", "conda.yml").out)["reused"] is True
    assert json.loads(cli("environment", "build", "-f", "conda.yml", "--force").out)["reused"] is False
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    assert events(drumline_home, "first", "EnvironmentBuilding") == []
    (tmp_path / "again.json").write_text(cli("environment", "show", "e").out)
    assert cli("environment", "create", "-f", "again.json").rc == 0


def test_build_says_why_it_cannot(cli, job, tmp_path):
    job("x", "parts==7")
    broken = cli("environment", "build", "-f", "conda.yml")
    assert (broken.rc, broken.out) == (1, "")
    assert "parts==7" in broken.err.splitlines()[-1]
    cli("environment", "create", "-n", "p", "--python", sys.executable)
    assert "there is nothing to build: it is the Python" in cli("environment", "build", "p").err
    (tmp_path / "image.yml").write_text("name: i\nimage: ubuntu\n")
    assert cli("environment", "build", "-f", "image.yml").rc == 2


def test_an_interrupt_leaves_no_half_environment(cli, job, gate, drumline_home, tmp_path):
    job("x", "gated")
    with background("environment", "build", "-f", "conda.yml", cwd=tmp_path) as running:
        wait_until(gate.read_text, 20.0, "the build to begin")
        running.interrupt()
        assert running.end() == 130
    wait_until(lambda: not is_alive(int(gate.read_text())), 20.0, "what it started to end")
    assert not [path for path in (drumline_home / "environments").iterdir() if path.is_dir()]


def test_a_script_of_an_older_sdk_finds_its_imports_there_too(cli, job, drumline_home):
    script = "from drumline.v1 import Run; Run.get_context().log('a', 1); print('logged')"
    done = cli("job", "create", "-f", job("old", "parts", command=f'python -c "{script}"'), "--stream")
    assert (done.rc, "logged\n" in done.out) == (0, True), done.out


def test_the_example_runs_and_its_second_run_builds_nothing(cli, drumline_home, tmp_path):
    for name in ("environment", "digits-ddp"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / "examples" / name)
    path = tmp_path / "examples" / "environment" / "job.yml"
    first = cli("job", "create", "-f", path, "-n", "first", "--stream")
    if first.rc and "ailed to fetch" in first.out:
        pytest.skip("no index of packages can be reached")
    assert first.rc == 0, first.out + first.err
    second = cli("job", "create", "-f", path, "-n", "second", "--stream")
    for done in (first, second):
        assert "accuracy 0.850" in done.out
        assert f"with {drumline_home}/environments/" in done.out
    assert len(events(drumline_home, "first", "EnvironmentBuilding")) == 1
    assert events(drumline_home, "second", "EnvironmentBuilding") == []
    locked = (drumline_home / "jobs" / "second" / "environment.lock").read_text()
    assert {line.partition("==")[0] for line in locked.splitlines()} == {"pip", "tabulate", "toolz"}


@pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW"), reason="6 s for pip to begin; DRUMLINE_SLOW=1 runs it"
)
def test_without_uv_it_is_made_by_venv_and_pip(index, tmp_path, monkeypatch):
    monkeypatch.setattr("drumline.staging.environments.uv.find_uv", lambda: "")
    wheels.conda_file(tmp_path / "conda.yml", index, "sums")
    made = plan_environment(
        Environment(conda_file=str(tmp_path / "conda.yml")), TargetMachine(sys.executable)
    ).build
    told = []
    with (tmp_path / "log").open("wb") as log:
        assert environment_builder.build_environment(made, log.fileno(), told.append).reused is False
        assert environment_builder.build_environment(made, log.fileno(), told.append).reused is True
    assert told == [
        "a virtual environment of 1 package, by venv and pip, because there is no uv (pip install uv), which is quicker"
    ]
    done = subprocess.run([f"{made.prefix}/bin/parts"], capture_output=True, text=True)
    assert done.stdout == "2.0\n"
    assert "sums==1.0" in (Path(made.prefix) / "environment.lock").read_text()
