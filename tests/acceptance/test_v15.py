"""Scripts of azure.ml.component, with nothing but their import lines changed."""

import subprocess
import sys

import pytest

from drumline import Input
from drumline.component import Component, Docker, Pipeline, dsl
from drumline.exceptions import ResourceNotFoundError, UsageError, ValidationException
from drumline.v1 import Dataset, Workspace

TRAIN = """
$schema: https://componentsdk.azureedge.net/jsonschema/DistributedComponent.json
name: microsoft.com.azureml.samples.train
version: 0.0.1
type: DistributedComponent
inputs:
  data: {type: AnyDirectory}
  epochs: {type: Integer, default: 1}
  note: {type: String, optional: true}
outputs:
  model: {type: AnyDirectory}
launcher:
  type: torch.distributed
  additional_arguments: >-
    python train.py --data {inputs.data} --epochs {inputs.epochs} [--note {inputs.note}] --model {outputs.model}
code: ./src
environment:
  docker: {image: "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu18.04"}
"""

SCORE = """
$schema: https://componentsdk.azureedge.net/jsonschema/CommandComponent.json
name: score
type: CommandComponent
inputs:
  model: {type: path}
command: echo scored $(cat {inputs.model}/weights)
"""

PROGRAM = """
import os, sys
from drumline.v1 import Run

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[3:-2])
if os.environ["RANK"] == "0":
    Run.get_context().log("loss", 0.5)
    with open(os.path.join(sys.argv[-1], "weights"), "w") as file:
        file.write("these")
"""

SCRIPT = """
from drumline.component import Component, dsl
from drumline.v1 import Dataset, Workspace

ws = Workspace.get(name="lab", subscription_id="s", resource_group="g")
train_func = Component.from_yaml(ws, yaml_file="train.yml")
score_func = Component.from_yaml(ws, yaml_file="score.yml")

@dsl.pipeline(name="training", description="Trains and scores.", default_compute_target="gpu-cluster")
def training(data, epochs=2):
    train = train_func(data=data, epochs=epochs)
    train.runsettings.resource_layout.configure(instance_count=2, process_count_per_node=2)
    score = score_func(model=train.outputs.model)
    return {**train.outputs}

pipeline = training(data=Dataset.File.from_files("data"))
pipeline.validate()
run = pipeline.submit(experiment_name="digits", regenerate_outputs=True)
run.wait_for_completion(show_output=True)
print(run.get_status(), [child.get_metrics() for child in run.get_children() if child.get_metrics()])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the files are."""
    monkeypatch.chdir(tmp_path)
    for name in ("src", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    (tmp_path / "data" / "x").write_text("digits")
    (tmp_path / "train.yml").write_text(TRAIN)
    (tmp_path / "score.yml").write_text(SCORE)
    return tmp_path


@pytest.fixture
def ws():
    return Workspace.get("lab")


def test_a_pipeline_with_a_distributed_component_runs_on_two_nodes(folder):
    (folder / "submit.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "submit.py"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"[{rank}|node-{rank // 2}] rank {rank} of 4 --epochs 2\n" in done.stdout
    assert "scored these" in done.stdout
    assert done.stdout.startswith("RunId: ")
    assert done.stdout.endswith("Completed [{'loss': 0.5}]\n")


def test_settings_of_a_node(folder, ws):
    train = Component.from_yaml(ws, yaml_file="train.yml")

    @dsl.pipeline
    def training():
        node = train(Dataset.File.from_files("data"), note="a b")
        node.set_inputs(epochs=3)
        node.runsettings.resource_layout.configure(node_count=2)
        node.runsettings.resource_layout.process_count_per_node = 4
        node.runsettings.configure(target="gpu")
        node.runsettings.docker_configuration.configure(use_docker=True, shm_size="8g")
        node.runsettings.timeout_seconds = 60
        node.runsettings.environment_variables = {"A": "1"}
        node.runsettings.scope.configure(priority=3)
        node.runsettings.environment.configure(docker=Docker(file="docker/Dockerfile"), os="Linux")

    made = training()
    assert isinstance(made, Pipeline)
    (node,) = made.nodes.values()
    assert (node.resources.instance_count, node.distribution.process_count_per_instance) == (2, 4)
    assert (node.resources.shm_size, node.limits.timeout, node.compute) == ("8g", 60, "gpu")
    assert (node.environment_variables, node.inputs.epochs, node.inputs.note) == ({"A": "1"}, 3, "a b")
    assert node.inputs.data.path == str(folder / "data")
    assert node._warnings == ["runsettings.scope.priority: not used"]
    build = node.environment.build
    assert (build.path, build.dockerfile_path) == (str(folder / "docker"), "Dockerfile")
    node.runsettings.environment.docker = Docker(image="python:3.11")
    assert node.environment.image == "python:3.11"
    with pytest.raises(UsageError, match="an image or a file"):
        Docker()
    assert made.workspace is ws


def test_one_component_is_a_job_too(folder, ws, capfd):
    node = Component.from_yaml(ws, yaml_file="train.yml")(data=Dataset.File.from_files("data"))
    node.runsettings.resource_layout.configure(instance_count=1, process_count_per_node=2)
    run = node.submit(experiment_name="alone", tags={"a": "1"})
    run.wait_for_completion(show_output=True)
    assert "rank 1 of 2 --epochs 1" in capfd.readouterr().out
    assert run.get_metrics() == {"loss": 0.5}
    assert run.get_tags() == {"a": "1"}


def test_registered_components_are_loaded_by_name(folder, ws):
    with pytest.raises(ResourceNotFoundError):
        Component.load(ws, name="score")
    assert Component.register(ws, "score.yml", version="3").version == "3"
    assert Component.load(ws, name="score").name == "score"
    found = Component.batch_load(ws, selectors=["score:3", "score@latest", ("ns", "score", "3")])
    assert [one.version for one in found] == ["3", "3", "3"]


def test_a_component_file_of_today_is_read_too(folder, ws):
    (folder / "today.yml").write_text("name: today\ntype: command\ncommand: echo\nenvironment: azureml:e:1\n")
    assert Component.from_yaml(ws, yaml_file="today.yml").name == "today"


def test_mistakes(folder, ws):
    train = Component.from_yaml(ws, yaml_file="train.yml")
    score = Component.from_yaml(ws, yaml_file="score.yml")
    with pytest.raises(ValidationException, match="has no input 'dta'"):
        train(dta="x")
    with pytest.raises(ValidationException, match="no launcher"):
        score().runsettings.resource_layout.configure(process_count_per_node=2)
    with pytest.raises(UsageError, match="yaml_file is missing"):
        Component.from_yaml(ws)
    with pytest.raises(ValidationException, match="no such file"):
        Component.from_yaml(ws, yaml_file="none.yml")
    with pytest.raises(UsageError, match=r"Pipeline\(nodes=\.\.\.\) is not supported"):
        Pipeline([train()])

    @dsl.pipeline()
    def lacks_its_data():
        train()

    with pytest.raises(ValidationException, match="data"):
        lacks_its_data().submit(experiment_name="e")
    with pytest.raises(ValidationException, match="the pipeline has no parameter 'x'"):
        lacks_its_data().submit(pipeline_parameters={"x": 1})


def test_a_component_that_was_called_is_checked_alone(folder, ws):
    train = Component.from_yaml(ws, yaml_file="train.yml")(data=Input(path="."))
    assert train.validate().passed
    with pytest.raises(ValidationException, match="environment_variables must be a dict"):
        train.runsettings.configure(environment_variables="A=1")
    with pytest.raises(ValidationException, match="instance_count must be a whole number, got 'two'"):
        train.runsettings.resource_layout.configure(instance_count="two")


def test_what_is_named_beside_the_file_is_laid_beside_the_code(folder, ws):
    (folder / "shared").mkdir()
    (folder / "shared" / "x.txt").write_text("shared words")
    (folder / "deep").mkdir()
    (folder / "deep" / "show.yml").write_text(
        "name: show\ntype: CommandComponent\ncommand: cat shared/x.txt\ncode: ../src\n"
    )
    (folder / "deep" / "show.additional_includes").write_text("../shared\n\n")
    run = Component.from_yaml(ws, yaml_file="deep/show.yml")().submit(experiment_name="e")
    run.wait_for_completion()
    assert "shared words" in str(run.get_details_with_logs()["logFiles"])
    (folder / "deep" / "show.additional_includes").write_bytes(b"\xff")
    with pytest.raises(ValidationException, match="cannot read"):
        Component.from_yaml(ws, yaml_file="deep/show.yml")
