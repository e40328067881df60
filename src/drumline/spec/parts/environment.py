"""The environment in which a job's programs run."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, Written, plain, text_path
from drumline.spec.foreign_parts import ours
from drumline.spec.paths import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.paths import HasBasePath
    from drumline.spec.reading.tree import Mapping


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

    _hidden = ("properties",)
    _keeps_empty = True

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
    """Return the keys of YAML, local paths in full, without what is not set; JSON can hold it."""
    values: dict[str, Any] = plain(environment)
    pin_paths(values, environment)
    return {key: value for key, value in values.items() if value != {}}


def pin_paths(values: dict[str, Any], owner: HasBasePath) -> None:
    """Write the paths of an environment as plain data in full; they resolve against the folder of ``owner``."""
    if isinstance(values.get("conda_file"), str):
        values["conda_file"] = resolve(owner, values["conda_file"])
    build = values.get("build") or {}
    if isinstance(build.get("path"), str):
        build["path"] = resolve(owner, build["path"])


def base_of(environment: Any, owner: HasBasePath) -> HasBasePath:
    """Return what the paths of an environment resolve against: its own folder if it has one, else its owner's."""
    return environment if getattr(environment, "_base_path", "") else owner


def settle_environment(
    values: dict[str, Any], environment: Any, owner: Any, *, absolute: bool, base: HasBasePath | None = None
) -> None:
    """
    Write the environment of ``owner`` in ``values``, which are plain data, as a file has it: text with its scheme, and
    paths in full if ``absolute``, or if they are not relative to the folder of the owner.

    base: what paths resolve against, instead of the environment's own folder.
    """
    if isinstance(environment, Environment):
        if absolute or (environment._base_path and environment._base_path != owner._base_path):
            pin_paths(values["environment"], base or environment)
    elif isinstance(environment, str):
        has_scheme = environment.startswith(("azureml:", "file:"))
        values["environment"] = environment if has_scheme else f"azureml:{environment}"


def from_tree(root: Mapping, report: Report) -> Environment:
    """Return the named environment that a file holds. Raises SpecError with every problem of the file."""
    from drumline.spec.schema.environment import NAMED, check_recipe

    values = NAMED.check(root, "", report)
    check_recipe(values, root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    return Environment(**values, base_path=report.base_path)


def to_environment(value: Any) -> Environment | str | None:
    """Return an environment, or the text that refers to one. Raises SpecError when it is neither."""
    value = ours(value)
    if value is None or isinstance(value, (str, Environment)):
        return value
    if isinstance(value, dict):
        return Environment(**value)
    kind = type(value).__name__
    raise SpecError(f"environment cannot be of type {kind!r}", "give 'name@latest' or Environment(...)")
