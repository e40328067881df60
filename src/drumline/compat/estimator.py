"""
v1's estimators, which ScriptRunConfig took the place of.

Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.dnn
"""

from __future__ import annotations

from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.sections import (
    MpiConfiguration,
    PyTorchConfiguration,
    TensorflowConfiguration,
)
from drumline.compat.script_run_config import NO_LIMIT_S, ScriptRunConfig, refuse_unknown
from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PACKAGES = (
    "conda_packages", "pip_packages", "conda_dependencies_file", "conda_dependencies_file_path",
    "pip_requirements_file", "pip_requirements_file_path",
)  # fmt: skip
_SAYS_NOTHING = ("use_gpu", "use_docker", "user_managed", "framework_version", "vm_size", "vm_priority")
UNUSED = (
    *_PACKAGES, *_SAYS_NOTHING, "custom_docker_base_image", "image_registry_details",
    "source_directory_data_store", "resume_from",
)  # fmt: skip
"""Keywords that azureml's estimators know, and that change nothing here."""


class Mpi(MpiConfiguration):
    """The older name of MpiConfiguration, without the number of nodes."""

    def __init__(self, process_count_per_node: int = 1) -> None:
        super().__init__(process_count_per_node)


class ParameterServer(TensorflowConfiguration):
    """The older name of TensorflowConfiguration."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 1) -> None:
        super().__init__(worker_count, parameter_server_count)


class Gloo:
    """One process a node, which find each other by PyTorch's variables."""


class Nccl(Gloo):
    """A distribution with NCCL, otherwise as Gloo."""


class Estimator(ScriptRunConfig):
    """
    A script to train with. ``entry_script`` in ``source_directory``, with ``script_params`` as its arguments: a value
    of ``''`` is a flag.

    ``distributed_training``: MpiConfiguration(), Gloo(), Nccl(), TensorflowConfiguration() or their older names;
    ``distributed_backend`` is the word for it. Raises SpecError for a keyword that azureml does not know.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        source_directory: Any,
        *,
        compute_target: Any = None,
        entry_script: str | None = None,
        script_params: dict[str, Any] | None = None,
        node_count: int = 1,
        process_count_per_node: int = 1,
        distributed_backend: str | None = None,
        distributed_training: Any = None,
        environment_variables: dict[str, Any] | None = None,
        environment_definition: Any = None,
        custom_docker_image: str | None = None,
        inputs: list[Any] | None = None,
        shm_size: str | None = None,
        max_run_duration_seconds: Any = NO_LIMIT_S,
        worker_count: int = 1,
        parameter_server_count: int = 1,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, type(self), UNUSED)
        config = RunConfiguration()
        if environment_definition is not None:
            config.environment = environment_definition
        if custom_docker_image:
            config.environment.docker.base_image = custom_docker_image
        config.environment_variables = dict(environment_variables or {})
        config.docker.shm_size = shm_size
        config.node_count = node_count
        for one in inputs or ():
            config.data_references[str(getattr(one, "name", len(config.data_references)))] = one
        config._warnings += _list_unused(kwargs)
        workers = TensorflowConfiguration(worker_count, parameter_server_count)
        super().__init__(
            source_directory,
            entry_script,
            _arguments(script_params or {}),
            config,
            compute_target=compute_target,
            distributed_job_config=_distribution(
                distributed_training or distributed_backend, node_count, process_count_per_node, workers
            ),
            max_run_duration_seconds=max_run_duration_seconds,
        )


class PyTorch(Estimator):
    """
    An estimator of PyTorch's. ``framework_version`` has no effect: PyTorch is that of the Python that runs the job.
    """


class TensorFlow(Estimator):
    """
    An estimator of TensorFlow's. ``framework_version`` has no effect: TensorFlow is that of the Python that runs the
    job.
    """


class Chainer(Estimator):
    """An estimator of Chainer's, as PyTorch."""


class SKLearn(Estimator):
    """An estimator of scikit-learn's, as PyTorch."""


def _arguments(params: dict[str, Any]) -> list[Any]:
    """
    Return the words of a command line for parameters.

    >>> _arguments({"--lr": 0.1, "--verbose": ""})
    ['--lr', 0.1, '--verbose']
    """
    return [word for pair in params.items() for word in pair if not (isinstance(word, str) and not word)]


def _distribution(given: Any, nodes: int, per_node: int, workers: TensorflowConfiguration) -> Any:
    """Return the distribution for ScriptRunConfig. Raises SpecError."""
    word = str(given).lower() if isinstance(given, str) else ""
    if isinstance(given, MpiConfiguration) or word in ("mpi", "horovod"):
        count = given.process_count_per_node if isinstance(given, MpiConfiguration) else per_node
        return MpiConfiguration(count if count != 1 else per_node, nodes)
    if isinstance(given, (Gloo, PyTorchConfiguration)) or word in ("gloo", "nccl"):
        count = getattr(given, "process_count", None) or nodes * per_node
        return PyTorchConfiguration(word or "Nccl", count, nodes)
    if isinstance(given, TensorflowConfiguration):
        return given
    if word == "ps":
        return workers
    if given is None:
        return None
    if not isinstance(given, str):
        raise SpecError(
            f"distributed_training cannot be of type {type(given).__name__!r}", "give MpiConfiguration()"
        )
    raise SpecError(f"distributed_backend: {given!r} is not known", "one of 'mpi', 'gloo', 'nccl', 'ps'")


def _list_unused(given: dict[str, Any]) -> list[str]:
    said = []
    for key, value in given.items():
        if value in (None, False, [], "") or key in _SAYS_NOTHING:
            continue
        what = "not built; the Python that runs the job needs them" if key in _PACKAGES else "not used"
        said.append(f"{key}: {what}")
    return said
