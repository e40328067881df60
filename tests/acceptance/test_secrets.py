"""What a variable of a job is worth, every user of the machine could read in a command line: in none of ours it is."""

import shutil
import sys
import textwrap

import pytest
from canary import CANARY, Watch
from cli_jobs import background, wait_for_status, write_job
from container_engine import IMAGE, MOUNTS, StandIn
from waiting import wait_until

SCRIPT = """\
import os, pathlib, sys, time
assert os.environ["API_TOKEN"] == os.environ["XDG_TOKEN"] == sys.argv[1].replace("_", " "), dict(os.environ)
pathlib.Path(sys.argv[2], "up-" + os.environ.get("RANK", "0")).touch()
while not pathlib.Path(sys.argv[2], "go").exists():
    time.sleep(0.01)
"""
LOUD = CANARY.replace(" ", "_")
"""What ranks compare it with, in words that anybody may read."""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "src" / "train.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "up").mkdir()
    return path


def all_up(folder, count):
    wait_until(lambda: len(list((folder / "up").iterdir())) >= count, 30, "all ranks to be up")


ENV = (f"--env=API_TOKEN={CANARY}", "--env", f"XDG_TOKEN={CANARY}")


def check_life(watch, tmp_path, ranks):
    """All that runs once the command has read its arguments, to the end of the job."""
    all_up(tmp_path, ranks)
    watch.another_round()
    watch.seen.clear()
    watch.another_round()
    (tmp_path / "up" / "go").touch()


@pytest.mark.parametrize("detached", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize("distribution", ["pytorch", "mpi"])
def test_values_that_were_typed_are_in_no_command_line(tmp_path, script, distribution, detached):
    if distribution == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("MPI's tests need an MPI; scripts/test installs openmpi-bin as root")
    program = (sys.executable, script, LOUD, tmp_path / "up")
    words = ["run", "--name", "job", *(["-d"] if detached else []), *ENV, "--nodes", "2", "--procs", "1"]
    words += ["--distribution", distribution]
    with background(*words, "--", *program, cwd=tmp_path) as command, Watch() as watch:
        check_life(watch, tmp_path, 2)
        assert command.end() == 0
        assert wait_for_status("job", "Completed", "Failed")["status"] == "Completed"
    assert watch.seen == {}


def test_a_value_that_is_taken_from_the_shell_is_never_in_a_command_line(tmp_path, script, monkeypatch):
    monkeypatch.setenv("API_TOKEN", CANARY)
    monkeypatch.setenv("XDG_TOKEN", CANARY)
    words = ("run", "--name", "job", "--env", "API_TOKEN", "--env=XDG_TOKEN", "--")
    words += (sys.executable, script, LOUD, tmp_path / "up")
    with Watch() as watch, background(*words, cwd=tmp_path) as command:
        all_up(tmp_path, 1)
        watch.another_round()
        (tmp_path / "up" / "go").touch()
        assert command.end() == 0, command.err
    assert watch.seen == {}


def test_a_variable_without_a_value_has_to_be_there(cli):
    done = cli("run", "--env", "NOT_THERE_7", "--", "true")
    assert (done.rc, done.err.splitlines()[0]) == (2, "error: --env: 'NOT_THERE_7' is not set in this shell")


def test_values_that_were_set_are_in_no_command_line(tmp_path, script):
    path = write_job(
        tmp_path,
        f"python train.py {LOUD} {tmp_path}/up",
        name="job",
        code="src",
        environment_variables={"XDG_TOKEN": CANARY},
    )
    words = ("job", "create", "-f", path, "--set", "tags.a=b", f"environment_variables.API_TOKEN={CANARY}")
    with background(*words, cwd=tmp_path), Watch() as watch:
        check_life(watch, tmp_path, 1)
        assert wait_for_status("job", "Completed", "Failed")["status"] == "Completed"
    assert watch.seen == {}


def test_values_are_not_in_the_command_line_of_a_container(tmp_path, script, cli, monkeypatch):
    engine = StandIn(tmp_path / "engine")
    monkeypatch.setenv("DRUMLINE_CONTAINER", "podman")
    for name, value in engine.variables.items():
        monkeypatch.setenv(name, value)
    names = ("API_TOKEN", "XDG_TOKEN", "CONTAINERS_TOKEN", "HOME")
    path = write_job(
        tmp_path,
        f"python3 train.py {LOUD} {tmp_path}/up",
        name="job",
        code="src",
        environment={"image": IMAGE},
        resources={"docker_args": MOUNTS},
        environment_variables=dict.fromkeys(names, CANARY),
    )
    with Watch() as watch:
        created = cli("job", "create", "-f", path)
        assert created.rc == 0, created.err
        all_up(tmp_path, 1)
        watch.another_round()
        (tmp_path / "up" / "go").touch()
        assert wait_for_status("job", "Completed", "Failed")["status"] == "Completed"
    assert watch.seen == {}
    assert CANARY not in (engine.folder / "calls").read_text()
