"""
v1's description of how a script runs: framework, communicator, nodes and processes.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig
"""

from __future__ import annotations

from drumline.compat.run_configuration.environment import (
    DockerConfiguration,
    Environment,
    MpiConfiguration,
    ParallelTaskConfiguration,
    PyTorchConfiguration,
    Section,
    TensorflowConfiguration,
)
from drumline.compat.run_configuration.file import load_into, save
from drumline.contract.errors import SpecError
from drumline.spec.entity import whole
from drumline.spec.parts.io import Input

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any


class RunConfiguration:
    """
    The configuration of a run. ``framework`` and ``communicator`` say by which variables processes find each other;
    ``distribution_of`` has the table. ``target``: a compute or its name; None and ``local``: this machine.
    """

    def __init__(
        self,
        script: str | None = None,
        arguments: list[Any] | None = None,
        framework: str | None = None,
        communicator: str | None = None,
        conda_dependencies: Any = None,
        _history_enabled: Any = None,
        _path: Any = None,
        _name: str | None = None,
        command: Any = None,
    ) -> None:
        self.script = script
        self.arguments: list[Any] = list(arguments or [])
        self.command = command
        self.framework = framework or "Python"
        self.communicator = communicator or "None"
        self.target: Any = "local"
        self.node_count: Any = 1
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.docker: Any = DockerConfiguration()
        self.environment: Any = Environment("")
        self.environment_variables: dict[str, Any] = {}
        self.max_run_duration_seconds: Any = None
        self.data: dict[str, Any] = {}
        self.data_references: dict[str, Any] = {}
        self.output_data: dict[str, Any] = {}
        self.source_directory: str | None = None
        self.amlcompute, self.history, self.spark, self.hdi = Section(), Section(), Section(), Section()
        self._warnings: list[str] = []
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies

    @staticmethod
    def load(path: str | os.PathLike[str], name: str | None = None) -> RunConfiguration:
        """
        Load a ``.runconfig`` or YAML file, or ``.azureml/NAME.runconfig`` below the folder ``path``.

        Raises SpecError with every problem of the file.
        """
        made = RunConfiguration()
        load_into(made, path, name)
        return made

    def save(
        self, path: str | os.PathLike[str] | None = None, name: str | None = None, **kwargs: Any
    ) -> RunConfiguration:
        """Write it to ``path``, or to ``.azureml/NAME.runconfig`` below it where it is a folder. Raises OSError."""
        save(self, path, name)
        return self


def apply_distributed_job(config: RunConfiguration, job: Any) -> None:
    """Change the run configuration as ``ScriptRunConfig(distributed_job_config=...)`` does. Raises SpecError."""
    if isinstance(job, TensorflowConfiguration):
        config.framework, config.communicator = "TensorFlow", "ParameterServer"
        config.tensorflow, config.node_count = job, job.worker_count
    elif isinstance(job, MpiConfiguration):
        config.framework, config.communicator = "Python", "IntelMpi"
        config.mpi, config.node_count = job, job.node_count
    elif isinstance(job, PyTorchConfiguration):
        config.framework, config.communicator = "PyTorch", job.communication_backend
        config.pytorch, config.node_count = job, job.node_count
    elif isinstance(job, ParallelTaskConfiguration):
        raise SpecError(
            "distributed_job_config: ParallelTaskConfiguration is not supported",
            "MpiConfiguration(process_count_per_node=N) starts N processes on each node",
        )
    else:
        raise SpecError(
            f"distributed_job_config cannot be of type {type(job).__name__!r}",
            "give MpiConfiguration, PyTorchConfiguration or TensorflowConfiguration(...)",
        )


def distribution_of(config: RunConfiguration) -> tuple[dict[str, Any] | None, int]:
    """Return the distribution as a job file has it, and the number of nodes. Raises SpecError."""
    framework, communicator = str(config.framework).lower(), str(config.communicator).lower()
    if communicator == "parameterserver":
        workers = _count(config.tensorflow.worker_count, "worker_count")
        servers = _count(config.tensorflow.parameter_server_count, "parameter_server_count", least=0)
        return {"type": "tensorflow", "worker_count": workers, "parameter_server_count": servers}, workers
    nodes = _count(config.node_count, "node_count")
    if communicator in ("intelmpi", "openmpi", "mpi"):
        per_node = _count(config.mpi.process_count_per_node, "process_count_per_node")
        return {"type": "mpi", "process_count_per_instance": per_node}, nodes
    if communicator in ("nccl", "gloo"):
        return {"type": "pytorch", "process_count_per_instance": _per_node(config.pytorch, nodes)}, nodes
    if communicator != "none":
        raise SpecError(
            f"communicator: {config.communicator!r} is not known",
            "one of 'None', 'IntelMpi', 'OpenMpi', 'Nccl', 'Gloo', 'ParameterServer'",
        )
    if framework not in ("python", "pytorch", "tensorflow"):
        raise SpecError(
            f"framework: {config.framework!r} is not supported", "Python, PyTorch and TensorFlow are"
        )
    return None, nodes


def _per_node(pytorch: PyTorchConfiguration, nodes: int) -> int:
    if pytorch.process_count is None:
        return 1
    total = _count(pytorch.process_count, "process_count")
    if total % nodes:
        raise SpecError(
            f"PyTorchConfiguration: process_count={total} cannot be shared evenly by node_count={nodes}",
            "process_count is the total over all nodes: "
            f"process_count={max(1, total // nodes) * nodes} is {max(1, total // nodes)} on each",
        )
    return total // nodes


def _count(value: Any, name: str, *, least: int = 1) -> int:
    number: Any = whole(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise SpecError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return int(number)


# The data of v1's run configurations: ``run_config.data = {"digits": Data(DataLocation(...))}``.


_MODES = {"mount": "ro_mount", "download": "download", "direct": "ro_mount", "hdfs": "ro_mount"}


class DataPath:
    """A path in a datastore, by the datastore's name."""

    def __init__(
        self, datastore_name: Any = None, path_on_datastore: str | None = None, **kwargs: Any
    ) -> None:
        store = kwargs.get("datastore", datastore_name)
        self.datastore_name = getattr(store, "name", store)
        self.path_on_datastore = path_on_datastore
        self._type = store.path(path_on_datastore)._type if hasattr(store, "path") else "uri_folder"

    def _as_input(self) -> Input:
        path, kind = _place(DataLocation(data_path=self))
        return Input(type=kind, path=path)


class DataPathComputeBinding:
    """How a step reads a DataPath that is a pipeline's parameter: ``mount`` or ``download``."""

    def __init__(
        self, mode: str = "mount", path_on_compute: str | None = None, overwrite: bool = False
    ) -> None:
        self.mode = mode


class DataLocation:
    """The location of data. ``dataset``: a dataset, or ``Dataset(dataset_id=dataset.id)``; else ``data_path``."""

    def __init__(self, dataset: Any = None, data_path: DataPath | None = None, **kwargs: Any) -> None:
        self.dataset = dataset
        self.data_path = data_path


class Data:
    """
    Data that a job reads. ``mechanism``: ``mount``, ``download`` or ``direct``. Its path is in
    ``environment_variable_name``, as well as in ``AZURE_ML_INPUT_<name>``.
    """

    def __init__(
        self,
        data_location: DataLocation | None = None,
        create_output_directories: bool = False,
        mechanism: str | None = None,
        environment_variable_name: str | None = None,
        path_on_compute: str | None = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> None:
        self.data_location = data_location
        self.mechanism = mechanism
        self.environment_variable_name = environment_variable_name
        self.path_on_compute = path_on_compute

    def _as_input(self) -> Input:
        """Return the data as an input. Raises SpecError."""
        word = str(self.mechanism or "mount").lower()
        if word not in _MODES:
            raise SpecError(f"mechanism: {self.mechanism!r} is not supported", "'mount' or 'download'")
        path, kind = _place(self.data_location)
        return Input(type=kind, path=path, mode=_MODES[word])


def _place(location: Any) -> tuple[str, str]:
    """Return path and type of a location. Raises SpecError."""
    dataset, inside = getattr(location, "dataset", None), getattr(location, "data_path", None)
    path = getattr(dataset, "path", None) or getattr(dataset, "dataset_id", None)
    if path:
        return str(path), str(getattr(dataset, "type", None) or "uri_folder")
    if inside is not None and inside.datastore_name:
        where = str(inside.path_on_datastore or "").strip("/")
        return f"azureml://datastores/{inside.datastore_name}/paths/{where}", inside._type
    raise SpecError(
        "data has no location", "Data(data_location=DataLocation(dataset=dataset), mechanism='mount')"
    )
