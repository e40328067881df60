"""v1's estimators and the data of run configurations, as jobs of today."""

import pytest

from drumline.compat.run_configuration.configuration import Data, DataLocation, DataPath, RunConfiguration
from drumline.compat.run_configuration.environment import MpiConfiguration, TensorflowConfiguration
from drumline.compat.script_run_config import (
    Estimator,
    Gloo,
    Mpi,
    Nccl,
    ParameterServer,
    PyTorch,
    ScriptRunConfig,
    TensorFlow,
    to_command,
)
from drumline.contract.errors import SpecError
from drumline.sdk.v1.assets.dataset import Dataset, FileDataset
from drumline.spec.jobs.job import to_dict


def job_of(kind=Estimator, **given):
    return to_command(kind("src", entry_script="train.py", **given))


FOUR = MpiConfiguration()
FOUR.process_count_per_node = 4


@pytest.mark.parametrize(
    ("given", "distribution"),
    [
        ({}, None),
        ({"distributed_training": FOUR}, {"type": "mpi", "process_count_per_instance": 4}),
        (
            {"distributed_training": MpiConfiguration(), "process_count_per_node": 2},
            {"type": "mpi", "process_count_per_instance": 2},
        ),
        (
            {"distributed_training": Mpi(process_count_per_node=4)},
            {"type": "mpi", "process_count_per_instance": 4},
        ),
        (
            {"distributed_backend": "mpi", "process_count_per_node": 4},
            {"type": "mpi", "process_count_per_instance": 4},
        ),
        ({"distributed_training": Nccl()}, {"type": "pytorch", "process_count_per_instance": 1}),
        (
            {"distributed_training": Gloo(), "process_count_per_node": 2},
            {"type": "pytorch", "process_count_per_instance": 2},
        ),
        ({"distributed_backend": "nccl"}, {"type": "pytorch", "process_count_per_instance": 1}),
    ],
)
def test_how_an_estimator_is_distributed(given, distribution):
    job = to_dict(job_of(PyTorch, node_count=2, **given))
    assert (job.get("distribution"), job["resources"]["instance_count"]) == (distribution, 2)


@pytest.mark.parametrize(
    "given",
    [
        {"distributed_training": TensorflowConfiguration(2, 1)},
        {"distributed_training": ParameterServer(2, 1)},
        {"distributed_backend": "ps", "worker_count": 2, "parameter_server_count": 1},
    ],
)
def test_parameter_servers(given):
    job = to_dict(job_of(TensorFlow, node_count=2, **given))
    assert job["distribution"] == {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}


def test_the_parameters_of_the_script_are_its_arguments():
    data = FileDataset("/data").as_named_input("digits")
    job = job_of(
        script_params={"--data": data, "--lr": 0.1, "--verbose": ""}, compute_target="gpu", inputs=[data]
    )
    assert job.command == "python train.py --data ${{inputs.digits}} --lr 0.1 --verbose"
    assert (job.compute, list(job.inputs)) == ("gpu", ["digits"])


def test_what_an_estimator_does_not_do_is_told():
    job = job_of(
        pip_packages=["torch"], use_gpu=True, framework_version="1.3", source_directory_data_store="s"
    )
    assert job._warnings == [
        "pip_packages: not built; the Python that runs the job needs them",
        "source_directory_data_store: not used",
    ]
    with pytest.raises(SpecError, match="distributed_backend: 'smoke' is not known"):
        job_of(distributed_backend="smoke")
    with pytest.raises(SpecError, match="distributed_training cannot be of type 'int'"):
        job_of(distributed_training=3)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (DataLocation(dataset=FileDataset("azureml:digits:1")), "azureml:digits:1"),
        (DataLocation(dataset=Dataset(dataset_id=FileDataset("azureml:digits:1").id)), "azureml:digits:1"),
        (DataLocation(data_path=DataPath("store", "a/b/")), "azureml://datastores/store/paths/a/b"),
    ],
)
def test_the_data_of_a_run_configuration_is_an_input(location, path):
    config = RunConfiguration()
    config.data = {
        "digits": Data(location, mechanism="Download", environment_variable_name="DIGITS"),
        "more": FileDataset("/more").as_named_input("x").as_mount(),
    }
    job = to_command(ScriptRunConfig("src", "train.py", run_config=config))
    assert (job.inputs["digits"].path, job.inputs["digits"].mode) == (path, "download")
    assert job.inputs["more"].path == "/more"
    assert job.command == 'export DIGITS="${{inputs.digits}}"; python train.py'


@pytest.mark.parametrize(
    "data",
    [
        Data(),
        Data(DataLocation(), mechanism="fly"),
        Data(DataLocation(FileDataset("/d")), environment_variable_name="A=1;x"),
        "text",
    ],
)
def test_data_without_a_place_is_refused(data):
    config = RunConfiguration()
    config.data = {"digits": data}
    with pytest.raises(SpecError):
        to_command(ScriptRunConfig("src", "train.py", run_config=config))
