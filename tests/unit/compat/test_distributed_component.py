"""Component files of v1.5 as components of today."""

import textwrap

import pytest

from drumline.compat.distributed_component import load
from drumline.compat.run_configuration.environment import DEFAULT_CPU_IMAGE
from drumline.contract.errors import SpecError
from drumline.spec.entity import to_dict

WHOLE = """
$schema: https://componentsdk.azureedge.net/jsonschema/DistributedComponent.json
name: microsoft.com.azureml.samples.train
version: 1.10
display_name: Train
type: DistributedComponent
is_deterministic: True
description: Trains.
tags: {category: Samples, contact: }
inputs:
  data: {type: AnyDirectory, description: the images}
  start: {type: [AnyFile, AnyDirectory], optional: true}
  csv: {type: AnyFile, optional: True}
  images: {type: ImageDirectory, optional: true}
  lr: {type: Float, default: 0.1, min: 0, max: 1}
  epochs: {type: Integer, default: 2}
  label: {type: String, default: 1.10, optional: true}
  optimizer: {type: Enum, default: sgd, enum: [sgd, adam]}
  on: {type: Boolean, default: yes}
outputs:
  model: {type: path}
  report: {type: AnyFile}
launcher:
  type: torch.distributed
  additional_arguments: >-
    python train.py --data {inputs.data} [--start {inputs.start.path}] --lr {inputs.lr} [--label {inputs.label}]
    --sizes [1,2] --out {outputs.model}
environment:
  docker: {image: image}
  conda:
    conda_dependencies: {dependencies: [python=3.8, pip: [torch]]}
  os: Linux
unknown: 3
"""


def load_text(tmp_path, text, name="component.yml"):
    file = tmp_path / name
    file.write_text(textwrap.dedent(text))
    return load(file)


def minimal(tmp_path, **keys):
    """A DistributedComponent with those keys in the place of others; None: without."""
    values = {
        "name": "train",
        "launcher": "{type: mpi, additional_arguments: python train.py}",
        "type": "DistributedComponent",
        **keys,
    }
    lines = [f"{key}: {value}" for key, value in values.items() if value is not None]
    return load_text(tmp_path, "\n".join(lines) + "\n")


def test_a_whole_one(tmp_path):
    made = to_dict(load_text(tmp_path, WHOLE))
    assert made.pop("command") == (
        "python train.py --data ${{inputs.data}} $[[--start ${{inputs.start}}]] --lr ${{inputs.lr}} "
        "$[[--label ${{inputs.label}}]] --sizes [1,2] --out ${{outputs.model}}"
    )
    assert made == {
        "name": "microsoft.com.azureml.samples.train",
        "version": "1.10",
        "type": "command",
        "display_name": "Train",
        "description": "Trains.",
        "tags": {"category": "Samples", "contact": ""},
        "is_deterministic": True,
        "inputs": {
            "data": {"type": "uri_folder", "description": "the images"},
            "start": {"type": "path", "optional": True},
            "csv": {"type": "uri_file", "optional": True},
            "images": {"type": "uri_folder", "optional": True},
            "lr": {"type": "number", "default": 0.1, "min": 0, "max": 1},
            "epochs": {"type": "integer", "default": 2},
            "label": {"type": "string", "default": "1.10", "optional": True},
            "optimizer": {"type": "string", "default": "sgd", "enum": ["sgd", "adam"]},
            "on": {"type": "boolean", "default": True},
        },
        "outputs": {
            "model": {"type": "uri_folder"},
            "report": {"type": "uri_file"},
        },
        "code": str(tmp_path),
        "environment": {
            "image": "image",
            "conda_file": {"dependencies": ["python=3.8", {"pip": ["torch"]}]},
        },
        "distribution": {"type": "pytorch"},
    }


@pytest.mark.parametrize(
    ("word", "kind"),
    [("mpi", "mpi"), ("MPI", "mpi"), ("torch.distributed", "pytorch"), ("Pytorch", "pytorch")],
)
def test_launchers(tmp_path, word, kind):
    made = minimal(tmp_path, launcher=f"{{type: {word}, additional_arguments: python train.py}}")
    assert (made.distribution.type, made.command) == (kind, "python train.py")


def test_a_command_component_of_that_time(tmp_path):
    made = load_text(
        tmp_path,
        """
        $schema: https://componentsdk.azureedge.net/jsonschema/CommandComponent.json
        name: score
        version: 0.0.1
        inputs:
          model: {type: path}
          more: {type: String, optional: true}
        command: >-
          python score.py --model {inputs.model}
          [--more {inputs.more}]
        """,
    )
    assert made.command == "python score.py --model ${{inputs.model}} $[[--more ${{inputs.more}}]]"
    assert (made.distribution, made.version) == (None, "0.0.1")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("azureml:mine:3", "azureml:mine:3"),
        ("{name: AzureML-Minimal}", "azureml:AzureML-Minimal@latest"),
        ("{name: mine, version: 1.10}", "azureml:mine:1.10"),
        ("{os: Linux}", {"image": DEFAULT_CPU_IMAGE}),
        ("{docker: {image: i}}", {"image": "i"}),
        (
            "{conda: {conda_dependencies_file: conda.yml}}",
            {"image": DEFAULT_CPU_IMAGE, "conda_file": "conda.yml"},
        ),
        (
            "{conda: {pip_requirements_file: r.txt}}",
            {"image": DEFAULT_CPU_IMAGE, "conda_file": {"dependencies": [{"pip": ["-r r.txt"]}]}},
        ),
        (
            "{docker: {build: {dockerfile: Dockerfile}}}",
            {"build": {"path": ".", "dockerfile_path": "Dockerfile"}},
        ),
    ],
)
def test_forms_of_an_environment(tmp_path, environment, expected):
    for name in ("conda.yml", "r.txt"):
        (tmp_path / name).write_text("dependencies: []\n")
    made = minimal(tmp_path, environment=environment).environment
    if isinstance(made, str):
        assert made == expected
    else:
        values = {
            key: getattr(value, "_values", lambda value=value: value)()
            for key, value in made._values().items()
        }
        assert values == expected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": None}, "missing key 'name'"),
        ({"launcher": None}, "missing key 'launcher'"),
        ({"launcher": "mpi"}, "launcher must be a mapping, got 'mpi'"),
        ({"launcher": "{type: mpi}"}, "missing key 'additional_arguments'"),
        (
            {"launcher": "{type: horovod, additional_arguments: a}"},
            "launcher.type: 'horovod' is not known",
        ),
        (
            {"launcher": "{type: mpi, additional_arguments: 'a {inputs.dta}'}", "inputs": "{data: {type: path}}"},
            r"2:\d+: launcher.additional_arguments refers to {inputs.dta}(.*\n){3}.*did you mean 'data'",
        ),
        ({"inputs": "{x: path}"}, "inputs.x must be a mapping, got 'path'"),
        ({"inputs": "{x: {optional: true}}"}, "missing key 'type' in inputs.x"),
        ({"inputs": "{x: {type: Integer, default: many}}"}, "inputs.x.default must be a whole number, got 'many'"),
        ({"inputs": "{x: {type: Float, default: 1, optional: maybe}}"}, "optional must be true or false"),
        ({"environment": "[a]"}, "environment must be a mapping, or text"),
        (
            {"environment": "{conda: {conda_dependencies_file: none.yml}}"},
            "conda_dependencies_file: no such file",
        ),
        ({"type": "ScopeComponent"}, "'ScopeComponent' is not a type of component"),
        ({"type": "command", "launcher": None}, "'command' is not a type of component"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(tmp_path, keys, message):
    with pytest.raises(SpecError, match=message) as error:
        minimal(tmp_path, **keys)
    assert all(problem.line and problem.file.endswith("component.yml") for problem in error.value.problems)
