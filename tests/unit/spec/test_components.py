"""Components: read, called, filled in, and written again."""

from __future__ import annotations

from typing import Any

import pytest

from drumline import Input, Output, command, load_component
from drumline.contract.errors import NotFoundError, SpecError
from drumline.dsl import pipeline
from drumline.entities import CommandComponent, Environment, PipelineComponent, PyTorchDistribution
from drumline.spec.entity import to_dict
from drumline.spec.jobs.command import Command
from drumline.spec.jobs.pipeline import PipelineJob, fill_component, to_node

COMMAND = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: train_model
version: 3
display_name: Train
description: trains
type: command
tags: {team: a}
is_deterministic: false
inputs:
  data: {type: uri_folder, mode: download, description: what it learns from}
  base: {type: uri_file, default: ./base.txt}
  lr: {type: number, default: 0.1, min: 0, max: 1}
  epochs: {type: integer}
  note: {type: string, optional: true}
outputs:
  model: {type: mlflow_model}
  log: {type: uri_file, mode: upload}
code: ./src
environment: {image: img, conda_file: ./conda.yml}
command: python train.py ${{inputs.data}} ${{inputs.epochs}} $[[--note ${{inputs.note}}]] ${{outputs.model}}
resources: {instance_count: 2}
queue_settings: {job_tier: spot}
distribution: {type: pytorch, process_count_per_instance: 4, anything: goes}
additional_includes: [../lib]
"""
PIPELINE = """
name: whole
type: pipeline
inputs: {n: {type: integer, default: 2}, raw: {type: uri_folder}}
outputs: {made: {type: uri_folder}}
jobs:
  one:
    component: ./train.yml
    inputs: {data: "${{parent.inputs.raw}}", epochs: "${{parent.inputs.n}}"}
  two:
    command: cp -r ${{inputs.i}} ${{outputs.o}}
    inputs: {i: "${{parent.jobs.one.outputs.model}}"}
    outputs: {o: "${{parent.outputs.made}}"}
"""


@pytest.fixture
def folder(tmp_path):
    """Components in a folder of their own, which is not the working folder."""
    place = tmp_path / "parts"
    (place / "src").mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    (place / "src" / "train.py").write_text("")
    (place / "conda.yml").write_text("dependencies: []\n")
    (place / "train.yml").write_text(COMMAND)
    (place / "whole.yml").write_text(PIPELINE)
    return place


@pytest.fixture
def train(folder):
    return load_component(folder / "train.yml")


def no_lookup(reference):
    raise NotFoundError(f"there is no component {reference}")


def filled(node, lookup=no_lookup):
    return fill_component(node, lookup)


# reading


def test_a_command_component_is_read(train):
    assert isinstance(train, CommandComponent)
    assert (train.name, train.version, train.display_name, train.tags) == (
        "train_model",
        "3",
        "Train",
        {"team": "a"},
    )
    assert train.distribution == PyTorchDistribution(process_count_per_instance=4)
    assert (train.resources.instance_count, train.queue_settings.job_tier) == (2, "spot")
    assert not train.is_deterministic
    assert (train.inputs["lr"].default, train.inputs["lr"].max, train.inputs["note"].optional) == (
        0.1,
        1,
        True,
    )
    assert (train.inputs["base"].default, train.outputs["log"].mode) == ("./base.txt", "upload")


def test_a_pipeline_component_is_read(folder):
    whole = load_component(source=str(folder / "whole.yml"))
    assert isinstance(whole, PipelineComponent)
    assert (list(whole.jobs), whole.jobs["one"].component) == (["one", "two"], "./train.yml")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: train_model", "name: Train-Model", 3),
        ("name: train_model\n", "", 2),
        ("type: command", "type: comand", 7),
        ("{type: uri_file, default: ./base.txt}", "{type: uri_fil}", 12),
        ("${{outputs.model}}", "${{outputs.mdl}}", 21),
        ("  model: {type: mlflow_model}", "  model: 3", 17),
        ("type: pytorch", "type: torch", 24),
        ("instance_count: 2", "instance_count: two", 22),
    ],
)
def test_a_mistake_in_a_component_has_a_line(folder, old, new, line):
    assert old in COMMAND
    (folder / "train.yml").write_text(COMMAND.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_component(folder / "train.yml")
    assert line in [problem.line for problem in caught.value.problems]


def test_overrides_come_before_the_checks(folder):
    changed = load_component(folder / "train.yml", params_override=[{"resources.instance_count": "5"}])
    assert changed.resources.instance_count == 5


# calling


def test_a_call_gives_a_command_with_the_component(train):
    node = train(data=Input(path="d"), epochs=3)
    assert isinstance(node, Command)
    assert (node.component is train, node.inputs.epochs, node.inputs.data.path) == (True, 3, "d")
    assert node.distribution.process_count_per_instance == 4
    assert node.resources.instance_count == 2
    assert list(node.outputs) == ["model", "log"]


def test_what_is_set_on_a_node_is_its_alone(train):
    first, second = train(epochs=1), train(epochs=2)
    first.distribution.process_count_per_instance = 1
    first.outputs.model.mode = "upload"
    assert second.distribution.process_count_per_instance == 4
    assert train.distribution.process_count_per_instance == 4
    assert (second.outputs.model.mode, train.outputs["model"].mode) == (None, None)


def test_inputs_may_be_given_in_their_order(train):
    node = train(Input(path="d"), None, 0.5, 3)
    assert {name: getattr(value, "path", value) for name, value in node.inputs.items()} == {
        "data": "d",
        "lr": 0.5,
        "epochs": 3,
    }


def test_none_is_an_input_that_is_not_given(train):
    assert "note" not in train(note=None).inputs


@pytest.mark.parametrize(
    ("arguments", "named", "what"),
    [
        ((), {"epoch": 1}, "'train_model' has no input 'epoch'"),
        ((1,), {"data": 1}, "got its input 'data' twice"),
        ((1, 2, 3, 4, 5, 6), {}, "takes 5 inputs, got 6"),
        ((), {"epochs": [1]}, "input 'epochs' cannot be of type 'list'"),
    ],
)
def test_a_call_with_what_it_does_not_take_is_refused(train, arguments, named, what):
    with pytest.raises(SpecError, match=what):
        train(*arguments, **named)


def test_a_call_of_a_pipeline_component_gives_a_pipeline(folder):
    whole = load_component(folder / "whole.yml")
    node = whole(raw=Input(path="d"))
    assert isinstance(node, PipelineJob)
    assert list(node.outputs) == ["made"]
    assert [job.type for job in filled(node).jobs.values()] == ["command", "command"]


# filling in


def test_a_node_takes_the_rest_from_its_component(train, folder):
    job = filled(train(data=Input(path="/d"), epochs=3))
    assert job.called_component is None
    assert (job.command, job.queue_settings.job_tier) == (train.command, "spot")
    assert job.code == str(folder / "src")
    assert job._includes == [str(folder.parent / "lib")]
    assert (job.inputs.lr, job.inputs.base.path, job._is_deterministic) == (
        0.1,
        str(folder / "base.txt"),
        False,
    )
    assert "note" not in job.inputs
    assert job.environment._base_path == str(folder)


def test_what_a_node_says_itself_goes_first(train):
    node = train(data=Input(path="/d"), epochs=3, lr=0.5)
    node.distribution = {"type": "mpi", "process_count_per_instance": 1}
    node.resources = {"instance_count": 7}
    node.environment = "other@latest"
    node.command = "echo"
    node.code = "elsewhere"
    job = filled(node)
    assert (job.distribution.type, job.resources.instance_count) == ("mpi", 7)
    assert (job.environment, job.command, job.code, job.inputs.lr) == (
        "other@latest",
        "echo",
        "elsewhere",
        0.5,
    )


def test_filling_in_leaves_node_and_component_as_they_were(train):
    node = train(data=Input(path="/d"), epochs=3)
    filled(node).inputs.epochs = 9
    assert (node.inputs.epochs, node.component is train, node.command) == (3, True, None)


def test_an_output_is_of_the_type_that_the_component_declares(train):
    node = train(epochs=1)
    node.outputs.log = Output(mode="mount")
    assert (filled(node).outputs.log.type, filled(node).outputs.log.mode) == ("uri_file", "mount")


def test_a_node_in_yaml_refers_to_a_file_or_holds_the_component(folder):
    by_file = to_node("a", {"component": "./train.yml", "inputs": {"epochs": 1}}, str(folder))
    inside = to_node(
        "b", {"component": {"command": "echo", "inputs": {"n": {"type": "integer", "default": 4}}}}, ""
    )
    assert filled(by_file).code == str(folder / "src")
    assert (filled(inside).command, filled(inside).inputs.n) == ("echo", 4)


def test_a_node_need_not_say_that_its_component_is_a_pipeline(folder, tmp_path):
    node = to_node("p", {"component": "parts/whole.yml", "inputs": {"raw": {"path": "d"}}}, str(tmp_path))
    job = filled(node)
    assert (job.type, list(job.jobs)) == ("pipeline", ["one", "two"])
    # What the node gives lies next to the node, what the component has next to the component.
    assert job.inputs.raw.path == str(tmp_path / "d")
    assert job.jobs["one"].base_path == str(folder)


def test_a_registered_component_is_looked_up(train):
    asked = []
    node = to_node("a", {"component": "azureml:train_model:3", "inputs": {"epochs": 2}}, "")
    job = filled(node, lambda reference: asked.append(reference) or train)
    assert (asked, job.command) == (["azureml:train_model:3"], train.command)


def test_a_registered_pipeline_is_one_whatever_the_node_says(folder):
    whole = load_component(folder / "whole.yml")
    job = filled(to_node("a", {"component": "azureml:whole:1", "inputs": {"n": 5}}, ""), lambda _: whole)
    assert (job.type, job.inputs.n, list(job.outputs)) == ("pipeline", 5, ["made"])


def test_a_command_cannot_be_the_component_of_a_pipeline(train):
    with pytest.raises(SpecError, match="'train_model' is a command, and this a pipeline"):
        filled(to_node("a", {"type": "pipeline", "component": "azureml:x:1"}, ""), lambda _: train)


def test_unknown_keys_of_a_node_are_harmless():
    node = to_node(
        "a", {"component": "azureml:x:1", "base_path": "/", "self": 1, "name": "n", "anything": 2}, "/b"
    )
    assert node.base_path == "/b"


def test_a_job_that_is_two_nodes_is_two_jobs():
    one = Command(command="true")
    jobs = PipelineJob(jobs={"a": one, "b": one}).jobs
    assert [job._node_name for job in jobs.values()] == ["a", "b"]


# writing


def again(component, place):
    component.dump(place)
    return load_component(place)


def test_a_component_loads_back_to_the_same(folder, train, tmp_path):
    assert to_dict(again(train, tmp_path / "again.yml")) == to_dict(train)
    assert to_dict(train)["code"] == str(folder / "src")
    whole = load_component(folder / "whole.yml")
    assert to_dict(again(whole, tmp_path / "whole.yml")) == to_dict(whole)


def test_a_component_of_python_loads_back_to_the_same(tmp_path):
    made = CommandComponent(
        name="made",
        command="echo ${{inputs.x}}",
        inputs={"x": Input(type="integer", default=1), "d": Input(type="uri_folder", optional=True)},
        outputs={"o": Output(type="uri_folder")},
        environment=Environment(image="img"),
        distribution={"type": "mpi"},
        instance_count=3,
        base_path=str(tmp_path),
    )
    back = again(made, tmp_path / "made.yml")
    assert to_dict(back) == to_dict(made)
    assert (back.resources.instance_count, back.inputs["d"].optional) == (3, True)


def test_dump_writes_over_a_file_only_where_it_may(train, tmp_path):
    train.dump(tmp_path / "c.yml")
    train.dump(tmp_path / "c.yml")
    with pytest.raises(FileExistsError):
        train.dump(tmp_path / "c.yml", overwrite=False)


def test_resources_and_instance_count_exclude_each_other():
    with pytest.raises(SpecError, match="exclude each other"):
        CommandComponent(name="c", command="true", resources={"instance_count": 1}, instance_count=2)


def test_a_pipeline_with_nodes_of_other_folders_is_written_with_whole_paths(folder, tmp_path):
    train = load_component(folder / "train.yml")
    job = PipelineJob(jobs={"a": train(data=Input(path="/d"), epochs=1)}, base_path=str(tmp_path))
    text = str(job)
    assert str(folder / "src") in text
    assert str(folder / "conda.yml") in text


# without a file


def test_a_command_is_a_component_too():
    made = command(
        name="prep",
        display_name="Prepare",
        code="src",
        command="echo ${{inputs.rate}} ${{inputs.data}}",
        environment="e@latest",
        inputs={
            "data": Input(type="uri_file", path="d"),
            "rate": Input(type="number", min=0),
            "epochs": 3,
            "word": "x",
            "flag": True,
        },
        outputs={"o": {"type": "uri_folder", "path": "azureml://datastores/x/paths/y"}},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
    )
    found = made.component
    assert isinstance(found, CommandComponent)
    assert (found.name, found.code, found.command, found.environment) == (
        "prep",
        "src",
        made.command,
        "e@latest",
    )
    assert found.distribution.process_count_per_instance == 2
    declared = {name: (port.type, port.default) for name, port in found.inputs.items()}
    assert declared == {
        "data": ("uri_file", None),
        "rate": ("number", None),
        "epochs": ("integer", 3),
        "word": ("string", "x"),
        "flag": ("boolean", True),
    }
    assert (found.inputs["rate"].min, found.outputs["o"].path) == (0, None)
    assert "component:" not in str(made)
    node = found(data=Input(type="uri_file", path="e"), rate=1)
    filled: Any = fill_component(node, None)
    assert filled.inputs["epochs"] == 3


def test_a_function_under_pipeline_is_a_component_by_its_annotations_and_its_nodes():
    prep = command(
        command="echo ${{inputs.data}}", inputs={"data": Input(type="uri_file")}, outputs={"o": None}
    )
    train = CommandComponent(
        name="train", command="true", inputs={"rate": {"type": "number"}, "data": {"type": "uri_folder"}}
    )

    @pipeline(name="whole", version="3", description="both")
    def both(
        raw, rate, more: Input(type="mltable"), steps: int = 5, note: Input(type="string") = None, *, word="w"
    ):
        prepared = prep(data=raw)
        train(rate=rate, data=prepared.outputs.o)
        return {"ready": prepared.outputs.o}

    found = load_component(both)
    assert isinstance(found, PipelineComponent)
    assert (found.name, found.version, found.description) == ("whole", "3", "both")
    declared = {name: (port.type, port.default, bool(port.optional)) for name, port in found.inputs.items()}
    assert declared == {
        "raw": ("uri_file", None, False),
        "rate": ("number", None, False),
        "more": ("mltable", None, False),
        "steps": ("integer", 5, False),
        "note": ("string", None, True),
        "word": ("string", "w", False),
    }
    assert (list(found.jobs), list(found.outputs)) == (["prepared", "train"], ["ready"])
    called = found(raw=Input(type="uri_file", path="r"), rate=1, more=Input(type="mltable", path="t"))
    filled: Any = fill_component(called, None)
    assert filled.inputs["steps"] == 5


def test_a_parameter_of_which_nothing_says_a_type_is_refused():
    @pipeline
    def unused(data):
        command(command="true")

    with pytest.raises(SpecError, match="unused: the type of its parameter 'data' is unknown"):
        load_component(unused)


def test_a_plain_function_is_no_component():
    with pytest.raises(SpecError, match="no_component is not decorated with @pipeline or @command_component"):
        load_component(test_a_plain_function_is_no_component)


def test_an_output_of_type_path_is_a_folder_and_a_component_has_a_function(tmp_path):
    """Both as public notebooks have them."""
    text = "name: write\ntype: command\ncommand: touch ${{outputs.o}}/x\noutputs:\n  o: {type: path}\n"
    (tmp_path / "write.yml").write_text(text)
    component = load_component(tmp_path / "write.yml")
    assert component.outputs["o"].type == component().outputs["o"].type == "uri_folder"
    assert component._func().component is component


def test_a_sweep_of_a_pipeline_has_the_outputs_and_defaults_of_its_component(tmp_path):
    """As in Azure, whose client sends neither; what is searched has no value."""
    text = (
        "type: command\ncommand: train ${{inputs.lr}} ${{inputs.n}} ${{outputs.o}}\n"
        "inputs:\n  lr: {type: number, default: 1}\n  n: {type: integer, default: 3}\n"
        "outputs:\n  o: {type: mlflow_model}\n"
    )
    (tmp_path / "train.yml").write_text(text)
    sweep = {
        "type": "sweep",
        "trial": "./train.yml",
        "search_space": {"lr": {"type": "choice", "values": [1]}},
    }
    done: Any = filled(to_node("s", sweep, str(tmp_path)))
    assert (done.inputs, done.outputs["o"].type, list(done._declared)) == ({"n": 3}, "mlflow_model", ["n"])
