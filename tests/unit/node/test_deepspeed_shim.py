"""The program in the place of DeepSpeed's launcher, in front of one that prints its words."""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys

import pytest
from waiting import wait_until

from drumline.node.launcher import deepspeed_shim
from drumline.node.launcher.launcher_socket import LauncherSocket

JOB = {"DRUMLINE_HOSTFILE": "/job/hosts", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001"}
NODES = ["--hostfile", "/job/hosts", "--master_addr", "10.0.0.1", "--master_port", "20001"]


@pytest.fixture
def shim(tmp_path):
    """Run it with these words below the variables of a job; what the real program got."""
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "deepspeed"
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)

    def run(*words, path=str(tmp_path / "real"), code=0, **variables):
        done = subprocess.run(
            [sys.executable, "-I", "-S", deepspeed_shim.__file__, str(tmp_path / "sock"), *words],
            cwd=tmp_path,
            env={**JOB, "PATH": f"{os.path.dirname(deepspeed_shim.__file__)}:{path}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout.splitlines() or done.stderr

    return run


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--deepspeed", "ds_config.json"],
        ["--autotuning", "run", "train.py"],
        ["--num_nodes", "1", "--module", "train", "--hostfile", "of the script"],
        ["--exclude=10.0.0.2", "train.py", "--include", "localhost"],
    ],
)
def test_the_real_program_gets_the_nodes_of_the_job(shim, words):
    assert shim(*words) == [*NODES, *words]


@pytest.mark.parametrize(
    "words",
    [
        ["--hostfile", "mine", "train.py"],
        ["-H", "mine", "train.py"],
        ["--hostfile=mine", "train.py"],
        ["--include", "localhost:0,1", "train.py"],
        ["-i=localhost", "train.py"],
    ],
)
def test_nodes_that_the_command_names_are_its_own(shim, words):
    assert shim(*words) == words


def test_only_what_is_missing_is_added(shim):
    words = ["--hostfile", "/job/hosts", "--master_port", "9", "train.py"]
    assert shim(*words) == ["--master_addr", "10.0.0.1", *words]


def test_without_a_file_of_hosts_nothing_is_added(shim):
    assert shim("train.py", DRUMLINE_HOSTFILE="") == ["train.py"]


def test_results_of_the_autotuner_are_kept_with_the_outputs(shim, tmp_path):
    (tmp_path / "outputs").mkdir()
    shim("train.py", "--autotuning", "run")
    assert not (tmp_path / "autotuning_results").exists()
    for _ in range(2):
        shim("--autotuning", "tune", "train.py")
    assert os.readlink(tmp_path / "autotuning_results") == "outputs/autotuning_results"
    assert (tmp_path / "outputs" / "autotuning_results").is_dir()


@pytest.mark.parametrize("config", ["", '{"autotuning": {"enabled": true, "overwrite": false}}'])
def test_results_of_a_tuning_before_go_unless_they_are_to_stay(shim, tmp_path, config):
    (tmp_path / "outputs").mkdir()
    (tmp_path / "ds.json").write_text(config or '{"autotuning": {"enabled": true}}')
    words = ("--autotuning", "tune", "train.py", "--deepspeed", "ds.json")
    shim(*words)
    old = tmp_path / "outputs" / "autotuning_results" / "z0"
    old.mkdir()
    shim(*words)
    assert old.exists() == bool(config)
    assert (tmp_path / "autotuning_results").is_dir()


def test_a_folder_of_results_that_is_there_stays(shim, tmp_path):
    for name in ("outputs", "autotuning_results"):
        (tmp_path / name).mkdir()
    shim("--autotuning=tune", "train.py")
    assert not (tmp_path / "autotuning_results").is_symlink()
    assert os.listdir(tmp_path / "outputs") == []


@pytest.mark.parametrize("option", ["--deepspeed", "--deepspeed_config"])
def test_the_training_after_tuning_has_the_best_configuration_alone(shim, tmp_path, option):
    """DeepSpeed starts it with the words of the best experiment, split at blanks."""
    folder = tmp_path / "autotuning_results" / "z0"
    folder.mkdir(parents=True)
    best = {"train_micro_batch_size_per_gpu": 8}
    given = encode(
        {**best, "autotuning": {"enabled": True, "metric_path": "autotuning_results/z0/metrics.json"}}
    )
    words = ["--hostfile", "/job/hosts", "train.py", "--data", "a folder", option, given]
    assert shim(*words)[-5:] == ["train.py", "--data", "a folder", option, given]
    # What was started is the experiment, which is not measured yet: the agent is away, and that is no harm.
    (folder / "metrics.json").write_text("{}")
    *others, config = shim(*" ".join(words).split())
    assert others[-4:] == ["train.py", "--data", "a folder", option]
    assert json.loads(base64.urlsafe_b64decode(config)) == best


@pytest.mark.parametrize("config", ["ds_config.json", "eyJ", "eyJhIjog", "W10="])
def test_other_configurations_are_not_touched(shim, config):
    assert shim("train.py", "--deepspeed", config)[-3:] == ["train.py", "--deepspeed", config]


def encode(config):
    return base64.urlsafe_b64encode(json.dumps(config).encode()).decode()


def test_without_deepspeed_it_says_so(shim):
    assert shim("train.py", path="/nowhere", code=127) == "deepspeed: it is not on the PATH\n"


class Agent:
    """The agent's end of its socket; ``told``: by caller, what it was told."""

    def __init__(self, folder):
        self.told = {}
        self.gone = []
        self._poller = select.epoll()
        self._socket = LauncherSocket(str(folder), "127.0.0.1", self._on_request, self.gone.append)
        self._socket.register(self._poller)
        self.program = os.path.join(self._socket.bin, "deepspeed")

    def _on_request(self, caller, words):
        self.told.setdefault(caller, []).append([word.decode() for word in words])
        if len(self.told[caller]) == 2:
            self._socket.answer(caller, "noted")

    def turn(self):
        self._socket.hear({descriptor for descriptor, _ in self._poller.poll(0.05)})

    def wait(self, until):
        def look():
            self.turn()
            return until()

        wait_until(look, 30)

    def close(self):
        self._poller.close()
        for one in (self._socket._server, *(caller.peer for caller in self._socket._callers.values())):
            one.close()


@pytest.fixture
def agent(tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    agent = Agent(folder)
    yield agent
    agent.close()


@pytest.fixture
def experiment(agent, tmp_path):
    """Start one whose real program is this text of a shell."""
    started = []

    def start(program, name="z0_gas1_tmbspg8"):
        (tmp_path / "real").mkdir()
        real = tmp_path / "real" / "deepspeed"
        real.write_text(f"#!/bin/sh\n{program}\n")
        real.chmod(0o755)
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "exp.json").write_text('{"exp_id": 3}')
        given = encode({"autotuning": {"metric_path": f"results/{name}/metrics.json"}})
        with open(folder / "stderr.log", "wb") as errors:
            process = subprocess.Popen(
                [agent.program, "train.py", "--deepspeed", given],
                cwd=tmp_path,
                env={"PATH": f"{os.path.dirname(agent.program)}:{tmp_path}/real:/bin:/usr/bin"},
                stderr=errors,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_agent_is_told_of_an_experiment_and_of_its_end(agent, experiment):
    process = experiment("echo '{}' > results/z0_gas1_tmbspg8/metrics.json")
    agent.wait(lambda: process.poll() is not None)
    (told,) = agent.told.values()
    assert told == [
        ["experiment", "z0_gas1_tmbspg8", "3", "", ""],
        ["experiment", "z0_gas1_tmbspg8", "3", "Completed", ""],
    ]
    assert process.returncode == 0


def test_the_agent_is_told_why_one_has_failed(agent, experiment):
    process = experiment(
        "echo 'h: [rank1]: Traceback (most recent call last):\nh: [rank1]: E: no' >&2; exit 3"
    )
    agent.wait(lambda: process.poll() is not None)
    ((_, end),) = agent.told.values()
    assert end[3:] == ["Failed", "E: no (rank 1 on h)"]
    assert process.returncode == 3


def test_a_signal_reaches_the_real_program(agent, experiment, tmp_path):
    process = experiment("trap 'exit 9' TERM; touch there; for i in $(seq 2000); do sleep 0.05; done")
    agent.wait((tmp_path / "there").exists)
    process.send_signal(signal.SIGTERM)
    agent.wait(lambda: process.poll() is not None)
    assert process.returncode == 9
    ((_, end),) = agent.told.values()
    assert end[3:] == ["Failed", "its launcher ended with exit code 9"]


def test_an_experiment_whose_stand_in_is_killed_hangs_up(agent, experiment, tmp_path):
    process = experiment("touch there; echo $$ > pid; exec sleep 100")
    agent.wait(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    process.kill()
    agent.wait(lambda: agent.gone)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert agent.gone == list(agent.told)


TRACEBACK = """h2: [2026] [INFO] launch.py: killing
h2: [rank3]: Traceback (most recent call last):
h1: [rank0]: Traceback (most recent call last):
h2: [rank3]:   File "train.py", line 7, in <module>
h1: [rank0]: ValueError: later
h2: [rank3]:     main()
h2: [rank3]: torch.OutOfMemoryError: CUDA out of memory

h2: [rank3]: During handling of the above exception, another exception occurred:
"""


@pytest.mark.parametrize(
    ("code", "errors", "files", "status", "reason"),
    [
        (0, "", ["metrics.json"], "Completed", ""),
        (0, "a warning\n", ["model_info.json"], "Completed", ""),
        (1, TRACEBACK, [], "Failed", "torch.OutOfMemoryError: CUDA out of memory (rank 3 on h2)"),
        (0, TRACEBACK, [], "Failed", "torch.OutOfMemoryError: CUDA out of memory (rank 3 on h2)"),
        (1, "Traceback (most recent call last):\nKeyError: 3\n", [], "Failed", "KeyError: 3"),
        (
            2,
            "usage\ntrain.py: error: no\n",
            [],
            "Failed",
            "its launcher ended with exit code 2: train.py: error: no",
        ),
        (137, "", [], "Failed", "its launcher ended with exit code 137"),
        (
            0,
            "no error here\n",
            ["metrics.json"],
            "Failed",
            "it ran, but DeepSpeed takes a line of its stderr for a failure: no error here",
        ),
        (0, "", [], "Failed", "it ended without measurements: it may have made too few steps"),
    ],
)
def test_an_experiment_is_judged_as_deepspeed_does(tmp_path, code, errors, files, status, reason):
    for name in files:
        (tmp_path / name).write_text("{}")
    (tmp_path / "stderr.log").write_text(errors)
    assert deepspeed_shim.judge(str(tmp_path), code) == (status, reason)


@pytest.mark.parametrize(("words", "said"), [(["--autotuning", "tune", "train.py"], "1"), (["train.py"], "")])
def test_the_autotuner_alone_is_asked_not_to_wait(shim, tmp_path, words, said):
    real = tmp_path / "real" / "deepspeed"
    real.write_text('#!/bin/sh\necho "waits $DRUMLINE_AUTOTUNING"\n')
    assert shim(*words, DRUMLINE_AUTOTUNING="" if said else "1") == [f"waits {said}"]


def test_two_requests_that_come_at_once_are_both_heard(agent):
    requests = (b"experiment\0z0\0003\0\0", b"experiment\0z0\0003\0Completed\0")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(os.path.join(os.path.dirname(os.path.dirname(agent.program)), "sock"))
        data = b"".join(b"%010d" % len(one) + one for one in requests)
        peer.sendall(data[:-1])
        agent.wait(lambda: agent.told)
        peer.sendall(data[-1:])
        agent.wait(lambda: any(len(told) == 2 for told in agent.told.values()))
        assert peer.recv(64) == b"noted\n"
