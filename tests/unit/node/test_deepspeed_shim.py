"""The program in the place of DeepSpeed's launcher, in front of one that prints its words."""

import base64
import json
import os
import subprocess
import sys

import pytest

from drumline.node.launcher import deepspeed_shim

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
            [sys.executable, "-I", "-S", deepspeed_shim.__file__, *words],
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
