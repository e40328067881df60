"""
v1's description of how a script runs: framework, communicator, nodes and processes.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig
"""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any


class MpiConfiguration(Entity):
    """``process_count_per_node`` is what its name says; there are ``node_count`` times as many in all."""

    _fields = ("process_count_per_node", "node_count")
    _whole = _fields

    def __init__(self, process_count_per_node: int = 1, node_count: int = 1) -> None:
        self.process_count_per_node = process_count_per_node
        self.node_count = node_count


class PyTorchConfiguration(Entity):
    """
    ``process_count`` is the TOTAL over all nodes; None: one a node. ``communication_backend``: ``Nccl`` or ``Gloo``
    in any case; the script is who chooses it.
    """

    _fields = ("communication_backend", "process_count", "node_count")
    _whole = ("process_count", "node_count")

    def __init__(
        self, communication_backend: str = "Nccl", process_count: int | None = None, node_count: int = 1
    ) -> None:
        if str(communication_backend).lower() not in ("nccl", "gloo"):
            raise SpecError(
                f"{communication_backend!r} is not a supported backend",
                "'communication_backend' must be 'Nccl' or 'Gloo'",
            )
        self.communication_backend = str(communication_backend).lower()
        self.process_count = process_count
        self.node_count = node_count


class TensorflowConfiguration(Entity):
    """A worker a node; parameter servers share the workers' nodes."""

    _fields = ("worker_count", "parameter_server_count")
    _whole = _fields

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 1) -> None:
        self.worker_count = worker_count
        self.parameter_server_count = parameter_server_count


class ParallelTaskConfiguration(Entity):
    """Refused when it is submitted."""

    _fields = ("max_retries_per_worker", "worker_count_per_node", "terminal_exit_codes")

    def __init__(
        self,
        max_retries_per_worker: int = 0,
        worker_count_per_node: int = 1,
        terminal_exit_codes: Any = None,
    ) -> None:
        self.max_retries_per_worker = max_retries_per_worker
        self.worker_count_per_node = worker_count_per_node
        self.terminal_exit_codes = terminal_exit_codes


class DockerConfiguration(Entity):
    """There is no container: ``shm_size`` and ``arguments`` are answered with a warning."""

    _fields = ("use_docker", "shared_volumes", "arguments", "shm_size")

    def __init__(
        self,
        use_docker: bool = False,
        shared_volumes: bool = True,
        arguments: list[str] | None = None,
        shm_size: str | None = None,
    ) -> None:
        self.use_docker = use_docker
        self.shared_volumes = shared_volumes
        self.arguments = list(arguments or [])
        self.shm_size = shm_size


class Section:
    """A part of a run configuration that takes whatever is set on it and means nothing here."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class RunConfiguration:
    """
    ``framework`` and ``communicator`` say by which variables processes find each other; ``distribution_of`` has the
    table. ``target``: a compute or its name; None and ``local``: this machine.
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
        from drumline.compat.environment import Environment

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
        A ``.runconfig`` or YAML file, or ``.azureml/NAME.runconfig`` below the folder ``path``.

        Raises SpecError with every problem of the file.
        """
        from drumline.compat.run_configuration_file import load

        return load(path, name)

    def save(
        self, path: str | os.PathLike[str] | None = None, name: str | None = None, **kwargs: Any
    ) -> RunConfiguration:
        """To ``path``, or to ``.azureml/NAME.runconfig`` below it where it is a folder. Raises OSError."""
        from drumline.compat.run_configuration_file import save

        save(self, path, name)
        return self


def apply(config: RunConfiguration, job: Any) -> None:
    """
    What ``ScriptRunConfig(distributed_job_config=...)`` does to its run configuration. Raises SpecError.
    """
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
    """The distribution as a job file has it, and the number of nodes. Raises SpecError."""
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
