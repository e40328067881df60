"""Jobs built in Python, as azure-ai-ml's users build them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.entities import (
    Command,
    CommandComponent,
    Data,
    Environment,
    Input,
    JobResourceConfiguration,
    JupyterLabJobService,
    MpiDistribution,
    Output,
    PyTorchDistribution,
    QueueSettings,
    RayDistribution,
    ResourceConfiguration,
    SshJobService,
    TensorFlowDistribution,
    UserIdentityConfiguration,
)
from drumline.spec.jobs.command import command
from drumline.spec.jobs.job import to_dict, to_yaml
from drumline.spec.jobs.validate import validate
from drumline.spec.load import load_data, load_job


def job(**kwargs) -> Command:
    base = {"command": "echo ${{inputs.x}}", "environment": "azureml:e:1", "inputs": {"x": 1}}
    return command(**{**base, **kwargs})


def errors_of(**kwargs) -> dict[str, str]:
    return validate(job(**kwargs)).error_messages


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"type": "PyTorch", "process_count_per_instance": 1},
            PyTorchDistribution(process_count_per_instance=1),
        ),
        (
            {"type": "pytorch", "process_count_per_instance": "4"},
            PyTorchDistribution(process_count_per_instance=4),
        ),
        ({"type": "MPI"}, MpiDistribution()),
        ({"type": "TensorFlow", "worker_count": 2}, TensorFlowDistribution(worker_count=2)),
        ({"type": "ray", "port": 1}, RayDistribution(port=1)),
        (None, None),
    ],
)
def test_a_distribution_may_be_a_dictionary(given, expected):
    assert job(distribution=given).distribution == expected


@pytest.mark.parametrize(
    "given",
    [
        {"type": "horovod"},
        {"process_count_per_instance": 2},
        {},
        {"type": "pytorch", "process_count_per_instance": "x"},
        {"Type": "pytorch"},
        "pytorch",
    ],
)
def test_a_distribution_that_is_none_is_refused_at_once(given):
    with pytest.raises(SpecError):
        job(distribution=given)


def test_a_distribution_given_as_a_dictionary_has_attributes():
    made = job(distribution={"type": "tensorflow"})
    made.distribution.worker_count = "2"
    assert (made.distribution.worker_count, made.distribution.parameter_server_count) == (2, 0)


def test_distributions_take_keywords_only():
    with pytest.raises(TypeError):
        PyTorchDistribution(2)


def test_flat_keywords_become_resources_limits_and_queue_settings():
    made = job(instance_count="2", shm_size="4g", timeout=60, job_tier="Spot")
    assert made.resources == JobResourceConfiguration(instance_count=2, shm_size="4g")
    assert made.limits.timeout == 60
    assert made.queue_settings == QueueSettings(job_tier="spot")


def test_a_job_without_them_has_no_resources():
    assert job().resources is None


@pytest.mark.parametrize(
    "given",
    [
        ResourceConfiguration(instance_count=3),
        {"instance_count": 3},
        JobResourceConfiguration(instance_count=3),
    ],
)
def test_resources_set_later_replace_those_of_the_constructor(given):
    made = job(instance_count=5, shm_size="2g")
    made.resources = given
    assert made.resources == JobResourceConfiguration(instance_count=3)


def test_set_resources_leaves_what_is_not_given():
    made = job(instance_count=2)
    made.set_resources(instance_type="gpu", properties={"a": 1})
    assert (made.resources.instance_count, made.resources.instance_type) == (2, "gpu")


def test_a_called_job_is_a_copy_with_other_inputs():
    first = job(outputs={"o": None})
    second = first(x=9)
    assert (first.inputs.x, second.inputs["x"], second.outputs) == (1, 9, first.outputs)
    assert second.outputs.o is not first.outputs.o


def test_a_call_with_an_unknown_input_names_the_known_ones():
    with pytest.raises(SpecError, match="valid keywords: 'x'"):
        job()(zz=1)


def test_inputs_are_attributes_and_items():
    made = job()
    made.inputs.data = {"path": "d", "type": "URI_FILE"}
    assert made.inputs["data"] == Input(type="uri_file", path="d")
    with pytest.raises(AttributeError, match="known: 'x', 'data'"):
        _ = made.inputs.zz


@pytest.mark.parametrize("value", [None, [1], object()])
def test_what_cannot_be_an_input_is_refused_at_once(value):
    with pytest.raises(SpecError, match="input 'x' cannot be of type"):
        job(inputs={"x": value})


def test_the_output_of_a_job_is_an_input_of_the_next():
    first = job(outputs={"o": Output(path="azureml://datastores/d/paths/x")})
    assert job(inputs={"x": first.outputs.o}).inputs.x.path == "azureml://datastores/d/paths/x"


def test_outputs_may_be_nothing_or_a_mapping():
    made = job(outputs={"a": None, "b": {}, "c": {"name": "n", "version": "2"}})
    assert (made.outputs.a, made.outputs.b, made.outputs.c.name) == (Output(), Output(), "n")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Input(type="uri_folder", default=1),
        lambda: Input(type="integer", path="x"),
        lambda: Output(version="1"),
        lambda: SshJobService(nodes="0"),
        lambda: job(outputs={"a": "x"}),
        lambda: job(services={"s": "ssh"}),
        lambda: job(identity={"type": "x"}),
        lambda: job(environment=5),
    ],
)
def test_an_entity_that_cannot_be_is_refused_at_once(build):
    with pytest.raises(SpecError):
        build()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"command": None}, "command"),
        ({"command": "echo ${{inputs.zz}}"}, "command"),
        ({"job_tier": "gold"}, "queue_settings.job_tier"),
        ({"inputs": {"x": Input(type="string", default="a")}}, "inputs.x.type"),
        ({"inputs": {"x": Input(path="a", mode="bogus")}}, "inputs.x.mode"),
        ({"inputs": {"x": Input(type="folder", path="a")}}, "inputs.x.type"),
        ({"inputs": {"x": 1, "a-b": 1}}, "inputs.a-b"),
        ({"outputs": {"1a": None}}, "outputs.1a"),
        ({"environment": Environment()}, "environment"),
        ({"environment": Environment(image="a", build={"path": "/"})}, "environment"),
        ({"code": "/nope"}, "code"),
        ({"drumline": {"grace": -1}}, "drumline.grace"),
        ({"services": {"s": {"type": "custom", "log_dir": "x"}}}, ""),
    ],
)
def test_validate_names_the_field(change, path):
    assert (list(errors_of(**change)) or [""]) == [path]


@pytest.mark.parametrize(
    "change",
    [
        {"environment": None},
        {"environment": "AzureML-tensorflow-2.16-cuda12@latest"},
        {"environment": Environment(image="a", conda_file={"dependencies": []})},
        {"instance_type": ["a", "b"], "docker_args": ["--ipc=host"]},
        {"command": "echo $[[--a ${{inputs.zz}}]]"},
        {"command": "echo ${{ inputs.zz }} ${{outputs.zz}} {inputs.zz}"},
        {"environment_variables": {"A": 1, "B": None}},
        {"services": {"j": JupyterLabJobService(nodes="all"), "s": {"ssh_public_keys": "k"}}},
        {"identity": UserIdentityConfiguration(), "compute": "local"},
        {"instance_count": 0, "name": "my job!"},
    ],
)
def test_validate_passes_what_azure_ai_ml_takes(change):
    assert errors_of(**change) == {}


def test_validate_names_a_field_that_was_set_later():
    made = job(instance_count=1)
    made.resources.instance_count = "many"
    assert list(validate(made).error_messages) == ["resources.instance_count"]


def test_validate_points_at_the_file_until_the_job_is_changed(tmp_path):
    (tmp_path / "job.yml").write_text("command: echo ${{inputs.zz}}\n")
    loaded = load_job(tmp_path / "job.yml")
    (problem,) = validate(loaded).problems
    assert (problem.line, problem.column) == (1, 10)
    loaded.command = "echo ${{inputs.yy}}"
    (problem,) = validate(loaded).problems
    assert problem.line == 0


def test_the_text_of_a_job_is_yaml_that_loads_back(tmp_path):
    made = job(
        command="set -e\necho ${{inputs.x}}",
        environment="bare@latest",
        distribution={"type": "mpi"},
        instance_count=2,
        inputs={"x": "012", "y": "no", "z": Input(path="azureml:d:1", mode="DOWNLOAD")},
    )
    (tmp_path / "job.yml").write_text(str(made))
    assert to_dict(load_job(tmp_path / "job.yml")) == to_dict(made)


def test_a_dump_in_another_folder_still_finds_its_files(tmp_path):
    (tmp_path / "a" / "src").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "job.yml").write_text("command: x\ncode: src\ninputs: {d: {path: data}}\n")
    load_job(tmp_path / "a" / "job.yml").dump(tmp_path / "b" / "job.yml")
    again: Any = load_job(tmp_path / "b" / "job.yml")
    assert (again.code, again.inputs.d.path) == (str(tmp_path / "a/src"), str(tmp_path / "a/data"))


def test_the_plain_form_is_json_without_what_is_not_set():
    made = job(environment=Environment(image="a"), tags={})
    assert json.loads(json.dumps(to_dict(made))) == {
        "type": "command",
        "command": "echo ${{inputs.x}}",
        "environment": {"image": "a"},
        "inputs": {"x": 1},
    }


def test_commands_of_several_lines_are_dumped_as_a_block():
    assert "command: |-\n  a\n  b\n" in to_yaml(job(command="a\nb"))


def test_a_repr_shows_no_environment_variables():
    assert "hush" not in repr(job(environment_variables={"TOKEN": "hush"}))


@pytest.mark.parametrize(
    ("make", "problem", "hint"),
    [
        (
            lambda: command(command="x", distrbution={"type": "pytorch"}),
            "unknown keyword 'distrbution'",
            "did you mean 'distribution'?",
        ),
        (
            lambda: command(command="x", distribution={"type": "PyTorch", "procces_count_per_instance": 2}),
            "unknown key 'procces_count_per_instance' in distribution",
            "did you mean 'process_count_per_instance'?",
        ),
        (
            lambda: MpiDistribution(process_count_per_node=2),  # type: ignore[call-arg]
            "unknown keyword 'process_count_per_node' in distribution",
            "did you mean 'process_count_per_instance'?",
        ),
        (
            lambda: JobResourceConfiguration(node_count=2),  # type: ignore[call-arg]
            "unknown keyword 'node_count' in resources",
            "did you mean 'instance_count'?",
        ),
        (
            lambda: CommandComponent(command="x", comand="y"),  # type: ignore[call-arg]
            "unknown keyword 'comand' in the component",
            "did you mean 'command'?",
        ),
    ],
)
def test_an_unknown_keyword_is_an_error_as_in_a_file(make, problem, hint):
    """azure-ai-ml drops it in silence, and the job then is another one."""
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).startswith(problem)
    assert hint in str(caught.value)


def test_a_conda_file_is_looked_for_beside_the_job_file(tmp_path):
    (tmp_path / "c.yml").write_text("dependencies: [python]\n")
    (tmp_path / "job.yml").write_text("command: x\nenvironment: {image: y, conda_file: ./c.yml}\n")
    loaded = load_job(tmp_path / "job.yml")
    assert to_dict(loaded, absolute=True)["environment"]["conda_file"] == str(tmp_path / "c.yml")


@pytest.mark.parametrize(
    "wrong", [{"inputs": [1]}, {"inputs": {1: 2}}, {"outputs": "x"}, {"environment_variables": [1]}]
)
def test_what_is_no_mapping_is_refused(wrong):
    with pytest.raises(SpecError):
        command(command="ls", **wrong)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda job: job.set_resources(instance_cuont=4), "unknown keyword 'instance_cuont' in resources"),
        (lambda job: job.set_limits(timeout=4, timout=5), "unknown keyword 'timout' in limits"),
        (lambda job: job.set_queue_settings(job_teir="x"), "unknown keyword 'job_teir' in queue_settings"),
    ],
)
def test_an_unknown_keyword_of_a_setter_is_an_error(change, said):
    with pytest.raises(SpecError, match=said):
        change(command(command="true"))


def test_resources_are_set_one_by_one():
    job = command(command="true", instance_count=2)
    job.set_resources(max_instance_count=3)
    assert job.resources == JobResourceConfiguration(instance_count=2, max_instance_count=3)


def test_an_attribute_that_a_job_does_not_have_is_a_warning():
    job = command(command="true", distribution={"type": "pytorch"}, instance_count=1)
    job.distribution.process_count_per_instnce = 4
    job.resources.shmsize = "2g"
    job.enviroment = "x"
    job._mine = 1
    assert validate(job).warnings == [
        "enviroment: not an attribute of the job, not used; did you mean 'environment'?",
        "distribution.process_count_per_instnce: not an attribute of the distribution, not used; "
        "did you mean 'process_count_per_instance'?",
        "resources.shmsize: not an attribute of the resources, not used; did you mean 'shm_size'?",
    ]


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u202a\u202e\u2066\u2069")
def test_what_is_printed_cannot_be_turned_around_and_loads_back(tmp_path, mark):
    """With such a mark in a name or a command, the words around it read in another order."""
    text = f"a{mark}exe.png"
    job = command(
        command=f"echo {text}\necho \\u202e",
        environment="local",
        description=text,
        tags={text: text},
        compute="local",
    )
    data = Data(name="a", path="b.csv", description=text)
    for entity, load in ((job, load_job), (data, load_data)):
        assert mark not in f"{entity}{entity!r}"
        (tmp_path / "a.yml").write_text(str(entity))
        assert load(tmp_path / "a.yml").description == text
    (tmp_path / "a.yml").write_text(str(job))
    loaded = load_job(tmp_path / "a.yml")
    assert isinstance(loaded, Command)
    assert (loaded.command, loaded.tags) == (job.command, job.tags)
