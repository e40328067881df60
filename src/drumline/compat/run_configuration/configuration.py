"""
v1's description of how a script runs: framework, communicator, nodes and processes; and its file, ``.runconfig``, which
is YAML with keys in camel case.

Sources: https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig,
https://learn.microsoft.com/azure/machine-learning/v1/reference-azure-machine-learning-cli#runconfig
"""

from __future__ import annotations

import os
import re

from drumline.compat.run_configuration.environment import (
    CondaDependencies,
    DockerConfiguration,
    Environment,
    MpiConfiguration,
    ParallelTaskConfiguration,
    PyTorchConfiguration,
    Section,
    TensorflowConfiguration,
    read_conda,
)
from drumline.contract.errors import SpecError
from drumline.spec.entity import whole
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Flag, Integer, ListOf, MapOf, OneOf, Report, Text, TextOrList
from drumline.spec.parts.io import Input
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
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


_TEXT, _WHOLE, _FLAG = Text(nullable=True), Integer(nullable=True), Flag(nullable=True)
_ANY = Anything()

_PYTHON = {
    "userManagedDependencies": _FLAG,
    "interpreterPath": _TEXT,
    "condaDependenciesFile": _TEXT,
    "condaDependencies": MapOf(_ANY, nullable=True),
    "baseCondaEnvironment": _TEXT,
}
_DOCKER = {
    "enabled": _FLAG,
    "useDocker": _FLAG,
    "sharedVolumes": _FLAG,
    "baseImage": _TEXT,
    "baseDockerfile": _TEXT,
    "shmSize": _TEXT,
    "arguments": ListOf(_ANY, nullable=True),
}


def _section(noun: str, fields: dict[str, Any]) -> Record:
    """Return the table of a section. Azure writes all its keys, most of them empty: unknown ones are left out."""
    return Record(noun, fields, unknown="drop", nullable=True)


_FIELDS: dict[str, Any] = {
    "script": _TEXT,
    "command": TextOrList(nullable=True),
    "arguments": ListOf(_ANY, nullable=True),
    "target": _TEXT,
    "framework": OneOf("python", "pytorch", "tensorflow", nullable=True),
    "communicator": OneOf(
        "none", "intelmpi", "openmpi", "mpi", "nccl", "gloo", "parameterserver", nullable=True
    ),
    "nodeCount": _WHOLE,
    "maxRunDurationSeconds": _WHOLE,
    "environmentVariables": MapOf(_ANY, nullable=True),
    "mpi": _section("mpi", {"processCountPerNode": _WHOLE, "nodeCount": _WHOLE}),
    "tensorflow": _section("tensorflow", {"workerCount": _WHOLE, "parameterServerCount": _WHOLE}),
    "pytorch": _section(
        "pytorch", {"communicationBackend": _TEXT, "processCount": _WHOLE, "nodeCount": _WHOLE}
    ),
    "environment": _section(
        "environment",
        {
            "name": _TEXT,
            "version": _ANY,
            "environmentVariables": MapOf(_ANY, nullable=True),
            "python": _section("python", _PYTHON),
            "docker": _section("docker", _DOCKER),
        },
    ),
    "docker": _section("docker", _DOCKER),
}
_FIELDS["pyTorch"] = _FIELDS["pytorch"]
_TABLE = Record("the run configuration", _FIELDS, unknown="drop")
_PLAIN_FIELDS = (
    "target", "framework", "communicator", "node_count", "max_run_duration_seconds", "environment_variables",
)  # fmt: skip
"""Fields of a run configuration that are values of the file as they are."""

_SAYS_NOTHING = frozenset(
    ("history", "spark", "hdi", "telemetryValues", "amlcompute", "amlCompute", "containerInstance", "dataReferences",
     "data", "datacaches", "outputData", "sourceDirectoryDataStore", "sourceDirectory", "tags", "properties",
     "parallelTask", "batchAi", "aisuperComputer", "kubernetesCompute", "jobName", "priority", "credentialPassthrough",
     "identity", "applicationEndpoints", "cmk8sCompute", "commandReturnCodeConfig", "globalJobDispatcher", "version",
     "autoPrepareEnvironment", "prepareEnvironment", "useAbsolutePath", "experimentName", "paralleltask")
)  # fmt: skip
"""Keys that Azure's own writing has in every file."""
_DATA = ("dataReferences", "data", "outputData")
"""Of those, the ones that are missed where they do say something."""


def load_into(config: Any, path: str | os.PathLike[str], name: str | None) -> None:
    """
    Set what the file says on a new ``RunConfiguration``.

    Raises SpecError with every problem of the file.
    """
    place = _find(os.fspath(path), name)
    root = read_yaml(place, place)
    report = Report(os.path.dirname(os.path.abspath(place)))
    values: dict[str, Any] = _TABLE.check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    config.script, config.command = values.get("script"), values.get("command")
    config.arguments = list(values.get("arguments") or [])
    config._warnings = _unknown(root)
    _fill(config, values)
    _environment(config, values.get("environment") or {}, os.path.dirname(os.path.abspath(place)))


def _fill(config: Any, values: dict[str, Any]) -> None:
    for key, value in _convert_keys(values).items():
        if key in _PLAIN_FIELDS:
            setattr(config, key, value)
    config.mpi = MpiConfiguration(**_convert_keys(values.get("mpi")))
    config.tensorflow = TensorflowConfiguration(**_convert_keys(values.get("tensorflow")))
    config.pytorch = PyTorchConfiguration(**_convert_keys(values.get("pytorch") or values.get("pyTorch")))
    docker = _convert_keys(values.get("docker"))
    config.docker = DockerConfiguration(
        **{key: docker[key] for key in DockerConfiguration._fields & docker.keys()}
    )


def _environment(config: Any, values: dict[str, Any], folder: str) -> None:
    made = Environment(values.get("name") or "")
    made.version = None if values.get("version") is None else str(values["version"])
    made.environment_variables = dict(values.get("environmentVariables") or {})
    python = _convert_keys(values.get("python"))
    content, file = python.pop("conda_dependencies", None), python.get("conda_dependencies_file")
    for key, value in python.items():
        setattr(made.python, key, value)
    for key, value in _convert_keys(values.get("docker")).items():
        setattr(made.docker, key, value)
    if content is not None:
        made.python.conda_dependencies = CondaDependencies(_underlying_structure=content)
    elif file:
        structure = read_conda(os.path.join(folder, file))
        made.python.conda_dependencies = CondaDependencies(_underlying_structure=structure)
    config.environment = made


def _convert_keys(values: dict[str, Any] | None) -> dict[str, Any]:
    """Return what is set under Python's names of its keys."""
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): value
        for key, value in (values or {}).items()
        if value is not None
    }


def _camel_keys(source: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return attributes under the keys of the file, as YAML has them: of any class, and without anchors."""
    values = {
        re.sub(r"_([a-z])", lambda after: after[1].upper(), name): getattr(source, name) for name in names
    }
    return {
        key: dict(value)
        if hasattr(value, "keys")
        else list(value)
        if isinstance(value, (list, tuple))
        else value
        for key, value in values.items()
    }


def _unknown(root: Mapping) -> list[str]:
    known = {*_FIELDS, *_SAYS_NOTHING}
    found = []
    for key, at, value in root:
        if key not in known:
            what = f"unknown key {key!r}, and ignored"
        elif key in _DATA and isinstance(value, Mapping) and any(True for _ in value):
            what = f"{key}: not used; the arguments of ScriptRunConfig(...) take data"
        else:
            continue
        if at.source is not None:
            found.append(f"{at.source.name}:{at.line}:{at.column}: {what}")
    return found


def _find(path: str, name: str | None) -> str:
    if not os.path.isdir(path):
        return path
    if name:
        for folder in (".azureml", "aml_config", "."):
            place = os.path.normpath(os.path.join(path, folder, f"{name}.runconfig"))
            if os.path.isfile(place):
                return place
    raise SpecError(f"there is no {name or 'NAME'}.runconfig in {path!r} or its .azureml")


def save(config: Any, path: str | os.PathLike[str] | None, name: str | None) -> None:
    """Write the file, over what is there. Raises OSError."""
    import yaml

    place = os.fspath(path) if path is not None else "."
    if os.path.isdir(place):
        place = os.path.join(place, ".azureml", f"{name or 'local'}.runconfig")
        os.makedirs(os.path.dirname(place), exist_ok=True)
    text = yaml.safe_dump(_values(config), sort_keys=False, allow_unicode=True)
    with open(place, "w", encoding="utf-8") as file:
        file.write(text)


def _values(config: Any) -> dict[str, Any]:
    environment = config.environment
    packages = environment.python.conda_dependencies
    values = {
        "script": config.script,
        "command": config.command,
        "arguments": [value if isinstance(value, (int, float)) else str(value) for value in config.arguments],
        **_camel_keys(config, _PLAIN_FIELDS),
        "environment": {
            "name": environment.name or None,
            **_camel_keys(environment, ("version", "environment_variables")),
            "python": {
                **_camel_keys(environment.python, ("user_managed_dependencies", "interpreter_path")),
                "condaDependencies": packages.content if packages else None,
            },
            "docker": _camel_keys(
                environment.docker, ("base_image", "base_dockerfile", "shm_size", "arguments")
            ),
        },
        **{
            name: section and _camel_keys(section, section._fields)
            for name in ("mpi", "tensorflow", "pytorch", "docker")
            for section in (getattr(config, name),)
        },
    }
    if not isinstance(config.target, str):
        values["target"] = getattr(config.target, "name", "local")
    return values
