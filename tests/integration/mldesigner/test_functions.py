"""
Functions under mldesigner's ``@command_component``, in pipelines of ours: with azure-ai-ml beside it, and without.

In the shape of azureml-examples' sdk/python/jobs/pipelines/2a_train_mnist_with_tensorflow.
"""

import importlib.util
import logging
import sys
import warnings
from typing import Annotated, Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # It warns where azure-ai-ml is missing, in colours.
    logging.getLogger("mldesigner").setLevel(logging.ERROR)
    pytest.importorskip("mldesigner", reason="mldesigner (4 MB with what it needs) is not installed")

import mldesigner
from mldesigner import Meta

from drumline import Command, Input, MLClient, load_component
from drumline.dsl import pipeline
from drumline.entities import CommandComponent, ResourceConfiguration
from drumline.exceptions import ValidationException
from drumline.spec.foreign import translate_object
from drumline.spec.jobs.job import to_dict

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = '''
import json
import os
from pathlib import Path

from mldesigner import Input, Output, command_component


@command_component(name="prepare", version="1", environment={"image": "ubuntu", "conda_file": CONDA})
def prepare(raw: Input(type="uri_folder"), scale: int, ready: Output(type="uri_folder"), rate=0.5, note: str = None):
    """Make data of data."""
    text = (Path(raw) / "a.txt").read_text() * scale
    (Path(ready) / "b.txt").write_text(f"{text} {rate} {note}")


@command_component(
    display_name="Train", distribution={"type": "tensorflow", "worker_count": 1}, environment="environment.yml"
)
def train(data: Input(type="uri_folder"), model: Output(type="uri_folder"), epochs: Input(type="integer", min=1) = 3):
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    (Path(model) / str(rank)).write_text((Path(data) / "b.txt").read_text() + f" {epochs}")
'''.replace("CONDA", repr({"dependencies": ["python=3.11"]}))


def has_azure():
    return all(importlib.util.find_spec(name) is not None for name in ("azure", "azure.ai", "azure.ai.ml"))


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The module with the two functions, as a script would import it."""
    monkeypatch.chdir(tmp_path)
    # Its conda file does not name mldesigner, which the Python of the tests has.
    monkeypatch.setenv("DRUMLINE_ENVIRONMENT", "current")
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "tf_steps.py").write_text(STEPS)
    (folder / "environment.yml").write_text("name: e\nimage: ubuntu\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hi")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("tf_steps")
    del sys.modules["tf_steps"]


def made(steps, **given):
    @pipeline(default_compute="local")
    def train_with_tensorflow(raw, note="n"):
        prepared = steps.prepare(raw=raw, scale=2, note=note)
        tf_job = steps.train(data=prepared.outputs.ready)
        tf_job.compute = "serverless"
        tf_job.distribution.worker_count = 2
        tf_job.resources = ResourceConfiguration(instance_count=2)
        return {"model": tf_job.outputs.model}

    return train_with_tensorflow(Input(type="uri_folder", path="./data"), **given)


def test_a_call_is_a_node_of_ours(steps):
    job = made(steps)
    assert list(job.jobs) == ["prepared", "tf_job"]
    assert all(type(node) is Command for node in job.jobs.values())
    node = to_dict(job)["jobs"]["tf_job"]
    assert node["inputs"] == {"data": "${{parent.jobs.prepared.outputs.ready}}"}
    assert node["distribution"]["worker_count"] == 2
    assert node["resources"] == {"instance_count": 2}
    # Of its own component, nothing has changed.
    assert steps.train is not None
    assert load_component(steps.train).distribution.worker_count == 1


def test_the_component_says_what_its_function_says(steps, tmp_path):
    found = load_component(steps.prepare)
    assert isinstance(found, CommandComponent)
    assert (found.name, found.version, found.description) == ("prepare", "1", "Make data of data.")
    assert found.environment.image == "ubuntu"
    assert found.environment.conda_file == {"dependencies": ["python=3.11"]}
    assert str(found.code) == str(tmp_path / "src")
    declared = {name: (item.type, item.default) for name, item in found.inputs.items()}
    assert declared == {
        "raw": ("uri_folder", None),
        "scale": ("integer", None),
        "rate": ("number", 0.5),
        "note": ("string", None),
    }
    assert {name: item.type for name, item in found.outputs.items()} == {"ready": "uri_folder"}
    assert found.command.startswith(
        "mldesigner execute --source tf_steps.py --name prepare --inputs raw='${{inputs.raw}}'"
    )
    assert found.command.endswith("--outputs ready='${{outputs.ready}}'")


def test_a_parameter_keeps_its_bounds_and_its_file_of_an_environment(steps):
    found = load_component(steps.train)
    assert (found.inputs["epochs"].type, found.inputs["epochs"].min, found.inputs["epochs"].default) == (
        "integer",
        1,
        3,
    )
    assert found.environment.image == "ubuntu"


def test_annotated_parameters_have_the_type_and_the_default_of_their_meta(tmp_path, steps):
    (tmp_path / "src" / "meta_steps.py").write_text(
        "from typing import Annotated\n\nfrom mldesigner import Meta, command_component\n\n\n"
        "@command_component\n"
        "def count(x: Annotated[int, Meta(min=1, default=3)], y: Annotated[str, Meta(description='d')] = 'a'):\n"
        "    print(x, y)\n"
    )
    count = importlib.import_module("meta_steps").count
    ports = load_component(count).inputs
    assert [(ports["x"].type, ports["x"].default, ports["x"].min), (ports["y"].type, ports["y"].default)] == [
        ("integer", 3, 1),
        ("string", "a"),
    ]

    @pipeline
    def counting(x: Annotated[int, Meta(default=4)], y: mldesigner.Input(type="string", default="b")):
        count(x=x, y=y)

    assert dict(counting().inputs) == {"x": 4, "y": "b"}
    with pytest.raises(ValidationException, match="x is of type integer, and gets 'no'"):
        counting(x="no")


def test_what_a_function_returns_is_a_value_for_the_next(tmp_path, steps):
    (tmp_path / "src" / "value_steps.py").write_text(
        "from mldesigner import command_component\n\n\n"
        "@command_component\ndef choose(rate: float) -> str:\n    return f'rate {rate}'\n\n\n"
        "@command_component\ndef say(text: str):\n    print('said', text)\n"
    )
    value_steps = importlib.import_module("value_steps")

    @pipeline(default_compute="local")
    def choosing():
        chosen = value_steps.choose(rate=0.5)
        value_steps.say(text=chosen.outputs.output)

    ml_client = MLClient()
    job = ml_client.jobs.create_or_update(choosing())
    ml_client.jobs.stream(job.name)
    got: Any = ml_client.jobs.get(job.name)
    assert [step["status"] for step in got.steps] == ["Completed", "Completed"]
    ml_client.jobs.download(f"{job.name}-say", download_path=tmp_path / "got")
    assert "said rate 0.5" in (tmp_path / "got" / "artifacts" / "user_logs" / "std_log.txt").read_text()


def test_a_function_that_takes_inputs_of_any_name_is_refused(tmp_path, steps):
    (tmp_path / "src" / "any_steps.py").write_text(
        "from mldesigner import Output, command_component\n\n\n"
        "@command_component\ndef collect(made: Output(type='uri_folder'), **parts):\n    print(parts)\n"
    )
    any_steps = importlib.import_module("any_steps")

    @pipeline
    def collecting():
        any_steps.collect(word="x")

    with pytest.raises(ValidationException, match="collect takes inputs of any name"):
        collecting()


def test_outside_a_pipeline_a_call_is_mldesigners_own(steps):
    made(steps)
    called = steps.prepare(raw="x", scale=1)
    assert type(called).__module__.startswith(("azure.ai.ml", "mldesigner"))


def test_what_it_does_not_take_is_refused(steps):
    @pipeline
    def wrong():
        steps.train(dta="x")

    with pytest.raises(ValidationException if not has_azure() else Exception, match="dta"):
        wrong()


def test_a_function_can_be_registered(steps):
    client = MLClient()
    returned = client.components.create_or_update(steps.prepare)
    assert (returned.name, returned.version) == ("prepare", "1")
    assert client.components.get("prepare", label="latest").inputs["scale"].type == "integer"


@pytest.mark.skipif(not has_azure(), reason="azure-ai-ml is not installed")
def test_a_pipeline_of_azures_own_has_them_as_steps(steps):
    from azure.ai.ml import Input as Data
    from azure.ai.ml.dsl import pipeline as azure_pipeline

    @azure_pipeline
    def theirs(raw):
        steps.train(data=steps.prepare(raw=raw, scale=1).outputs.ready)

    job = translate_object(theirs(raw=Data(type="uri_folder", path="./data")))
    assert list(job.jobs) == ["prepare", "train"]
    assert job.jobs["train"].component.command.startswith("mldesigner execute --source tf_steps.py")


def test_a_python_file_is_not_run_to_read_a_component(steps):
    with pytest.raises(ValidationException, match=r"load_component\(function\)"):
        load_component("src/tf_steps.py")


def test_the_pipeline_runs(steps, drumline_home):
    client = MLClient()
    returned = client.jobs.create_or_update(made(steps, note="x y"))
    client.jobs.stream(returned.name)
    assert client.jobs.get(returned.name).status == "Completed"
    written = sorted((drumline_home / "jobs").glob("*tf_job*/named-outputs/model/*"))
    assert [(file.name, file.read_text()) for file in written] == [(rank, "hihi 0.5 x y 3") for rank in "01"]


def test_where_mldesigner_is_missing_the_step_says_so(steps, drumline_home):
    job = load_component(steps.prepare)(raw=Input(path="./data"), scale=1, note="n")
    job.command = "PATH=/usr/bin:/bin; mldesigner execute"
    client = MLClient()
    returned = client.jobs.create_or_update(job)
    with pytest.raises(Exception, match="mldesigner: command not found"):
        client.jobs.stream(returned.name)
