"""What a job's programs run in."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, text_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BuildContext(Entity):
    """A folder with a Dockerfile."""

    _fields = ("path", "dockerfile_path")

    def __init__(self, *, dockerfile_path: str | None = None, path: Any = None) -> None:
        self.dockerfile_path = dockerfile_path
        self.path = text_path(path)


class Environment(Entity):
    """
    An image or a build context, with conda packages on top of an image.

    ``conda_file`` is a path as written, or the content; a relative path resolves against
    ``base_path``.
    """

    _fields = (
        "name",
        "version",
        "description",
        "image",
        "build",
        "conda_file",
        "tags",
        "properties",
        "datastore",
        "inference_config",
        "os_type",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        image: str | None = None,
        build: BuildContext | dict[str, Any] | None = None,
        conda_file: Any = None,
        tags: dict[str, str] | None = None,
        properties: dict[str, Any] | None = None,
        datastore: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.version = None if version is None else str(version)
        self.description = description
        self.image = image
        self.build = BuildContext(**build) if isinstance(build, dict) else build
        self.conda_file = text_path(conda_file)
        self.tags = tags
        self.properties = properties
        self.datastore = datastore
        self.inference_config = kwargs.get("inference_config")
        self.os_type = kwargs.get("os_type")
        self._base_path = text_path(kwargs.get("_base_path") or kwargs.get("base_path") or "")

    @property
    def base_path(self) -> str:
        return self._base_path or os.getcwd()


def to_environment(value: Any) -> Environment | str | None:
    """An environment, or the text that refers to one. Raises SpecError when it is neither."""
    if value is None or isinstance(value, (str, Environment)):
        return value
    if isinstance(value, dict):
        return Environment(**value)
    kind = type(value).__name__
    raise SpecError(f"environment cannot be of type {kind!r}", "give 'name@latest' or Environment(...)")
