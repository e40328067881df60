"""
v1's ``.runconfig`` files: YAML with keys in camel case.

Source: https://learn.microsoft.com/azure/machine-learning/v1/reference-azure-machine-learning-cli#runconfig
"""

from __future__ import annotations

import os
import re

from drumline.compat.run_configuration.environment import (
    CondaDependencies,
    DockerConfiguration,
    Environment,
    MpiConfiguration,
    PyTorchConfiguration,
    TensorflowConfiguration,
    read_conda,
)
from drumline.contract.errors import SpecError
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Flag, Integer, ListOf, MapOf, OneOf, Report, Text, TextOrList
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

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
