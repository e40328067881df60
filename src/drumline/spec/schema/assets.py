"""The tables of data, models and datastores."""

from __future__ import annotations

from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Kind, ListOf, MapOf, OneOf, Text, VersionText
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_TEXT = Text()
_ANY = Anything()

MASK = "********"
"""What is printed for a secret."""

READ_ONLY = (
    "$schema", "id", "creation_context", "latest_version", "intellectual_property", "labels", "is_archived",
)  # fmt: skip
"""What Azure or ``show`` prints besides, so that it can be created again."""

_EVERY: dict[str, Kind] = {
    "name": _TEXT,
    "version": VersionText(),
    "description": _TEXT,
    "tags": MapOf(_ANY),
    "datastore": _TEXT,
    "auto_delete_setting": _ANY,
}


def exact(text: str) -> str:
    return text


DATA = Record(
    "data",
    {**_EVERY, "type": OneOf("uri_file", "uri_folder", "mltable", fold=exact), "path": _TEXT},
    required=("path",),
    ignored=(*READ_ONLY, "properties"),
)
MODEL = Record(
    "a model",
    {
        **_EVERY,
        "type": OneOf("custom_model", "mlflow_model", "triton_model"),
        "path": _TEXT,
        "properties": MapOf(_ANY),
        "stage": _TEXT,
        "flavors": MapOf(_ANY),
        "system_metadata": MapOf(_ANY),
        "default_deployment_template": _ANY,
        "allowed_deployment_templates": ListOf(_ANY),
    },
    required=("name",),
    ignored=(*READ_ONLY, "utc_time_created", "job_name"),
)

# datastores


class Secret(Text):
    """No message shows it."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, str):
            report.add(f"{path} must be text", node, path, "quote it")
        elif value == MASK:
            report.add(f"{path} is a masked secret, not the secret itself", node, path)
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "not": {"const": MASK}}


_SECRET = Secret()
_KEY = Record("credentials", {"account_key": _SECRET}, required=("account_key",))
_SAS = Record("credentials", {"sas_token": _SECRET}, required=("sas_token",))
_APPLICATION: dict[str, Kind] = dict.fromkeys(
    ("tenant_id", "client_id", "resource_url", "authority_url"), _TEXT
)
_SERVICE = Record(
    "credentials",
    {**_APPLICATION, "client_secret": _SECRET},
    required=("tenant_id", "client_id", "client_secret"),
)
_CERTIFICATE = Record(
    "credentials",
    {**_APPLICATION, "certificate": _SECRET, "thumbprint": _TEXT},
    required=("tenant_id", "client_id", "thumbprint"),
)


class Credentials(Kind):
    """One of several records, told by a key that only it has; an empty mapping is none of them."""

    word = "a mapping"

    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__()
        self.records = records

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            report.add(f"{path} must be a mapping", node, path, f"with {' or '.join(self.records)}")
            return None
        if not node.entries:
            return {}
        chosen = next((record for key, record in self.records.items() if key in node), None)
        if chosen is None:
            known = ", ".join(map(repr, self.records))
            report.add(f"{path} holds no known credentials", node.key or node, path, f"one of {known}")
            return None
        return chosen.check(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        records = {id(record): record for record in self.records.values()}.values()
        return {"anyOf": [{"type": "object", "maxProperties": 0}, *map(schemas.make, records)]}


_STORAGE = Credentials({"account_key": _KEY, "sas_token": _SAS})
_LAKE = Credentials({"client_secret": _SERVICE, "certificate": _CERTIFICATE, "thumbprint": _CERTIFICATE})


def _datastore(type: str, fields: dict[str, Kind], required: tuple[str, ...]) -> Record:
    every: dict[str, Kind] = {
        "name": _TEXT,
        "type": OneOf(type),
        "description": _TEXT,
        "tags": MapOf(Text()),
        "properties": MapOf(_ANY),
    }
    ignored = ("$schema", "id", "is_default")
    return Record("a datastore", {**every, **fields}, required=("name", "type", *required), ignored=ignored)


def _texts(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, _TEXT)


_ACCOUNT = ("account_name", "endpoint", "protocol")
DATASTORES = {
    "azure_blob": _datastore(
        "azure_blob",
        {**_texts(*_ACCOUNT, "container_name"), "credentials": _STORAGE},
        ("account_name", "container_name"),
    ),
    "azure_file": _datastore(
        "azure_file",
        {**_texts(*_ACCOUNT, "file_share_name"), "credentials": _STORAGE},
        ("account_name", "file_share_name"),
    ),
    "azure_data_lake_gen1": _datastore(
        "azure_data_lake_gen1", {**_texts("store_name"), "credentials": _LAKE}, ("store_name",)
    ),
    "azure_data_lake_gen2": _datastore(
        "azure_data_lake_gen2",
        {**_texts(*_ACCOUNT, "filesystem"), "credentials": _LAKE},
        ("account_name", "filesystem"),
    ),
    "one_lake": _datastore(
        "one_lake",
        {
            **_texts("one_lake_workspace_name", "endpoint"),
            "artifact": Record("artifact", _texts("name", "type"), required=("name",)),
            "credentials": _LAKE,
        },
        ("one_lake_workspace_name", "artifact"),
    ),
    "local": _datastore("local", _texts("path"), ("path",)),
}
"""``local`` is ours: a folder of this machine, or one that all nodes see. Source of the others: azure-ai-ml."""
