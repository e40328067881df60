"""Pipelines by the SDK, in scripts shaped like those for azure-ai-ml with their imports changed."""
# ruff: noqa: F841 - variables give nodes their names

import json
import subprocess
import sys

import pytest
from cli_jobs import job_names
from pipelines import log_of

from drumline import Input, MLClient, Output, command, load_component
from drumline.dsl import pipeline
from drumline.entities import PipelineJob
from drumline.exceptions import MlException, ValidationException

SCRIPT = """
from drumline import Input, MLClient, load_component
from drumline.dsl import pipeline
from drumline.entities import ResourceConfiguration

ml_client = MLClient(None, "<SUBSCRIPTION>", "<GROUP>", "<WORKSPACE>")
prepare = load_component(source="prepare.yml")
train = load_component(source="train.yml")

@pipeline(default_compute="cpu-cluster", description="prepares and trains")
def train_on_data(raw, epochs: int, rate: float = 0.1):
    prepare_job = prepare(raw=raw)
    train_job = train(data=prepare_job.outputs.ready, epochs=epochs, rate=rate)
    train_job.distribution.worker_count = 2
    train_job.resources = ResourceConfiguration(instance_count=2)
    train_job.outputs.model.mode = "upload"
    return {"model": train_job.outputs.model}

job = train_on_data(Input(type="uri_folder", path="raw"), epochs=3)
job.settings.force_rerun = True
job = ml_client.jobs.create_or_update(job, experiment_name="pipelines")
ml_client.jobs.stream(job.name)
print("model in", ml_client.jobs.get(job.name).outputs.model.path)
"""
PREPARE = """
name: prepare
type: command
inputs: {raw: {type: uri_folder}}
outputs: {ready: {type: uri_folder}}
command: cp ${{inputs.raw}}/a ${{outputs.ready}}/b
"""
TRAIN = """
name: train
type: command
inputs: {data: {type: uri_folder}, epochs: {type: integer}, rate: {type: number}}
outputs: {model: {type: uri_folder}}
command: >-
  echo "$(cat ${{inputs.data}}/b) ${{inputs.epochs}} ${{inputs.rate}} $AZUREML_PROCESS_NAME" |
  tee ${{outputs.model}}/$AZUREML_CR_NODE_RANK
distribution: {type: tensorflow}
"""


@pytest.fixture
def client():
    return MLClient()


def one(text="true", **fields):
    """A command that writes an output ``o``."""
    return command(command=text, outputs={"o": Output()}, drumline={"grace": 0.5}, **fields)


def test_a_script_of_the_docs_runs_with_its_imports_changed(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_text("data")
    for name, text in (("prepare.yml", PREPARE), ("train.yml", TRAIN), ("submit.py", SCRIPT)):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "submit.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    ranks = {f"[train_job] [{rank}|node-{rank}] data 3 0.1 worker_{rank}" for rank in range(2)}
    assert ranks <= set(said), done.stdout
    assert "'cpu-cluster' is not attached" in done.stderr
    assert said[-1] == f"model in azureml://jobs/{said[0].removeprefix('RunId: ')}/outputs/model"


def test_pipelines_in_pipelines_feed_jobs_after_them(client, tmp_path):
    first = one(
        "test $AZUREML_ROOT_RUN_ID = p || exit 9; cat ${{inputs.x}}/made 2>/dev/null; "
        "echo ${{inputs.n}} | tee -a ${{outputs.o}}/made",
        inputs={"n": 0, "x": Input(path="data")},
    )

    @pipeline
    def inner(data, n: int = 1):
        step = first(x=data, n=n)
        return {"made": step.outputs.o}

    @pipeline
    def outer(data):
        a = inner(data=data)
        b = inner(data=a.outputs.made, n=2)
        return {"result": b.outputs.made}

    job = outer(Input(path=str(tmp_path)))
    job.name = "p"
    returned = client.jobs.create_or_update(job)
    assert isinstance(returned, PipelineJob)
    client.jobs.stream("p")
    done = client.jobs.get("p")
    assert [(step["step"], step["job"]) for step in done.steps] == [("a", "p-a"), ("b", "p-b")]
    assert log_of("p-b-step") == "1\n2\n"
    assert sorted(child.name for child in client.jobs.list(parent_job_name="p")) == ["p-a", "p-b"]
    assert [job.name for job in client.jobs.list()] == ["p"]
    after = command(
        name="after", command="cat ${{inputs.r}}/made", inputs={"r": Input(path=done.outputs.result.path)}
    )
    client.jobs.create_or_update(after)
    client.jobs.stream("after")
    assert log_of("after") == "2\n"
    client.jobs.download("p", download_path=tmp_path / "got", output_name="result")
    assert (tmp_path / "got/named-outputs/result/made").read_text() == "2\n"


def test_a_node_alone_is_a_job(client, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "x").write_text("of the library")
    part = {"name": "part", "command": "cat lib/x; echo ${{inputs.n}}", "additional_includes": ["./lib"]}
    (tmp_path / "part.yml").write_text(json.dumps({**part, "inputs": {"n": {"type": "integer"}}}))
    node = load_component(tmp_path / "part.yml")(n=4)
    node.name = "alone"
    client.jobs.create_or_update(node)
    client.jobs.stream("alone")
    assert log_of("alone") == "of the library4\n"


def test_a_mistake_raises_and_makes_nothing(client, drumline_home):
    @pipeline
    def whole(n):
        a = one("echo ${{inputs.n}}", inputs={"n": n, "y": Input(path="/nowhere")})
        b = one("echo ${{inputs.z}}")

    with pytest.raises(ValidationException) as caught:
        client.jobs.create_or_update(whole(1))
    assert "jobs.b.command refers to ${{inputs.z}}" in str(caught.value)

    @pipeline
    def other(n):
        a = one("echo ${{inputs.n}}", inputs={"n": n, "y": Input(path="/nowhere")})

    with pytest.raises(MlException, match=r"jobs\.a\.inputs\.y: there is no"):
        client.jobs.create_or_update(other(1))
    assert job_names(drumline_home) == []
