"""
v1's ``Environment``, as far as a job can say something with it.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.environment.environment
"""

from __future__ import annotations

import os
import re
from copy import deepcopy
from types import SimpleNamespace

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity
from drumline.spec.kinds.fields import Declared, OrEmpty, field
from drumline.spec.kinds.values import Anything
from drumline.spec.parts.environment import Environment as Today
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


# v1's list of packages.
#
# Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.conda_dependencies.condadependencies


_PYTHON = "3.8"
"""v1's own choice, for who states none."""

_NAME = "project_environment"
"""What v1 calls what it has made itself."""


class CondaDependencies:
    """A conda file as v1 builds it; ``content`` is what the file would hold."""

    def __init__(
        self,
        conda_dependencies_file_path: str | os.PathLike[str] | None = None,
        _underlying_structure: dict[str, Any] | None = None,
    ) -> None:
        if conda_dependencies_file_path is not None:
            self.content: dict[str, Any] = read_conda(conda_dependencies_file_path)
        elif _underlying_structure is not None:
            self.content = _underlying_structure
        else:
            self.content = {
                "name": _NAME,
                "dependencies": [f"python={_PYTHON}", {"pip": ["azureml-defaults"]}],
                "channels": ["anaconda", "conda-forge"],
            }

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: Iterable[str] | None = None,
        conda_packages: Iterable[str] | None = None,
        python_version: str = _PYTHON,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        made = CondaDependencies()
        made.set_python_version(python_version)
        if pip_packages is not None:
            made._pip()[:] = list(pip_packages)
        for package in conda_packages or ():
            made.add_conda_package(package)
        if pip_indexurl:
            made.set_pip_option(f"--index-url {pip_indexurl}")
        return made

    def add_conda_package(self, conda_package: str) -> None:
        self._dependencies().insert(-1 if self._has_pip() else len(self._dependencies()), conda_package)

    def add_pip_package(self, pip_package: str) -> None:
        self._pip().append(pip_package)

    def add_channel(self, channel: str) -> None:
        self.content.setdefault("channels", []).append(channel)

    def set_pip_option(self, pip_option: str) -> None:
        self._pip().insert(0, pip_option)

    def set_python_version(self, version: str) -> None:
        others = [package for package in self._dependencies() if not str(package).startswith("python=")]
        self._dependencies()[:] = [f"python={version}", *others]

    def remove_pip_package(self, pip_package: str) -> None:
        self._pip()[:] = [package for package in self._pip() if package != pip_package]

    @property
    def conda_packages(self) -> list[str]:
        return [one for one in self._dependencies() if isinstance(one, str)]

    @property
    def pip_packages(self) -> list[str]:
        return [one for one in (self._pip() if self._has_pip() else ()) if not one.startswith("-")]

    @property
    def conda_channels(self) -> list[str]:
        return list(self.content.get("channels", ()))

    def for_here(self) -> dict[str, Any] | None:
        """
        Return the content without what v1 adds for Azure's sake: a Python that nobody chose, and ``azureml-defaults``.

        None where nothing else is in it.
        """
        kept: list[Any] = []
        for one in self._dependencies():
            if isinstance(one, dict) and "pip" in one:
                lines = [line for line in one["pip"] or () if not re.match(r"azureml-defaults\b", str(line))]
                kept += [{"pip": lines}] if lines else []
            elif one != f"python={_PYTHON}" or self.content.get("name") != _NAME:
                kept.append(one)
        return {**self.content, "dependencies": kept} if kept else None

    def serialize_to_string(self) -> str:
        import yaml

        return str(yaml.safe_dump(self.content, sort_keys=False))

    def save_to_file(self, base_directory: str | os.PathLike[str], conda_file_path: str = "conda.yml") -> str:
        """Write the file, over what is there. Raises OSError."""
        path = os.path.join(base_directory, conda_file_path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.serialize_to_string())
        return conda_file_path

    def _dependencies(self) -> list[Any]:
        found = self.content.setdefault("dependencies", [])
        if not isinstance(found, list):
            raise SpecError("the conda file's dependencies are not a list")
        return found

    def _has_pip(self) -> bool:
        return any(isinstance(one, dict) and "pip" in one for one in self._dependencies())

    def _pip(self) -> list[str]:
        for one in self._dependencies():
            if isinstance(one, dict) and "pip" in one:
                one["pip"] = listed = list(one["pip"] or [])
                return listed
        added: list[str] = []
        self._dependencies().append({"pip": added})
        return added


def read_conda(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a conda file holds. Raises SpecError if it is missing or not a conda file."""
    values: dict[str, Any] = plain(read_yaml(os.fspath(path), os.fspath(path)))
    return values


DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04:latest"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu20.04:latest"


class DockerSection:
    """
    The docker section of an environment. ``enabled``, ``shared_volumes`` and ``gpu_support`` were Azure's own, and mean
    nothing here.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.enabled = False
        self.shared_volumes = True
        self.gpu_support: Any = None
        self.base_image: str | None = DEFAULT_CPU_IMAGE
        self.base_dockerfile: str | None = None
        self.base_image_registry: Any = Section()
        self.platform: Any = None
        self.arguments: list[str] = []
        self.shm_size: str | None = None
        for name, value in kwargs.items():
            setattr(self, name, value)


class PythonSection:
    """
    The Python section of an environment. ``user_managed_dependencies``: the image has all packages, and
    ``conda_dependencies`` are not used.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.user_managed_dependencies = False
        self.interpreter_path = "python"
        self.conda_dependencies_file: Any = None
        self.base_conda_environment: str | None = None
        self.conda_dependencies: CondaDependencies | None = CondaDependencies()
        for name, value in kwargs.items():
            setattr(self, name, value)


class Environment:
    """
    An environment of SDK v1. ``reference``: what stands for it in a job, where it is one that was registered or is
    Azure's own; empty: it is written out.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.version: str | None = None
        self.docker = DockerSection()
        self.python = PythonSection()
        self.environment_variables: dict[str, Any] = {}
        self.r = self.databricks = None
        self.spark = SimpleNamespace(precache_packages=True, packages=[], repositories=[])
        self.inferencing_stack_version: str | None = None
        self.reference = ""

    @staticmethod
    def from_conda_specification(name: str, file_path: str | os.PathLike[str]) -> Environment:
        """Read the conda file now. Raises SpecError if it is missing or not a conda file."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(_underlying_structure=read_conda(file_path))
        return made

    @staticmethod
    def from_pip_requirements(
        name: str, file_path: str | os.PathLike[str], pip_version: str | None = None
    ) -> Environment:
        """Read the requirements file now. Raises SpecError if it is missing."""
        packages = _requirements(file_path)
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies.create(pip_packages=packages)
        return made

    @staticmethod
    def from_docker_image(
        name: str,
        image: str,
        container_registry: Any = None,
        conda_specification: str | os.PathLike[str] | None = None,
        pip_requirements: str | os.PathLike[str] | None = None,
    ) -> Environment:
        made = _with_packages(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        return made

    @staticmethod
    def from_dockerfile(
        name: str,
        dockerfile: str | os.PathLike[str],
        conda_specification: str | os.PathLike[str] | None = None,
        pip_requirements: str | os.PathLike[str] | None = None,
    ) -> Environment:
        """Return the environment of a Dockerfile. ``dockerfile``: a path, or the text itself."""
        made = _with_packages(name, conda_specification, pip_requirements)
        text = os.fspath(dockerfile)
        if "\n" not in text and os.path.isfile(text):
            with open(text, encoding="utf-8", errors="replace") as file:
                text = file.read()
        made.docker.base_image, made.docker.base_dockerfile = None, text
        return made

    @staticmethod
    def from_existing_conda_environment(name: str, conda_environment_name: str) -> Environment:
        made = Environment(name)
        made.python.user_managed_dependencies = True
        made.python.base_conda_environment = conda_environment_name
        return made

    @staticmethod
    def get(workspace: Any, name: str, version: str | None = None) -> Environment:
        """
        Return one that was registered, or Azure's own by its name. Raises NotFoundError for neither.
        """
        environment: Environment = workspace._environment(name, version)
        return environment

    @staticmethod
    def list(workspace: Any) -> dict[str, Environment]:
        environments: dict[str, Environment] = workspace.environments
        return environments

    def register(self, workspace: Any) -> Environment:
        """Keep it in the workspace under its name, as a new version."""
        registered: Environment = workspace._register_environment(self)
        return registered

    def build(self, workspace: Any, image_build_compute: Any = None) -> Built:
        """Do nothing yet: the first job that runs in it builds it."""
        return Built()

    def clone(self, new_name: str) -> Environment:
        copied = deepcopy(self)
        copied.name, copied.version, copied.reference = new_name, None, ""
        return copied

    def __repr__(self) -> str:
        return f"Environment(name={self.name!r}, version={self.version!r})"


class Built:
    """A built environment, for scripts that expect azureml's ``ImageBuildDetails``."""

    status = "Succeeded"

    def wait_for_completion(self, show_output: bool = True) -> None:
        """Return at once."""


def is_azures(name: str) -> bool:
    """Return whether the name is one of Azure's own environments, whose names are the same in any case."""
    return name.lower().startswith("azureml-")


def curated_environment(name: str, version: str | None = None) -> Environment:
    """Return one of Azure's own environments."""
    made = Environment(name)
    made.reference = f"azureml:{name}:{version}" if version else f"azureml:{name}@latest"
    return made


def _with_packages(name: str, conda: Any, pip: Any) -> Environment:
    if conda is not None and pip is not None:
        raise SpecError("conda_specification and pip_requirements exclude each other", "give one of the two")
    if conda is not None:
        return Environment.from_conda_specification(name, conda)
    if pip is not None:
        return Environment.from_pip_requirements(name, pip)
    made = Environment(name)
    made.python.user_managed_dependencies = True
    return made


def _requirements(path: str | os.PathLike[str]) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {os.fspath(path)!r}: {reason}") from None
    return [line for line in lines if line and not line.startswith("#")]


def to_environment(given: Environment) -> tuple[Today | str | None, list[str]]:
    """Return today's environment, None for one that says nothing, and the warnings."""
    if given.reference:
        return given.reference, []
    warnings: list[str] = []
    packages = given.python.conda_dependencies
    interpreter = ""
    if given.python.user_managed_dependencies:
        packages = None
        interpreter = _interpreter(given.python.interpreter_path, warnings)
    content = None if packages is None else packages.for_here()
    if not given.name and not interpreter and content is None:
        return None, warnings
    if given.docker.base_dockerfile:
        warnings.append("environment.docker.base_dockerfile: not built")
    made = Today(
        name=given.name or None,
        image=given.docker.base_image or DEFAULT_CPU_IMAGE,
        conda_file=content,
        python=interpreter or None,
    )
    return made, warnings


def _interpreter(path: str, warnings: list[str]) -> str:
    """
    Return the interpreter of ``user_managed_dependencies``, if this machine has it; empty for the one on the PATH.
    """
    if not os.path.isabs(path):
        return ""
    if os.access(path, os.X_OK):
        return path
    warnings.append(f"environment.python.interpreter_path: there is no {path} on this machine")
    return ""


# The sections of v1's run configuration.


class MpiConfiguration(Declared):
    """
    A distribution by MPI. ``process_count_per_node`` is what its name says; there are ``node_count`` times as many in
    all.
    """

    process_count_per_node: int = field(Anything(), default=1, kw_only=False)
    node_count: int = field(Anything(), default=1, kw_only=False)


class PyTorchConfiguration(Entity):
    """
    A distribution by PyTorch. ``process_count`` is the TOTAL over all nodes; None: one a node.
    ``communication_backend``: ``Nccl`` or ``Gloo`` in any case; the script is who chooses it.
    """

    _fields = ("communication_backend", "process_count", "node_count")

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


class TensorflowConfiguration(Declared):
    """A worker a node; parameter servers share the workers' nodes."""

    worker_count: int = field(Anything(), default=1, kw_only=False)
    parameter_server_count: int = field(Anything(), default=1, kw_only=False)


class ParallelTaskConfiguration(Declared):
    """Refused when it is submitted."""

    max_retries_per_worker: int = field(Anything(), default=0, kw_only=False)
    worker_count_per_node: int = field(Anything(), default=1, kw_only=False)
    terminal_exit_codes: Any = field(Anything(), default=None, kw_only=False)


class DockerConfiguration(Declared):
    """There is no container: ``shm_size`` and ``arguments`` are answered with a warning."""

    use_docker: bool = field(Anything(), default=False, kw_only=False)
    shared_volumes: bool = field(Anything(), default=True, kw_only=False)
    arguments: OrEmpty[list[str]] = field(Anything(), factory=list, kw_only=False)
    shm_size: str | None = field(Anything(), default=None, kw_only=False)


class Section:
    """A part of a run configuration that takes whatever is set on it and means nothing here."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None
