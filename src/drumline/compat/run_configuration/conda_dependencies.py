"""
v1's list of packages.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.conda_dependencies.condadependencies
"""

from __future__ import annotations

from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Any

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
        rest = [one for one in self._dependencies() if not str(one).startswith("python=")]
        self._dependencies()[:] = [f"python={version}", *rest]

    def remove_pip_package(self, pip_package: str) -> None:
        self._pip()[:] = [one for one in self._pip() if one != pip_package]

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
                lines = [line for line in one["pip"] or () if not _is_azures(line)]
                kept += [{"pip": lines}] if lines else []
            elif one != f"python={_PYTHON}" or self.content.get("name") != _NAME:
                kept.append(one)
        return {**self.content, "dependencies": kept} if kept else None

    def serialize_to_string(self) -> str:
        import yaml

        return str(yaml.safe_dump(self.content, sort_keys=False))

    def save_to_file(self, base_directory: str | os.PathLike[str], conda_file_path: str = "conda.yml") -> str:
        """Write the file, over what is there. Raises OSError."""
        import os

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


def _is_azures(line: object) -> bool:
    import re

    return bool(re.match(r"azureml-defaults\b", str(line)))


def read_conda(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a conda file holds. Raises SpecError if it is missing or not a conda file."""
    import os

    from drumline.spec.reading.files import read_yaml
    from drumline.spec.reading.tree import plain

    values: dict[str, Any] = plain(read_yaml(os.fspath(path), os.fspath(path)))
    return values
