"""The value of a secret: in ranks, and in no file, no command line and nothing that outlives the job."""

import contextlib
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from canary import CANARY, Watch
from cli_jobs import one_rank, wait_for_status, write_job
from conftest import processes_with
from pipelines import driver_of, guard_of, step, wait_for_end, wait_for_step, waits_for, write_pipeline
from waiting import wait_until

from drumline import load_job
from drumline.contract import process_identity
from drumline.contract.errors import PlanError
from drumline.contract.folder import RunFolder
from drumline.control.facts import description
from drumline.control.submission.planning import plan
from drumline.control.submission.submit import submit
from drumline.spec.jobs.command import command

SHELL = "SHELL-7d1e-another secret"
INPUT = "INPUT-93ab-a third one"
SCRIPT = """\
import hashlib, os, pathlib, sys, time
import yaml
told = [os.environ[name] for name in ("FROM_FILE", "FROM_SHELL", "FROM_INPUT")]
attempt = os.environ["DRUMLINE_ATTEMPT"]
print("digest", attempt, hashlib.sha256(" ".join(told).encode()).hexdigest(), flush=True)
if attempt == "0":
    sys.exit(3)
pathlib.Path(sys.argv[1], "up-" + os.environ["RANK"]).touch()
while not pathlib.Path(sys.argv[1], "go").exists():
    time.sleep(0.01)
"""
VALUES = (CANARY, SHELL, INPUT)
AGENTS = ("drumline-node-0", "drumline-node-1")
"""They hold values in memory, and were forked from a command that had one in its environment."""


def files_with(folder, values=VALUES):
    """Every file below a folder that holds one of the values."""
    paths = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    plain = [path for path in paths if path.is_file() and not path.is_symlink()]
    return [path for path in plain if any(value.encode() in path.read_bytes() for value in values)]


def holders(part, pids=()):
    """By pid, the names of processes, these or all, in whose environment or memory a value is."""
    found = {}
    for pid in map(str, pids or filter(str.isdigit, os.listdir("/proc"))):
        try:
            data = Path("/proc", pid, "environ").read_bytes() if part == "environ" else read_memory(pid)
            if any(value.encode() in data for value in VALUES):
                found[int(pid)] = Path("/proc", pid, "comm").read_text().strip()
        except OSError:
            if pids:
                raise
    return found


def read_memory(pid):
    parts = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            start, end, mode = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if mode.startswith("rw") and "[v" not in line:
                memory.seek(int(start, 16))
                parts.append(memory.read(int(end, 16) - int(start, 16)))
    return b"".join(parts)


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(CANARY + "\n")
    path.chmod(0o600)
    return path


def test_values_are_in_ranks_alone_while_the_job_runs_and_nowhere_after(
    tmp_path, secret_file, drumline_home, monkeypatch, cli
):
    """Through a restart, and with a warm interpreter that outlives the job."""
    monkeypatch.setenv("FROM_SHELL", SHELL)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    (tmp_path / "up").mkdir()
    path = write_job(
        tmp_path,
        f"python train.py {tmp_path}/up",
        name="job",
        code="src",
        **one_rank(resources={"instance_count": 2}),
        drumline={"secrets": ["FROM_SHELL"], "max_restarts": 1, "warm": "on"},
    )
    words = ("--secret", f"FROM_FILE=@{secret_file}", "--secret", "FROM_INPUT=-")
    argv = [sys.executable, "-m", "drumline", "job", "create", "-f", str(path), *words]
    with Watch() as watch:
        subprocess.run(argv, cwd=tmp_path, input=INPUT.encode(), stdout=subprocess.DEVNULL, check=True)
        wait_until(lambda: len(list((tmp_path / "up").iterdir())) == 2, 30, "all ranks")
        watch.another_round()
        ranks = [event["pid"] for event in events(drumline_home) if event["type"] == "RankStarted"][-2:]
        found = holders("environ")
        assert set(found) >= set(ranks)
        assert {name for pid, name in found.items() if pid not in ranks} <= {"drumline-job", *AGENTS}
        (tmp_path / "up" / "go").touch()
        assert wait_for_status("job", "Completed", "Failed")["status"] == "Completed"
    assert watch.seen == {}
    logs = [path.read_text() for path in (drumline_home / "jobs" / "job" / "user_logs").rglob("*.txt")]
    lines = [line.split() for log in logs for line in log.splitlines()]
    # Of a rank that was ended with the other one it may be half a line.
    assert len({words[2] for words in lines if words[0] == "digest" and len(words) == 3}) == 1, logs
    assert [event["type"] for event in events(drumline_home)].count("WarmStart") == 4
    supervisor = json.loads((drumline_home / "jobs" / "job" / "supervisor.json").read_text())["pid"]
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}"), 10, "the supervisor to end")
    warm = json.loads(cli("warm", "list", "-o", "json").out)
    assert warm, "an interpreter that outlives the job"
    assert holders("memory", {pid for one in warm for pid in (one["pid"], one["keeper"])}) == {}
    assert files_with(drumline_home) == []
    shown = cli("job", "show", "-n", "job", "-o", "json")
    assert '"FROM_FILE"' in shown.out
    assert not any(value in shown.out for value in VALUES)


def events(home, name="job"):
    return [json.loads(line) for line in (home / "jobs" / name / "events.jsonl").read_text().splitlines()]


def test_a_sweep_passes_them_to_its_trials(tmp_path, secret_file, drumline_home, cli):
    text = {
        "type": "sweep",
        "name": "sweep",
        "search_space": {"x": {"type": "choice", "values": [1, 2]}},
        "sampling_algorithm": "grid",
        "limits": {"max_total_trials": 2},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
    }
    secret_program = tmp_path / "check.py"
    secret_program.write_text(
        "import os, sys\nsys.exit(os.environ['TOKEN'] != 'CANARY-5c2f-a' + ' secret')\n"
    )
    text["trial"] = {"command": shlex.join([sys.executable, str(secret_program)])}
    (tmp_path / "sweep.yml").write_text(json.dumps(text))
    done = cli("job", "create", "-f", "sweep.yml", "--secret", f"TOKEN=@{secret_file}", "--stream")
    assert done.rc == 1, "no trial logs a metric"
    assert [status_of_trial(drumline_home, f"sweep_{index}") for index in (0, 1)] == ["Completed"] * 2
    assert files_with(drumline_home) == []


def test_no_core_is_written_of_processes_that_hold_them(tmp_path, secret_file, drumline_home):
    """A driver, a supervisor or an agent that crashed left them in a core, in the folder of the code."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("nobody may write cores here")
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    program = tmp_path / "rank.py"
    program.write_text(
        "import os, resource, sys, time\n"
        "open(sys.argv[1] + '.new', 'w').write(str(resource.getrlimit(resource.RLIMIT_CORE)[0]))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
    )
    words = [sys.executable, str(program), f"{tmp_path}/limit", f"{tmp_path}/go"]
    text = {
        "type": "pipeline",
        "name": "pipeline",
        "jobs": {
            "step": {"type": "command", "command": shlex.join(words), "drumline": {"secrets": ["TOKEN"]}}
        },
    }
    (tmp_path / "pipeline.yml").write_text(json.dumps(text))
    argv = [sys.executable, "-m", "drumline", "job", "create", "-f", "pipeline.yml"]
    resource.setrlimit(resource.RLIMIT_CORE, (wanted, hard))
    try:
        subprocess.run([*argv, "--secret", f"TOKEN=@{secret_file}"], cwd=tmp_path, check=True)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    wait_until((tmp_path / "limit").exists, 30, "the step's rank")
    limits = {}
    for pid in processes_with(str(drumline_home).encode()):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            limits[name] = re.search(r"core file size +(\S+)", Path(f"/proc/{pid}/limits").read_text())[1]
    (tmp_path / "go").touch()
    ours = ("drumline-guard", "drumline-drive", "drumline-job", "drumline-node-0")
    assert {name: limits.get(name) for name in ours} == dict.fromkeys(ours, "1")
    assert (tmp_path / "limit").read_text() == str(wanted)
    wait_for_status("pipeline", "Completed")


def status_of_trial(home, name):
    return events(home, name)[-1]["status"]


def test_a_job_is_refused_without_a_value(tmp_path, cli, drumline_home):
    path = write_job(tmp_path, "true", drumline={"secrets": ["NOT_THERE_7"]})
    done = cli("job", "create", "-f", path)
    assert done.rc == 2
    assert "NOT_THERE_7 is not set in the environment of this command" in done.err
    assert "hint: export NOT_THERE_7" in done.err
    assert not (drumline_home / "jobs").exists() or list((drumline_home / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--secret", "NOT_THERE_7"], "'NOT_THERE_7' is not set in this shell"),
        (["--secret", "A=sesame"], "a value that is typed is in the history"),
        (["--secret", "A=@missing"], "missing: No such file"),
        (["--secret", "A=-", "--secret", "B=-"], "standard input is one value"),
        (["--secret", "A=-"], "the value is empty"),
        (["--secret", "DRUMLINE_A=@token"], "DRUMLINE_A is a variable that Drumline sets"),
        (["--secret", "RANK=@token"], "RANK is a variable that Drumline sets"),
        (["--env", "A=1", "--secret", "A=@token"], "A is in environment_variables too"),
        (["--env-file", "missing"], "missing: No such file"),
    ],
)
def test_options_that_cannot_be(cli, secret_file, words, said):
    done = cli("run", *words, "--", "true")
    assert done.rc in (2, 3)
    assert said in done.err
    assert "sesame" not in done.err


def test_a_value_in_a_job_file_is_refused_and_not_repeated():
    with pytest.raises(PlanError) as caught:
        plan(command(command="true", drumline={"secrets": ["TOKEN=sesame"]}))
    assert "TOKEN has a value here" in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_a_file_in_the_code_is_refused_unless_it_is_ignored(tmp_path, cli):
    code = tmp_path / "src"
    code.mkdir()
    (code / "token").write_text(CANARY)
    path = write_job(tmp_path, "true", name="job", code="src")
    words = ("job", "create", "-f", path, "--secret", "TOKEN=@src/token", "--stream")
    done = cli(*words)
    assert done.rc == 2
    assert "src/token, the file of --secret TOKEN, is in /" in done.err
    (code / ".amlignore").write_text("token\n")
    assert cli(*words).rc == 0


def test_a_file_of_variables(tmp_path, cli):
    (tmp_path / ".env").write_text("A=1\nB='from the file'\n")
    show = ("--", "sh", "-c", 'echo "$A $B"')
    assert cli("run", "--env-file", ".env", "--env", "A=2", *show).out == "2 from the file\n"
    path = write_job(tmp_path, 'echo "$A $B"', environment_variables={"A": "3", "B": "4"})
    assert "1 from the file" in cli("job", "create", "-f", path, "--env-file", ".env", "--stream").out


def write_two_steps(folder, first, second):
    """A pipeline whose second step alone has the secret, and needs the first."""
    steps = {
        "first": step(first, drumline={"warm": "on"}),
        "second": step(second, "first", drumline={"secrets": ["TOKEN"], "warm": "on"}),
    }
    return write_pipeline(folder, steps)


def test_a_driver_that_is_started_again_takes_no_value_from_whoever_looks(
    tmp_path, drumline_home, monkeypatch
):
    second = "echo got $TOKEN"
    path = write_two_steps(tmp_path, waits_for(tmp_path / "go"), second)
    with monkeypatch.context() as patched:
        patched.setenv("TOKEN", CANARY)
        submit(load_job(path))
    wait_for_step("first")
    driver = driver_of("p")
    guard = guard_of(driver)
    for pid in (guard, driver):
        os.kill(pid, signal.SIGKILL)
    folder = RunFolder.for_job("p")
    wait_until(
        lambda: not process_identity.is_alive(folder.read_json(folder.supervisor)),
        20,
        "the driver to be gone",
    )
    monkeypatch.setenv("TOKEN", SHELL)
    description.show_job("p")
    (tmp_path / "go").touch()
    shown = wait_for_end("p")
    assert shown["status"] == "Failed"
    assert "the value of TOKEN was lost when the process that runs the steps was killed" in shown["reason"]
    assert files_with(drumline_home) == []


def test_a_step_leaves_no_secret_of_another_in_a_warm_interpreter(tmp_path, secret_file, cli):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import yaml\nprint('done')\n")
    path = write_two_steps(tmp_path, "python train.py", "python train.py")
    steps = json.loads(path.read_text())
    for one in steps["jobs"].values():
        one.update(one_rank(code="src"))
    path.write_text(json.dumps(steps))
    done = cli("job", "create", "-f", path, "--secret", f"TOKEN=@{secret_file}", "--stream")
    assert done.rc == 0, done.err + done.out
    driver = driver_of("p")
    wait_until(lambda: not os.path.exists(f"/proc/{driver}"), 20, "the driver to end")
    warm = json.loads(cli("warm", "list", "-o", "json").out)
    assert warm, "an interpreter that outlives the job"
    assert holders("memory", {pid for one in warm for pid in (one["pid"], one["keeper"])}) == {}


def nest(program):
    """Pipelines whose only program that is, by where it is in them."""
    space = {"x": {"type": "choice", "values": [1]}}
    sweep = {
        "type": "sweep",
        "trial": program,
        "search_space": space,
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    inner = {"type": "pipeline", "jobs": {"inside": program}}
    return {
        "a sweep": sweep,
        "a pipeline": inner,
        "a component": {"component": "file:train.yml", "type": "command"},
    }


@pytest.mark.parametrize("where", ["a sweep", "a pipeline", "a component"])
def test_a_file_in_the_code_of_a_nested_job_is_refused(tmp_path, cli, where):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "token").write_text(CANARY)
    program = {"command": "true", "code": str(tmp_path / "src"), "drumline": {"secrets": ["TOKEN"]}}
    component = {"type": "command", "name": "train", "version": "1", "command": "true", "code": "src"}
    (tmp_path / "train.yml").write_text(json.dumps({**component, "environment": "azureml:e:1"}))
    named = {"command": "true", "drumline": {"secrets": ["TOKEN"]}}
    path = write_pipeline(tmp_path, {"named": named, "one": nest(program)[where]})
    done = cli("job", "create", "-f", path, "--secret", "TOKEN=@src/token")
    assert done.rc == 2, done.err
    assert "src/token, the file of --secret TOKEN, is in /" in done.err
    assert CANARY not in done.err


def test_a_value_is_for_a_secret_that_some_step_names_however_deep(tmp_path, secret_file, cli):
    program = shlex.join([sys.executable, "-c", "import os, sys; sys.exit(not os.environ.get('TOKEN'))"])
    inner = {"type": "pipeline", "jobs": {"inside": step(program, drumline={"secrets": ["TOKEN"]})}}
    path = write_pipeline(tmp_path, {"outer": inner})
    done = cli("job", "create", "-f", path, "--secret", f"TOKEN=@{secret_file}", "--stream")
    assert done.rc == 0, done.err + done.out
    other = cli("job", "create", "-f", path, "-n", "q", "--secret", f"OTHER=@{secret_file}")
    assert (other.rc, other.err.splitlines()[0]) == (
        2,
        "error: --secret OTHER: no step of the pipeline has this secret",
    )
