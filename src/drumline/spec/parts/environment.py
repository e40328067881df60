"""The environment in which a job's programs run: inline, by reference, or in a file of its own."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain, text_path
from drumline.spec.foreign_parts import ours
from drumline.spec.kinds.fields import Any, Declared, Located, MadeOf, field
from drumline.spec.kinds.locations import BuildPath, check_file, exists
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import (
    JSON_REFERENCE,
    Anything,
    Integer,
    Kind,
    MapOf,
    OneOf,
    PathText,
    Text,
    VersionText,
    join,
    quote_node,
)
from drumline.spec.paths import resolve
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.paths import HasBasePath
    from drumline.spec.reading.source import Node

_TEXT = Text()


class CondaFile(Kind):
    """The path of a conda environment file, which must be readable YAML, or its content."""

    word = "a path or a mapping of conda dependencies"
    json_types = ("string", "object")

    def adopt(self, value: Any) -> Any:
        return text_path(value)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return Anything().check(node, path, report)
        value = node.value
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        full = os.path.normpath(os.path.join(report.base_path, value.removeprefix("file:")))
        if os.path.isfile(full):
            self._read(full, node, path, report)
            return value
        report.add(f"{path}: no such file: {full!r}", node, path)
        return None

    def _read(self, full: str, node: Node, path: str, report: Report) -> None:
        before = report.enter(node, full, os.path.dirname(full))
        try:
            read_yaml(full)
        except SpecError as error:
            for problem in error.problems:
                report.put(problem)
        report.leave(before)


class Interpreter(PathText):
    """A Python that the nodes have already."""

    json_types = ("string",)
    json_pattern = "^/"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is None or (value.startswith("/") and "\0" not in value and "\n" not in value):
            return value
        hint = "such as /opt/envs/torch/bin/python"
        report.add(f"{path} must be the absolute path of a Python, got {quote_node(node)}", node, path, hint)
        return None


class BuildContext(Declared):
    """A folder with a Dockerfile."""

    path: Any = field(BuildPath(), default=None)
    dockerfile_path: str | None = field(_TEXT, "The Dockerfile; default: Dockerfile.", default=None)


class _Build(Record):
    def adopt(self, value: Any) -> Any:
        return BuildContext(**value) if isinstance(value, dict) else ours(value)


_ROUTE = Record("route", {"port": field(Integer(), "The port."), "path": _TEXT}, required=("port", "path"))
_ROUTES = ("liveness_route", "readiness_route", "scoring_route")


class Environment(Written, Located):
    """
    An image or a build context, with conda packages on top of an image; or, which is ours, ``python``: the absolute
    path of an interpreter that the nodes have already, and that takes the place of the image.

    ``conda_file`` is a path as written, or the content; a relative path resolves against
    ``base_path``. ``id``, ``creation_context`` and ``latest_version`` are set by whoever stores the environment.
    """

    _hidden = ("properties",)
    _keeps_empty = True

    name: str | None = field(_TEXT, default=None)
    version: str | None = field(VersionText(), default=None)
    description: str | None = field(_TEXT, default=None)
    image: str | None = field(_TEXT, "The container image.", default=None)
    build: MadeOf[BuildContext | None] = field(
        _Build("build", list_fields(BuildContext)), "The folder of a Dockerfile.", default=None
    )
    conda_file: Any = field(
        CondaFile(),
        "A conda file, by its path or written out; its pip section may name requirements.txt.",
        default=None,
    )
    tags: dict[str, str] | None = field(MapOf(Anything()), default=None)
    properties: dict[str, Any] | None = field(Anything(), default=None)
    datastore: str | None = field(_TEXT, default=None)
    inference_config: Any = field(
        Record("inference_config", dict.fromkeys(_ROUTES, _ROUTE), required=_ROUTES), default=None
    )
    os_type: str | None = field(OneOf("linux", "windows"), "The operating system.", default=None)
    auto_delete_setting: Any = field(Anything(), default=None, dumped=False)
    python: Any = field(
        Interpreter(),
        "The absolute path of a Python that the nodes have already; nothing is built.",
        default=None,
    )
    id: str | None = field(None, default=None, init=False)
    creation_context: Any = field(None, default=None, init=False)
    latest_version: str | None = field(None, default=None, init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Drop what else Azure's takes."""
        super()._settle_arguments({"_base_path": others.get("_base_path")})

    def _file(self) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        pin_paths(values, self)
        return {key: value for key, value in values.items() if value != {}}


_IGNORED = ("$schema", "id", "creation_context", "latest_version", "intellectual_property")
_SHOWN = ("labels", "is_archived", "properties", "built")
_FIELDS = {name: kind for name, kind in list_fields(Environment).items() if name != "properties"}
INLINE = Record("environment", _FIELDS, ignored=_IGNORED)


class NamedEnvironment(Record):
    """An environment in a file of its own, which may turn out to be a conda file."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and {"channels", "dependencies"} & node.entries.keys():
            key = next(key for name, key, _ in node if name in ("channels", "dependencies"))
            hint = "an environment's file names it: `conda_file: ./conda.yml`, next to `image` and `name`"
            report.add("this is a conda file, not an environment", key, join(path, str(key.value)), hint)
            return {}
        return super().take(node, path, report)

    def _make_schema(self, schemas: Schemas) -> JsonSchema:
        recipes = [{"required": [key]} for key in ("image", "build", "python")]
        return {**super()._make_schema(schemas), "anyOf": recipes}


NAMED = NamedEnvironment("an environment", _FIELDS, required=("name",), ignored=(*_IGNORED, *_SHOWN))


def check_recipe(values: dict[str, Any], node: Node, path: str, report: Report) -> None:
    """
    Check an environment: it is an image or a build context, never both; conda packages go on top of an image.

    With a Python that is there already it needs neither.
    """
    image, build = values.get("image"), values.get("build")
    if image and build:
        what = f"{path or 'the environment'} has both 'image' and 'build'"
        report.add(what, node.key or node, path, "keep one of the two")
    elif image is None and build is None and not values.get("python"):
        what = f"{path or 'the environment'} needs 'image' or 'build'"
        hint = "or `python`, the path of an interpreter that the nodes have"
        if values.get("conda_file"):
            hint = "such as `image: ubuntu:22.04`, which is not used where nothing runs containers; " + hint
        report.add(what, node.key or node, path, hint)


class EnvironmentKind(Kind):
    """Inline, ``azureml:name[:version|@label]``, ``azureml://registries/...`` or ``file:...``."""

    word = "a mapping, 'azureml:<name>', 'azureml://registries/...' or 'file:<path>'"
    json_choices = (JSON_REFERENCE, INLINE)

    def adopt(self, value: Any) -> Any:
        return to_environment(value)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            if not self._looks_like_conda(node, path, report):
                return INLINE.check(node, path, report)
            return None
        value = node.value
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if value.startswith("file:"):
            return self._from_file(value, node, path, report)
        if value.startswith("azureml:"):
            return self._reference(value, node, path, report)
        hint = f"write 'azureml:{value}', or `image: {value}` below `{path}:` for an image"
        if exists(value, report.base_path):
            hint = f"write 'file:{value}'"
        report.add(f"{path}: {quote_node(node)} is not a reference to an environment", node, path, hint)
        return None

    def _looks_like_conda(self, node: Mapping, path: str, report: Report) -> bool:
        if not {"channels", "dependencies"} & node.entries.keys():
            return False
        hint = f"put them under `{join(path, 'conda_file')}`, next to an `image`"
        report.add(f"{path} holds conda dependencies", node.key or node, path, hint)
        return True

    def _reference(self, value: str, node: Node, path: str, report: Report) -> Any:
        name = value.removeprefix("azureml:")
        if "/" in name and not name.startswith("/"):
            hint = "a name holds no '/'; a full resource id begins with '/'"
            report.add(f"{path}: {value!r} is not a reference to an environment", node, path, hint)
            return None
        return value

    def _from_file(self, value: str, node: Node, path: str, report: Report) -> Any:
        values = check_file(value, self, node, path, report)
        if values is None or isinstance(values, str):
            return values
        full = os.path.join(report.base_path, value.removeprefix("file:"))
        pin_paths(values, Environment(base_path=os.path.dirname(os.path.abspath(full))))
        return values


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


def give_folder(environment: Any, folder: str) -> None:
    """Let the paths of an environment that has no folder of its own resolve against this one."""
    if isinstance(environment, Environment) and not environment._base_path:
        environment._base_path = folder


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
