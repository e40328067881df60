"""
The assets that are registered under a name and a version: data and models. Environments are in ``environment``,
components in ``component``, and the places of data in ``datastores``.
"""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain, text_path
from drumline.spec.keywords import describe_ignored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.values import Kind
    from drumline.spec.reading.tree import Mapping

_KEPT = (
    "base_path",
    "_base_path",
    "id",
    "creation_context",
    "latest_version",
    "intellectual_property",
    "job_name",
)


class CreationContext:
    """The maker of an asset or submitter of a job, and the time (RFC 3339, UTC)."""

    def __init__(self, created_at: str | None, created_by: str) -> None:
        self.created_at = created_at
        self.created_by = created_by
        self.created_by_type = "User"

    def __repr__(self) -> str:
        return f"CreationContext(created_at={self.created_at!r}, created_by={self.created_by!r})"


class Asset(Written):
    """The root. ``id``, ``creation_context`` and ``latest_version`` are set by whoever stores the asset."""

    _fields: tuple[str, ...] = (
        "name",
        "version",
        "type",
        "path",
        "description",
        "tags",
        "properties",
        "datastore",
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        type: str | None = None,
        path: Any = None,
        description: str | None = None,
        tags: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.version = None if version is None else str(version)
        self.type = type
        self.path = text_path(path)
        self.description = description
        self.tags = dict(tags or {})
        self.properties = dict(properties or {})
        self.datastore = kwargs.pop("datastore", None)
        self.auto_delete_setting = kwargs.pop("auto_delete_setting", None)
        self.id: str | None = None
        self.creation_context: Any = None
        self.latest_version: str | None = None
        self._base_path: str = text_path(kwargs.get("base_path") or kwargs.get("_base_path") or "")
        self._warnings: list[str] = [
            describe_ignored(key, self._fields) for key in kwargs if key not in _KEPT
        ]

    @property
    def base_path(self) -> str:
        """Return the folder that a relative path resolves against."""
        return self._base_path or os.getcwd()

    def _file(self) -> dict[str, Any]:
        return to_dict(self)


class Data(Asset):
    """
    A file or folder under a name. It stays where it is, and is not copied: what is registered is its path.

    ``type``: ``uri_file``, ``uri_folder`` or ``mltable``. ``path``: local, or a URI such as ``azureml://datastores/...``.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        tags: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        path: Any = None,
        type: str = "uri_folder",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            name=name,
            version=version,
            type=type,
            path=path,
            description=description,
            tags=tags,
            properties=properties,
            **kwargs,
        )


class Model(Asset):
    """
    A trained model under a name; like data, it stays where it is.

    ``type``: ``custom_model``, ``mlflow_model`` or ``triton_model``. ``path``: local, ``azureml://jobs/<job>/outputs/
    <output>/paths/<path>``, ``azureml://datastores/...`` or ``runs:/<job>/<path>``.
    """

    _fields = (*Asset._fields, "stage", "flavors")
    _folded = ("type",)

    def __init__(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        type: str | None = None,
        path: Any = None,
        utc_time_created: str | None = None,
        flavors: dict[str, dict[str, Any]] | None = None,
        description: str | None = None,
        tags: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        stage: str | None = None,
        **kwargs: Any,
    ) -> None:
        unused = [key for key in _UNUSED_OF_MODELS if kwargs.pop(key, None) is not None]
        super().__init__(
            name=name,
            version=version,
            type=type or "custom_model",
            path=path,
            description=description,
            tags=tags,
            properties=properties,
            **kwargs,
        )
        self.utc_time_created = utc_time_created
        self.flavors = dict(flavors or {})
        self.stage = stage
        self.job_name = kwargs.get("job_name")
        self._warnings += [f"{key}: not used; models are not deployed from here" for key in unused]


_UNUSED_OF_MODELS = ("default_deployment_template", "allowed_deployment_templates", "system_metadata")
_CLASSES: dict[str, type[Asset]] = {"data": Data, "model": Model}


def to_dict(asset: Asset) -> dict[str, Any]:
    """Return the keys of YAML, a local path in full, without what is not set; JSON can hold it."""
    from drumline.spec.paths import resolve

    values = {key: plain(value) for key, value in asset._values().items()}
    if isinstance(asset.path, str) and asset.path:
        values["path"] = resolve(asset, asset.path)
    return {key: value for key, value in values.items() if value != {}}


def from_tree(kind: str, root: Mapping, report: Report) -> Asset:
    """Return the asset of a file. ``kind``: data or model. Raises SpecError with every problem of the file."""
    from drumline.spec.schema import assets as tables

    table: Kind = {"data": tables.DATA, "model": tables.MODEL}[kind]
    values = table.check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    return _CLASSES[kind](**values, base_path=report.base_path)


def check_asset(asset: Asset) -> Asset:
    """Return an asset that was built or changed in Python, as its file would read. Raises SpecError."""
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Mapping, wrap

    kind = next(kind for kind, known in _CLASSES.items() if isinstance(asset, known))
    # What is shown may be made again; what was stored may hold more than a file says.
    values = {key: value for key, value in to_dict(asset).items() if kind == "model" or key != "properties"}
    root = wrap(values)
    assert isinstance(root, Mapping)
    again = from_tree(kind, root, Report(asset.base_path))
    again.properties = dict(asset.properties)
    again._warnings = [*asset._warnings, *describe_unused(asset)]
    return again


def describe_unused(asset: Asset) -> list[str]:
    """Return a warning for each field of Azure's that has no effect here."""
    from drumline.spec.paths import is_remote

    said = []
    if asset.datastore and isinstance(asset.path, str) and not is_remote(asset.path):
        said.append("datastore: not used; registered assets stay where they are")
    if asset.auto_delete_setting:
        said.append("auto_delete_setting: not used; nothing is deleted automatically")
    return said
