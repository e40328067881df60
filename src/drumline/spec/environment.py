"""What a job's programs run in."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, Written, text_path
from drumline.spec.foreign.parts import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Mapping
    from drumline.spec.schema.report import Report


class BuildContext(Entity):
    """A folder with a Dockerfile."""

    _fields = ("path", "dockerfile_path")

    def __init__(self, *, dockerfile_path: str | None = None, path: Any = None) -> None:
        self.dockerfile_path = dockerfile_path
        self.path = text_path(path)


class Environment(Written):
    """
    An image or a build context, with conda packages on top of an image; or, which is ours, ``python``: the absolute
    path of an interpreter that the nodes have already, and that takes the place of the image.

    ``conda_file`` is a path as written, or the content; a relative path resolves against
    ``base_path``. ``id``, ``creation_context`` and ``latest_version`` are set by whoever stores the environment.
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
        "python",
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
        self.build = BuildContext(**build) if isinstance(build, dict) else ours(build)
        self.conda_file = text_path(conda_file)
        self.tags = tags
        self.properties = properties
        self.datastore = datastore
        self.inference_config = kwargs.get("inference_config")
        self.os_type = kwargs.get("os_type")
        self.auto_delete_setting = kwargs.get("auto_delete_setting")
        self.python = text_path(kwargs.get("python"))
        self.id: str | None = None
        self.creation_context: Any = None
        self.latest_version: str | None = None
        self._base_path = text_path(kwargs.get("_base_path") or kwargs.get("base_path") or "")

    @property
    def base_path(self) -> str:
        return self._base_path or os.getcwd()

    def _file(self) -> dict[str, Any]:
        return to_dict(self)


def to_dict(environment: Environment) -> dict[str, Any]:
    """With the keys of YAML, local paths in full, without what is not set; JSON can hold it."""
    from drumline.spec.dump import pin_environment, plain

    values: dict[str, Any] = plain(environment)
    pin_environment(values, environment, always=True)
    return {key: value for key, value in values.items() if value != {}}


def from_tree(root: Mapping, report: Report) -> Environment:
    """One with a name, as its file has it. Raises SpecError with every problem of the file."""
    from drumline.spec.schema.environment import NAMED, check_recipe

    values = NAMED.check(root, "", report)
    check_recipe(values, root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    return Environment(**values, base_path=report.base_path)


def to_environment(value: Any) -> Environment | str | None:
    """An environment, or the text that refers to one. Raises SpecError when it is neither."""
    value = ours(value)
    if value is None or isinstance(value, (str, Environment)):
        return value
    if isinstance(value, dict):
        return Environment(**value)
    kind = type(value).__name__
    raise SpecError(f"environment cannot be of type {kind!r}", "give 'name@latest' or Environment(...)")
