"""``drumline init``: a job file that is valid, and says what the folder says."""

import json
import os
from typing import Any

import pytest

from drumline.cli.guide import init
from drumline.cli.main import main
from drumline.spec.load import load_job


@pytest.fixture
def folder(tmp_path, monkeypatch):
    work = tmp_path / "my project"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def made(*arguments):
    assert main(["init", "--yes", *arguments]) == 0
    return load_job("job.yml")


def test_an_empty_folder(folder, capsys):
    job = made()
    assert (job.command, job.distribution, job.resources.instance_count) == ("python train.py", None, 1)
    assert job.experiment_name == "myproject"
    assert capsys.readouterr().err.endswith("next: drumline job create -f job.yml --stream\n")


@pytest.mark.parametrize(
    ("imports", "distribution"),
    [
        ("import torch", "pytorch"),
        ("import os, torch.distributed as dist", "pytorch"),
        ("from lightning.pytorch import Trainer", "pytorch"),
        ("import torch\nimport horovod.torch as hvd", "mpi"),
        ("def f():\n    from mpi4py import MPI", "mpi"),
        ("import deepspeed", "pytorch"),
        ("import tensorflow as tf", "tensorflow"),
        ("import ray", "ray"),
        ("import torchless", None),
        ("text = 'import torch'", None),
    ],
)
def test_imports_choose_the_distribution(folder, imports, distribution):
    (folder / "train.py").write_text(imports + "\n")
    job = made()
    assert (job.distribution and job.distribution.type.lower()) == distribution


def test_flags(folder):
    (folder / "train.py").write_text("import torch\n")
    (folder / "requirements.txt").write_text("torch\n")
    job = made(
        *("--nodes", "2", "--procs", "4", "--distribution", "mpi", "--compute", "gpu"),
        *("--environment", "requirements.txt", "--command", "python train.py --name 'a: b' # ${{inputs}}"),
    )
    assert job.command == "python train.py --name 'a: b' # ${{inputs}}"
    assert (job.resources.instance_count, job.distribution.process_count_per_instance) == (2, 4)
    assert job.compute == "azureml:gpu"
    assert "-r requirements.txt" in str(job.environment.conda_file)


@pytest.mark.parametrize("environment", ["azureml:tabular@latest", "conda.yml"])
def test_other_environments(folder, environment):
    (folder / "conda.yml").write_text("dependencies:\n  - python=3.11\n")
    job = made("--environment", environment)
    assert getattr(job.environment, "conda_file", job.environment) == environment


def test_nothing_is_overwritten(folder, capsys):
    (folder / "job.yml").write_text("mine\n")
    (folder / "link.yml").symlink_to(folder / "nowhere")
    assert main(["init", "--yes"]) == 2
    assert capsys.readouterr().err.endswith("hint: drumline init --out job-2.yml\n")
    assert main(["init", "--yes", "--out", "link.yml"]) == 2
    assert (folder / "job.yml").read_text() == "mine\n"
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--nodes", "0"], "--nodes must be at least 1; got 0"),
        (["--procs", "2", "--distribution", "none"], "--procs needs a distribution"),
        (["--procs", "2", "--distribution", "ray"], "one process on each node"),
        (["--environment", "missing.yml"], "there is no file missing.yml"),
        (["--out", "no/such/job.yml"], "there is no folder"),
        (["--command", "echo ${{inputs.x}}"], "inputs.x"),
    ],
)
def test_bad_answers_write_nothing(folder, arguments, error, capsys):
    assert main(["init", "--yes", *arguments]) == 2
    assert error in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_the_editor_finds_the_schema(folder, drumline_home):
    made()
    first = (folder / "job.yml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={drumline_home}/schemas/job.json"
    assert (drumline_home / "schemas" / "job.json").is_file()


def test_a_schema_is_written_into_a_folder_that_is_not_there_yet(folder, capsys):
    assert main(["schema", "job", "--out", "new/folder/job.json"]) == 0
    assert capsys.readouterr().out == f"# yaml-language-server: $schema={folder}/new/folder/job.json\n"
    assert "type" in json.loads((folder / "new" / "folder" / "job.json").read_text())["properties"]


def test_the_file_runs(folder, cli):
    (folder / "train.py").write_text("print('hello')\n")
    made()
    done = cli("job", "create", "-f", "job.yml", "--stream", cwd=folder)
    assert done.rc == 0, done.err
    assert "hello" in done.out


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"other.py": ""}, "python other.py"),
        ({"a.py": "", "b c.py": "if __name__ == '__main__':\n    pass\n"}, "python 'b c.py'"),
        ({"a.py": "", "b.py": ""}, "python train.py"),
        ({"main.py": "", "train.py": ""}, "python train.py"),
    ],
)
def test_the_script_of_a_folder(folder, files, command):
    for name, text in files.items():
        (folder / name).write_text(text)
    assert init.look_at(str(folder)).command == command


def test_a_pipe_is_not_read(folder):
    os.mkfifo(folder / "train.py")
    assert init.look_at(str(folder)).distribution == "none"


def test_questions_on_a_terminal(folder, monkeypatch, capsys):
    answers = iter(["pytorch\n", "\n", "two\n", "2\n", "\n", "local\n"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", Typed(answers))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["init"]) == 0
    job: Any = load_job("job.yml")
    assert (job.resources.instance_count, job.distribution.type) == (2, "pytorch")
    assert "'two' is not a number" in capsys.readouterr().err


class Typed:
    """Standard input of a terminal on which these lines are typed."""

    def __init__(self, lines):
        self.lines = lines

    def isatty(self):
        return True

    def readline(self):
        return next(self.lines, "")
