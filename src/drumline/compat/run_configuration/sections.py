"""
The sections of v1's run configuration.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig
"""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MpiConfiguration(Entity):
    """
    A distribution by MPI. ``process_count_per_node`` is what its name says; there are ``node_count`` times as many in
    all.
    """

    _fields = ("process_count_per_node", "node_count")
    _whole = _fields

    def __init__(self, process_count_per_node: int = 1, node_count: int = 1) -> None:
        self.process_count_per_node = process_count_per_node
        self.node_count = node_count


class PyTorchConfiguration(Entity):
    """
    A distribution by PyTorch. ``process_count`` is the TOTAL over all nodes; None: one a node.
    ``communication_backend``: ``Nccl`` or ``Gloo`` in any case; the script is who chooses it.
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
