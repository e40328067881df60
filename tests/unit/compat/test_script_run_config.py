"""v1's ScriptRunConfig as a job of today, value for value."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.environment import (
    DockerConfiguration,
    Environment,
    MpiConfiguration,
    ParallelTaskConfiguration,
    PyTorchConfiguration,
    TensorflowConfiguration,
)
from drumline.compat.script_run_config import ScriptRunConfig, to_command
from drumline.contract.errors import SpecError, UsageError
from drumline.sdk.v1.assets.dataset import (
    DataReference,
    Dataset,
    DatasetConsumptionConfig,
    FileDataset,
    OutputFileDatasetConfig,
)
from drumline.sdk.v1.assets.datastore import Datastore
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.validate import validate


def job_of(**given):
    given.setdefault("source_directory", "src")
    if "command" not in given:
        given.setdefault("script", "train.py")
    job = to_command(ScriptRunConfig(**given))
    assert validate(job).passed or given.get("environment") is None
    return job


@pytest.mark.parametrize(
    ("distribution", "expected", "nodes"),
    [
        (
            MpiConfiguration(process_count_per_node=2, node_count=3),
            {"type": "mpi", "process_count_per_instance": 2},
            3,
        ),
        (MpiConfiguration(), {"type": "mpi", "process_count_per_instance": 1}, 1),
        (
            PyTorchConfiguration(process_count=8, node_count=2),
            {"type": "pytorch", "process_count_per_instance": 4},
            2,
        ),
        (
            PyTorchConfiguration("GLOO", node_count=2),
            {"type": "pytorch", "process_count_per_instance": 1},
            2,
        ),
        (PyTorchConfiguration("Nccl", 4), {"type": "pytorch", "process_count_per_instance": 4}, 1),
        (
            TensorflowConfiguration(worker_count=2, parameter_server_count=0),
            {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 0},
            2,
        ),
        (
            TensorflowConfiguration(worker_count=3),
            {"type": "tensorflow", "worker_count": 3, "parameter_server_count": 1},
            3,
        ),
    ],
)
def test_counts_are_what_v1_means_by_them(distribution, expected, nodes):
    """Total for PyTorch, per node for MPI; a node is a worker for TensorFlow."""
    job = job_of(distributed_job_config=distribution)
    assert to_dict(job)["distribution"] == expected
    assert job.resources.instance_count == nodes


def test_the_same_in_a_run_configuration_s_own_words():
    config = RunConfiguration()
    config.framework, config.communicator, config.node_count = "Python", "OpenMpi", "2"
    config.mpi.process_count_per_node = 4
    job = job_of(run_config=config)
    assert (job.distribution.type, job.distribution.process_count_per_instance) == ("mpi", 4)
    assert job.resources.instance_count == 2


def test_without_a_distribution_there_is_none():
    job = job_of()
    assert (job.distribution, job.resources, job.limits, job.compute) == (None, None, None, "local")


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (PyTorchConfiguration(process_count=3, node_count=2), "process_count=3 cannot be shared evenly"),
        (PyTorchConfiguration(process_count=1, node_count=2), "total over all nodes: process_count=2 is 1"),
        (PyTorchConfiguration(process_count=0), "process_count must be a whole number"),
        (MpiConfiguration(process_count_per_node=0), "process_count_per_node must be"),
        (MpiConfiguration(node_count="two"), "node_count must be a whole number, 1 or more, got 'two'"),
        (TensorflowConfiguration(worker_count=-1), "worker_count"),
        (ParallelTaskConfiguration(), "ParallelTaskConfiguration is not supported"),
        ({"type": "mpi"}, "distributed_job_config cannot be of type 'dict'"),
    ],
)
def test_counts_that_cannot_be_are_refused(distribution, message):
    with pytest.raises(SpecError, match=message):
        job_of(distributed_job_config=distribution)


def test_a_backend_is_checked_where_it_is_given():
    with pytest.raises(SpecError, match="'communication_backend' must be 'Nccl' or 'Gloo'"):
        PyTorchConfiguration("mpi")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"arguments": ["--lr", 0.1, "--data", Path("a b"), "--on", True]},
         "python train.py --lr 0.1 --data 'a b' --on True"),
        ({"script": "dir/my train.py"}, "python 'dir/my train.py'"),
        ({"command": "echo $RANK && python train.py"}, "echo $RANK && python train.py"),
        ({"command": ["python", "train.py", "--node_rank", "$NODE_RANK"]},
         'python train.py --node_rank "$NODE_RANK"'),
        ({"command": ["echo", "a b", "&&", "ls"], "arguments": ["-l"]}, "echo 'a b' && ls -l"),
    ],
)  # fmt: skip
def test_the_command_line(given, expected):
    assert job_of(**given).command == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"script": "a.py", "command": "b"}, "exclude each other"),
        ({"script": None}, "needs a script or a command"),
        ({"arguments": "--lr 0.1"}, "arguments must be a list, got str"),
        ({"arguments": [None]}, "an argument cannot be of type 'NoneType'"),
        ({"arguments": [FileDataset("/d")]}, "an argument cannot be of type 'FileDataset'"),
        ({"environment": 3}, "environment cannot be of type 'int'"),
        ({"compute_target": 3}, "compute_target cannot be of type 'int'"),
        ({"max_run_duration_seconds": "long"}, "max_run_duration_seconds must be a number of seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(SpecError, match=message):
        job_of(**given)


def test_data_among_the_arguments_becomes_inputs_and_outputs():
    data = FileDataset("azureml:digits:2", name="digits")
    job = job_of(
        arguments=[
            "--data", data.as_named_input("images").as_download(),
            "--more", FileDataset("/data", type="uri_file").as_mount(),
            "--out", OutputFileDatasetConfig(name="model").register_on_complete("m"),
        ]
    )  # fmt: skip
    other = next(name for name in job.inputs if name != "images")
    assert job.command == (
        f"python train.py --data ${{{{inputs.images}}}} --more ${{{{inputs.{other}}}}} --out ${{{{outputs.model}}}}"
    )
    assert (job.inputs.images.path, job.inputs.images.mode) == ("azureml:digits:2", "download")
    assert (job.inputs[other].path, job.inputs[other].type) == ("/data", "uri_file")
    assert (job.outputs.model.name, job.outputs.model.mode) == ("m", "rw_mount")


def test_two_inputs_of_one_name_are_refused():
    one, other = FileDataset("/a"), FileDataset("/b")
    with pytest.raises(SpecError, match="two different inputs have the name 'x'"):
        job_of(arguments=[one.as_named_input("x").as_mount(), other.as_named_input("x").as_mount()])


def test_the_same_data_twice_is_one_input():
    data = FileDataset("/a").as_named_input("x").as_mount()
    assert list(job_of(arguments=[data, data]).inputs) == ["x"]


def test_environment_time_and_docker():
    environment = Environment("mine")
    environment.environment_variables["A"] = "1"
    environment.docker.base_image = "image"
    config = RunConfiguration()
    config.environment_variables["B"] = 2
    job = job_of(
        environment=environment,
        run_config=config,
        max_run_duration_seconds=60,
        docker_runtime_config=DockerConfiguration(use_docker=True, shm_size="8g", arguments=["--ipc=host"]),
    )
    assert (job.environment.name, job.environment.image) == ("mine", "image")
    assert job.environment_variables == {"A": "1", "B": 2}
    assert job.limits.timeout == 60
    assert (job.resources.shm_size, job.resources.docker_args) == ("8g", ["--ipc=host"])


def test_what_is_changed_until_it_is_submitted_counts():
    config = ScriptRunConfig("src", script="train.py", environment=Environment("a"))
    config.run_config.target = "gpu"
    config.run_config.node_count = 2
    config.arguments.append("--more")
    job = to_command(config)
    assert (job.compute, job.resources.instance_count, job.command) == ("gpu", 2, "python train.py --more")


def test_one_word_with_blanks_is_a_line():
    assert (
        job_of(command=["python train.py && ls"], arguments=["a b"]).command == "python train.py && ls 'a b'"
    )
    assert job_of(command=["ls", "a b"]).command == "ls 'a b'"


@pytest.mark.parametrize("command", [3, {"a": 1}])
def test_a_command_of_another_type_is_refused(command):
    with pytest.raises(SpecError, match="command must be text or a list"):
        ScriptRunConfig(".", command=command)


@pytest.mark.parametrize("given", [["A=1"], "A=1"])
def test_variables_that_are_no_mapping_are_refused(given):
    config = RunConfiguration("train.py")
    config.environment_variables = given
    with pytest.raises(SpecError, match="environment_variables must be a dict"):
        to_command(ScriptRunConfig(".", run_config=config))
    config.environment_variables = None
    assert not to_command(ScriptRunConfig(".", run_config=config)).environment_variables


def test_the_docker_section_is_there_to_be_set():
    config = RunConfiguration("train.py")
    config.docker.use_docker, config.docker.shm_size = True, "4g"
    assert to_command(ScriptRunConfig(".", run_config=config)).resources.shm_size == "4g"


def test_data_that_was_made_text_is_found_by_its_reference():
    data = FileDataset("/data").as_named_input("images").as_mount()
    config = RunConfiguration("train.py", ["--data", str(data)])
    config.data_references = {"images": data.to_config()}
    job = to_command(ScriptRunConfig(".", run_config=config))
    assert job.command == 'python train.py --data "$AZURE_ML_INPUT_images"'
    assert job.inputs["images"].path == "/data"
    config.data_references = {}
    with pytest.raises(SpecError, match="'images', which is not in run_config"):
        to_command(ScriptRunConfig(".", run_config=config))


def test_data_by_the_names_of_its_own_classes():
    named = DatasetConsumptionConfig("images", FileDataset("/data"), mode="download")
    assert to_dict(job_of(arguments=[named]))["inputs"]["images"]["mode"] == "download"
    store = Datastore(SimpleNamespace(_here=nullcontext), "mine")
    reference = DataReference(datastore=store, data_reference_name="x", path_on_datastore="a/b")
    assert job_of(arguments=[reference]).inputs["x"].path == "azureml://datastores/mine/paths/a/b"
    placed = DataReference(store, "y", path_on_compute="in").as_download()
    assert (placed.path_on_compute, job_of(arguments=[placed]).inputs["y"].path_on_compute) == ("in", "in")
    assert FileDataset("/d").as_download("in").as_named_input("z").path_on_compute == "in"
    page = Dataset.File.from_files("https://lab.example/sets/digits.csv?x=1")
    assert (page.type, page.to_path()) == ("uri_file", ["/digits.csv"])
    with pytest.raises(UsageError, match="expected a dataset, got str"):
        DatasetConsumptionConfig("images", "/data")
    with pytest.raises(UsageError, match="mode must be 'mount' or 'download'; got 'upload'"):
        DataReference(store, mode="upload")


def test_the_same_output_twice_is_one():
    out = OutputFileDatasetConfig()
    job = job_of(arguments=[out, "-", out.as_mount(), OutputFileDatasetConfig()])
    assert (
        job.command == "python train.py ${{outputs.output_0}} - ${{outputs.output_0}} ${{outputs.output_1}}"
    )
