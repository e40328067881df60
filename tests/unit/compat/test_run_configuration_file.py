"""v1's .runconfig files."""

from collections import OrderedDict

import pytest
import yaml

from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.environment import DockerConfiguration, PyTorchConfiguration
from drumline.compat.script_run_config import ScriptRunConfig, to_command
from drumline.contract.errors import SpecError

# As azureml writes one, shortened.
WRITTEN = """
script: train.py
arguments: [--lr, 0.1]
target: gpu-cluster
framework: PyTorch
communicator: Nccl
maxRunDurationSeconds: 3600
nodeCount: 2
history: {outputCollection: true, directoriesToWatch: [logs]}
spark: {configuration: {spark.app.name: x}}
environment:
  name: mine
  version:
  environmentVariables: {A: "1"}
  python:
    userManagedDependencies: false
    interpreterPath: python
    condaDependenciesFile: conda.yml
    baseCondaEnvironment:
  docker: {enabled: true, baseImage: image, shmSize: 2g, arguments: []}
  spark: {precachePackages: true}
mpi: {processCountPerNode: 1}
pytorch: {communicationBackend: nccl, processCount: 8}
tensorflow: {workerCount: 1, parameterServerCount: 1}
nodeCuont: 3
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / ".azureml").mkdir()
    (tmp_path / ".azureml" / "gpu.runconfig").write_text(WRITTEN)
    (tmp_path / ".azureml" / "conda.yml").write_text("dependencies: [python=3.11, pip: [torch]]\n")
    return tmp_path


def test_a_file_is_the_same_as_its_objects(written):
    config = RunConfiguration.load(written, "gpu")
    job = to_command(ScriptRunConfig("src", run_config=config))
    assert job.command == "python train.py --lr 0.1"
    assert (job.compute, job.limits.timeout, job.resources.instance_count) == ("gpu-cluster", 3600, 2)
    assert (job.distribution.type, job.distribution.process_count_per_instance) == ("pytorch", 4)
    assert job.environment.conda_file == {"dependencies": ["python=3.11", {"pip": ["torch"]}]}
    assert job.environment_variables == {"A": "1"}
    (warning,) = (one for one in job._warnings if "nodeCuont" in one)
    assert warning.endswith("gpu.runconfig:25:1: unknown key 'nodeCuont', and ignored")


def test_what_is_saved_is_read_back(tmp_path):
    config = RunConfiguration("train.py", ["a b", 3], framework="PyTorch", communicator="gloo")
    config.node_count, config.pytorch = 2, PyTorchConfiguration("Gloo", process_count=4, node_count=2)
    config.docker = DockerConfiguration(shm_size="4g")
    config.environment.name = "mine"
    config.save(tmp_path, "one")
    again = RunConfiguration.load(tmp_path, "one")
    jobs = [str(to_command(ScriptRunConfig(".", run_config=each))) for each in (config, again)]
    assert jobs[0] == jobs[1]
    assert "shm_size: 4g" in jobs[0]
    assert again._warnings == []


def test_every_mistake_is_told_with_its_place(tmp_path):
    file = tmp_path / "bad.yml"
    file.write_text("nodeCount: two\nframework: Caffe\nmpi: 3\n")
    with pytest.raises(SpecError) as error:
        RunConfiguration.load(file)
    places = [(problem.line, problem.column, problem.path) for problem in error.value.problems]
    assert places == [(1, 12, "nodeCount"), (2, 12, "framework"), (3, 6, "mpi")]


@pytest.mark.parametrize("name", [None, "other"])
def test_a_file_that_is_not_there(written, name):
    with pytest.raises(SpecError, match=r"there is no \w+\.runconfig in"):
        RunConfiguration.load(written, name)


def test_data_in_the_file_is_missed(tmp_path):
    file = tmp_path / "old.runconfig"
    file.write_text("script: a.py\ndata: {}\ndataReferences:\n  images: {mode: mount}\n")
    (warning,) = RunConfiguration.load(file)._warnings
    assert "old.runconfig:3:1: dataReferences: not used" in warning


def test_values_of_any_class_are_saved_and_what_cannot_be_leaves_the_file(tmp_path):
    path = tmp_path / "one.runconfig"
    config = RunConfiguration()
    config.environment_variables = config.environment.environment_variables = OrderedDict(A="1")
    config.save(path)
    assert "&" not in path.read_text()
    assert RunConfiguration.load(path).environment_variables == {"A": "1"}
    config.script = object()
    with pytest.raises(yaml.YAMLError):
        config.save(path)
    assert RunConfiguration.load(path).environment_variables == {"A": "1"}
