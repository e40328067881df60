"""The tables of an environment: inline, by reference, or in a file of its own."""

from __future__ import annotations

import os

from drumline.spec.kinds.locations import BuildPath, check_file, exists
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    Anything,
    Integer,
    Kind,
    MapOf,
    OneOf,
    Text,
    VersionText,
    join,
    quote_node,
)
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_TEXT = Text()


class CondaFile(Kind):
    """The path of a conda environment file, which must be readable YAML, or its content."""

    word = "a path or a mapping of conda dependencies"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return Anything().check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
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
        from drumline.contract.errors import SpecError
        from drumline.spec.reading.files import read_yaml

        before = report.enter(node, full, os.path.dirname(full))
        try:
            read_yaml(full)
        except SpecError as error:
            for problem in error.problems:
                report.put(problem)
        report.leave(before)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "object"]}


class Interpreter(Text):
    """A Python that the nodes have already."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is None or (value.startswith("/") and "\0" not in value and "\n" not in value):
            return value
        hint = "such as /opt/envs/torch/bin/python"
        report.add(f"{path} must be the absolute path of a Python, got {quote_node(node)}", node, path, hint)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": "^/"}


_ROUTE = Record("route", {"port": Integer(), "path": _TEXT}, required=("port", "path"))
_ROUTES = ("liveness_route", "readiness_route", "scoring_route")
_FIELDS: dict[str, Kind] = {
    "name": _TEXT,
    "version": VersionText(),
    "description": _TEXT,
    "tags": MapOf(Anything()),
    "image": _TEXT,
    "build": Record("build", {"path": BuildPath(), "dockerfile_path": _TEXT}),
    "conda_file": CondaFile(),
    "inference_config": Record("inference_config", dict.fromkeys(_ROUTES, _ROUTE), required=_ROUTES),
    "os_type": OneOf("linux", "windows"),
    "datastore": _TEXT,
    "auto_delete_setting": Anything(),
    "python": Interpreter(),
}
_IGNORED = ("$schema", "id", "creation_context", "latest_version", "intellectual_property")
INLINE = Record("environment", _FIELDS, ignored=_IGNORED)
_SHOWN = ("labels", "is_archived", "properties", "built")


class NamedEnvironment(Record):
    """An environment in a file of its own, which may turn out to be a conda file."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping) and {"channels", "dependencies"} & node.entries.keys():
            key = next(key for name, key, _ in node if name in ("channels", "dependencies"))
            hint = "an environment's file names it: `conda_file: ./conda.yml`, next to `image` and `name`"
            report.add("this is a conda file, not an environment", key, join(path, str(key.value)), hint)
            return {}
        return super().take(node, path, report)

    def _make_schema(self, schemas: Schemas) -> dict[str, Any]:
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

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            if not self._looks_like_conda(node, path, report):
                return INLINE.check(node, path, report)
            return None
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if value.startswith("file:"):
            return self._from_file(value, node, path, report)
        if value.startswith("azureml:"):
            return self._reference(value, node, path, report)
        hint = f"write 'azureml:{value}'"
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
        values["_base_path"] = os.path.dirname(os.path.abspath(full))
        return values

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        named = {"type": "string", "pattern": "^(azureml:|file:)"}
        return {"anyOf": [named, schemas.make(INLINE)]}
