"""
The assets that are registered under a name and a version: data and models. Environments are in ``environment``,
components in ``component``, and the places of data in ``datastores``.
"""

from __future__ import annotations

from drumline.spec.entity import Written, to_dict
from drumline.spec.hints import describe_ignored
from drumline.spec.kinds.fields import Any, Located, OrEmpty, field
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import Anything, ListOf, MapOf, OneOf, PathText, Report, Text, VersionText
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.files import wrap_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.reading.source import Mapping

_TEXT = Text()
_ANY = Anything()
_KEPT = (
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


class Asset(Written, Located):
    """The root. ``id``, ``creation_context`` and ``latest_version`` are set by whoever stores the asset."""

    name: str | None = field(_TEXT, default=None)
    version: str | None = field(VersionText(), default=None)
    type: str | None = field(_TEXT, default=None)
    path: Any = field(PathText(), default=None)
    description: str | None = field(_TEXT, default=None)
    tags: OrEmpty[dict[str, Any]] = field(MapOf(_ANY), factory=dict)
    properties: OrEmpty[dict[str, Any]] = field(MapOf(_ANY), factory=dict)
    datastore: str | None = field(_TEXT, default=None)
    auto_delete_setting: Any = field(_ANY, default=None, dumped=False)
    id: str | None = field(None, default=None, init=False)
    creation_context: Any = field(None, default=None, init=False)
    latest_version: str | None = field(None, default=None, init=False)
    _warnings: list[str] = field(None, factory=list, init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self._warnings = [describe_ignored(key, self._fields) for key in others if key not in _KEPT]
        super()._settle_arguments({"_base_path": others.get("_base_path")})

    def _file(self) -> dict[str, Any]:
        values = super()._file()
        if isinstance(self.path, str) and self.path:
            values["path"] = resolve(self, self.path)
        return values


class Data(Asset):
    """
    A file or folder under a name. It stays where it is, and is not copied: what is registered is its path.

    ``type``: ``uri_file``, ``uri_folder`` or ``mltable``. ``path``: local, or a URI such as ``azureml://datastores/...``.
    """

    type: str | None = field(OneOf("uri_file", "uri_folder", "mltable", fold=str), default="uri_folder")


class Model(Asset):
    """
    A trained model under a name; like data, it stays where it is.

    ``type``: ``custom_model``, ``mlflow_model`` or ``triton_model``. ``path``: local, ``azureml://jobs/<job>/outputs/
    <output>/paths/<path>``, ``azureml://datastores/...`` or ``runs:/<job>/<path>``.
    """

    type: OrEmpty[str] = field(
        OneOf("custom_model", "mlflow_model", "triton_model"), factory=lambda kind="custom_model": kind
    )
    stage: str | None = field(_TEXT, default=None)
    flavors: OrEmpty[dict[str, dict[str, Any]]] = field(MapOf(_ANY), factory=dict)
    utc_time_created: str | None = field(None, default=None)
    job_name: str | None = field(None, default=None)
    system_metadata: Any = field(MapOf(_ANY), default=None, dumped=False)
    default_deployment_template: Any = field(_ANY, default=None, dumped=False)
    allowed_deployment_templates: Any = field(ListOf(_ANY), default=None, dumped=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        for key in ("default_deployment_template", "allowed_deployment_templates", "system_metadata"):
            if getattr(self, key) is not None:
                self._warnings.append(f"{key}: not used; models are not deployed from here")


_READ_ONLY = (
    "$schema", "id", "creation_context", "latest_version", "intellectual_property", "labels", "is_archived",
)  # fmt: skip
"""What Azure or ``show`` prints besides, so that it can be created again."""

DATA = Record(
    "data",
    {key: kind for key, kind in list_fields(Data).items() if key != "properties"},
    required=("path",),
    ignored=(*_READ_ONLY, "properties"),
)
MODEL = Record(
    "a model", list_fields(Model), required=("name",), ignored=(*_READ_ONLY, "utc_time_created", "job_name")
)
_CLASSES: dict[str, type[Asset]] = {"data": Data, "model": Model}


def from_tree(kind: str, root: Mapping, report: Report) -> Asset:
    """Return the asset of a file. ``kind``: data or model. Raises SpecError with every problem of the file."""
    values = {"data": DATA, "model": MODEL}[kind].read(root, report)
    return _CLASSES[kind](**values, base_path=report.base_path)


def check_asset(asset: Asset) -> Asset:
    """Return an asset that was built or changed in Python, as its file would read. Raises SpecError."""
    kind = next(kind for kind, known in _CLASSES.items() if isinstance(asset, known))
    # What is shown may be made again; what was stored may hold more than a file says.
    values = {key: value for key, value in to_dict(asset).items() if kind == "model" or key != "properties"}
    again = from_tree(kind, wrap_file(values), Report(asset.base_path))
    again.properties = dict(asset.properties)
    again._warnings = [*asset._warnings, *describe_unused(asset)]
    return again


def describe_unused(asset: Asset) -> list[str]:
    """Return a warning for each field of Azure's that has no effect here."""
    said = []
    if asset.datastore and isinstance(asset.path, str) and not is_remote(asset.path):
        said.append("datastore: not used; registered assets stay where they are")
    if asset.auto_delete_setting:
        said.append("auto_delete_setting: not used; nothing is deleted automatically")
    return said
