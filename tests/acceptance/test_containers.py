"""Jobs with an image: each rank is in a container, and everything else is as it is without one."""

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest
from chaos import carrying
from cli_jobs import logs_of, wait_for_status, write_script
from container_engine import IMAGE, MOUNTS, Podman, StandIn, UnavailableError
from waiting import wait_until

from drumline.control.facts import description

TWO_RANKS = {"type": "pytorch", "process_count_per_instance": 2}


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """By name, made when they are asked for."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("engine") / "e"
            made[kind] = (Podman if kind == "podman" else StandIn)(folder)
        return made[kind]

    return get


@pytest.fixture(params=["podman", "stand-in"])
def engine(request, engines, monkeypatch):
    try:
        chosen = engines(request.param)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("DRUMLINE_CONTAINER", "podman")
    for name, value in chosen.variables.items():
        monkeypatch.setenv(name, value)
    yield chosen
    wait_until(lambda: not chosen.left(), 5, "containers to be gone")


def create(cli, tmp_path, text, command="python3 train.py", environment=None, **fields):
    given = {
        "environment": environment or {"image": IMAGE},
        "distribution": TWO_RANKS,
        "resources": {"docker_args": MOUNTS, "shm_size": "1m"},
        **fields,
    }
    path = write_script(tmp_path, text, command, **given)
    job = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in job.items() if value is not None}))
    created = cli("job", "create", "-f", path)
    assert created.rc == 0, created.err
    return created


def test_ranks_have_their_paths_and_variables_and_the_images_own_search_path(
    cli, tmp_path, drumline_home, engine
):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "a.txt").write_text("read")
    text = """
        import json, os, pathlib, sys, time

        from azureml.core import Run

        Run.get_context().log("rank", int(os.environ["RANK"]))
        shown = ("RANK", "WORLD_SIZE", "SAID", "PATH", "HOME", "DRUMLINE_HOME")
        said = {name: os.environ.get(name) for name in shown}
        said["read"] = pathlib.Path(os.environ["AZURE_ML_INPUT_data"], "a.txt").read_text()
        said["cwd"] = os.getcwd()
        pathlib.Path("outputs", "model-" + os.environ["RANK"]).touch()
        print(json.dumps(said), flush=True)
        kept = pathlib.Path(os.environ["AZURE_ML_OUTPUT_kept"])
        (kept / ("kept-" + os.environ["RANK"])).touch()
        if os.environ["RANK"] == "1":
            while not (kept / "kept-0").exists():
                time.sleep(0.01)
            raise ValueError("not in here")
    """
    variables = {"SAID": "two\nlines, $HOME", "HOME": "/tmp"}
    fields = {
        "inputs": {"data": {"type": "uri_folder", "path": str(data)}},
        "outputs": {"kept": {"type": "uri_folder"}},
        "environment_variables": variables,
    }
    created = create(cli, tmp_path, text, command="ls ${{inputs.data}} && python3 train.py", **fields)
    assert "docker_args" not in created.err
    assert "shm_size" not in created.err
    wait_for_status("job", "Failed")
    folder = drumline_home / "jobs" / "job"
    for rank, log in enumerate(logs_of(folder)):
        listed, said = log.splitlines()[:2]
        assert listed == "a.txt"
        said = json.loads(said)
        assert said["RANK"] == str(rank)
        assert (said["WORLD_SIZE"], said["SAID"], said["HOME"]) == ("2", variables["SAID"], "/tmp")
        assert (said["read"], said["cwd"]) == ("read", str(folder / "code"))
        assert said["DRUMLINE_HOME"] is None
        assert str(os.path.dirname(sys.executable)) not in said["PATH"].split(":")
    assert sorted(path.name for path in (folder / "outputs").iterdir()) == ["model-0", "model-1"]
    assert (folder / "named-outputs" / "kept" / "kept-0").exists()
    assert (folder / "outputs" / "model-0").stat().st_uid == os.getuid()
    reason = description.show_job("job")["reason"]
    assert "rank 1" in reason
    assert "ValueError: not in here (train.py:18, in <module>)" in reason
    assert "rank" in description.show_job("job")["metrics"]


def test_a_command_beside_a_rank_is_in_its_container(cli, tmp_path, drumline_home, engine):
    text = """
        import pathlib, signal

        pathlib.Path("outputs", "ready").touch()
        signal.pause()
    """
    variables = {"SAID": "two\nlines, $HOME", "HOME": "/tmp"}
    create(cli, tmp_path, text, environment_variables=variables, distribution=None, drumline={"grace": 1})
    folder = drumline_home / "jobs" / "job"
    wait_until(lambda: (folder / "outputs" / "ready").exists(), 20, "the rank")
    script = 'printf "%s\\n" "$SAID $HOME ${AZUREML_RUN_ID} ${DRUMLINE_RUN_FOLDER}."; pwd; exit 5'
    words = [sys.executable, "-m", "drumline", "job", "exec", "job", "--rank", "0", "--", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout == f"{variables['SAID']} /tmp job .\n{folder / 'code'}\n"
    cli("job", "cancel", "job", "--at-once")
    wait_for_status("job", "Canceled")


def test_a_rank_that_saves_when_it_is_told_to_end_is_not_cut_off(cli, tmp_path, drumline_home, engine):
    """Though the shell that has started it would end at once, and a container ends with its first process."""
    text = """
        import pathlib, signal, sys, time

        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
        pathlib.Path("outputs", "ready").touch()
        while not told:
            time.sleep(0.01)
        time.sleep(0.5)
        pathlib.Path("outputs", "saved").write_text(str(len(told)))
    """
    command = "python3 train.py; touch outputs/next; sleep 100"
    create(cli, tmp_path, text, command=command, distribution=None, drumline={"grace": 20})
    outputs = drumline_home / "jobs" / "job" / "outputs"
    wait_until(lambda: (outputs / "ready").exists(), 20, "the rank")
    assert cli("job", "cancel", "-n", "job").rc == 0
    wait_for_status("job", "Canceled")
    assert (outputs / "saved").read_text() == "1"


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("victim", ["rank", "agent", "all"])
def test_whoever_is_killed_nothing_is_left(cli, tmp_path, drumline_home, engine, victim):
    if not engine.is_real and victim != "all":
        pytest.skip("there are no containers to be left")
    token = f"token-{uuid.uuid4().hex}"
    text = """
        import os, pathlib, subprocess, sys

        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]], start_new_session=True)
        pathlib.Path("outputs", "ready-" + os.environ["RANK"]).touch()
        import time; time.sleep(1000)
    """
    create(cli, tmp_path, text, command=f"python3 train.py {token}; true", drumline={"grace": 0.3})
    folder = drumline_home / "jobs" / "job"
    wait_until(lambda: len(list((folder / "outputs").glob("ready-*"))) == 2, 20, "the ranks")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    rank = next(event["pid"] for event in events if event["type"] == "RankStarted")
    agent = parent_of(rank)
    supervisor = json.loads((folder / "supervisor.json").read_text())["pid"]
    for pid in {"rank": [rank], "agent": [agent], "all": [supervisor, agent, rank]}[victim]:
        os.kill(pid, signal.SIGKILL)
    wait_for_status("job", "Failed")
    wait_until(lambda: not carrying(token), 10, "every process to be gone")
    wait_until(lambda: not engine.left(), 10, "every container to be gone")


def test_a_build_context_is_built_once(cli, tmp_path, drumline_home, engine):
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {IMAGE}\nENV SAID=built\nCOPY said /said\n")
    (context / "said").write_text("first")
    fields = {"environment": {"build": {"path": str(context)}}, "distribution": None}
    create(cli, tmp_path, "import os; print(os.environ.get('SAID'))", **fields)
    wait_for_status("job", "Completed")
    folder = drumline_home / "jobs" / "job"
    assert "building" in (folder / "system_logs" / "environment.log").read_text()
    if engine.is_real:
        assert logs_of(folder) == ["built\n"]
    again = cli("job", "create", "-f", tmp_path / "job.yml", "--set", "name=again")
    assert again.rc == 0, again.err
    wait_for_status("again", "Completed")
    assert not (drumline_home / "jobs" / "again" / "system_logs" / "environment.log").exists()
    (context / "said").write_text("second")
    plan = [
        json.loads((drumline_home / "jobs" / name / "plan.json").read_text()) for name in ("job", "again")
    ]
    assert plan[0]["build"]["digest"] == plan[1]["build"]["digest"]


def test_an_image_that_cannot_be_had_is_said_before_any_rank(cli, tmp_path, drumline_home, engine):
    create(cli, tmp_path, "", environment={"image": "localhost:1/none:1"})
    shown = wait_for_status("job", "Failed")
    assert "localhost:1/none:1" in shown["reason"]
    assert "RankStarted" not in (drumline_home / "jobs" / "job" / "events.jsonl").read_text()
    log = drumline_home / "jobs" / "job" / "system_logs" / "environment.log"
    assert "pull localhost:1/none:1" in log.read_text()
