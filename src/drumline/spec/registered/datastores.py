"""The places of data, by name: Azure's storage accounts, of which only the names are used, and ``LocalDatastore``."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain, text_path
from drumline.spec.foreign_parts import ours
from drumline.spec.hints import describe_ignored
from drumline.spec.kinds.fields import Any, Declared, OrEmpty, field
from drumline.spec.kinds.records import Record, find_type, list_fields, list_required
from drumline.spec.kinds.values import Anything, Kind, MapOf, PathText, Report, Text
from drumline.spec.reading.files import wrap_file
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.reading.source import Node

MASK = "********"
"""What is printed for a secret."""

SECRETS = ("account_key", "sas_token", "client_secret", "certificate")


class Secret(Text):
    """No message shows it."""

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"type": "string", "not": {"const": MASK}}

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value
        if not isinstance(value, str):
            report.add(f"{path} must be text", node, path, "quote it")
        elif value == MASK:
            report.add(f"{path} is a masked secret, not the secret itself", node, path)
        return value


_TEXT, _SECRET = Text(), Secret()


class CredentialConfiguration(Declared):
    """The root; secrets are in no ``repr``."""

    type = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class NoneCredentialConfiguration(CredentialConfiguration):
    type = "none"


class HiddenCredentials(NoneCredentialConfiguration):
    """The credentials of a datastore that was fetched without its secrets: stored again, it keeps those that it has."""


class AccountKeyConfiguration(CredentialConfiguration):
    type = "account_key"
    account_key: str = field(_SECRET)


class SasTokenConfiguration(CredentialConfiguration):
    type = "sas"
    sas_token: str = field(_SECRET)


class _Application(CredentialConfiguration):
    """An application that is registered in Azure."""

    tenant_id: str | None = field(_TEXT, default=None)
    client_id: str | None = field(_TEXT, default=None)
    resource_url: str | None = field(_TEXT, default=None)
    authority_url: str | None = field(_TEXT, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Drop what else Azure's takes."""


class ServicePrincipalConfiguration(_Application):
    type = "service_principal"
    client_secret: str = field(_SECRET)


class CertificateConfiguration(_Application):
    type = "certificate"
    certificate: str | None = field(_SECRET, default=None, kw_only=False)
    thumbprint: str | None = field(_TEXT, default=None, kw_only=False)


def _credentials(kind: type[CredentialConfiguration], *required: str) -> Record:
    return Record("credentials", list_fields(kind), required=required)


_CERTIFICATE = _credentials(CertificateConfiguration, "tenant_id", "client_id", "thumbprint")


class Credentials(Kind):
    """One of several records, told by a key that only it has; an empty mapping is none of them."""

    word = "a mapping"

    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__()
        self.records = records

    def adopt(self, value: Any) -> Any:
        return to_credentials(value)

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

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        records = {id(record): record for record in self.records.values()}.values()
        return {"anyOf": [{"type": "object", "maxProperties": 0}, *map(schemas.make, records)]}


_BY_KEY: dict[str, type[CredentialConfiguration]] = {
    "account_key": AccountKeyConfiguration,
    "sas_token": SasTokenConfiguration,
    "client_secret": ServicePrincipalConfiguration,
    "certificate": CertificateConfiguration,
    "thumbprint": CertificateConfiguration,
}
"""The credentials of a mapping, told by a key that only they have."""

_STORAGE = Credentials(
    {
        "account_key": _credentials(AccountKeyConfiguration, "account_key"),
        "sas_token": _credentials(SasTokenConfiguration, "sas_token"),
    }
)
_LAKE = Credentials(
    {
        "client_secret": _credentials(
            ServicePrincipalConfiguration, "tenant_id", "client_id", "client_secret"
        ),
        "certificate": _CERTIFICATE,
        "thumbprint": _CERTIFICATE,
    }
)


class Datastore(Written, Declared):
    """The root. ``id`` and ``is_default`` are set by whoever stores it."""

    name: str = field(_TEXT)
    type: str = field(_TEXT, default="", init=False)
    description: str | None = field(_TEXT, default=None)
    tags: OrEmpty[dict[str, str]] = field(MapOf(_TEXT), factory=dict)
    properties: OrEmpty[dict[str, Any]] = field(MapOf(Anything()), factory=dict)
    credentials: Any = field(None, default=None)
    id: str | None = field(None, default=None, init=False)
    is_default: bool = field(None, default=False, init=False)
    _warnings: list[str] = field(None, factory=list, init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self._warnings = [
            describe_ignored(key, self._fields) for key in others if key not in ("id", "is_default", "type")
        ]

    def _file(self) -> dict[str, Any]:
        """Return the datastore as a file has it, without its secrets."""
        return mask_secrets(to_dict(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class LocalDatastore(Datastore):
    """
    A folder: ``azureml://datastores/<name>/paths/<path>`` is ``path`` in it.

    Under the name of one of Azure's, it takes its place.
    """

    type = "local"
    path: Any = field(PathText())
    _base_path: str = field(None, default="", init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self._base_path = text_path(others.pop("base_path", None) or "")
        super()._settle_arguments(others)


class AzureBlobDatastore(Datastore):
    type = "azure_blob"
    account_name: str = field(_TEXT)
    container_name: str = field(_TEXT)
    endpoint: str | None = field(_TEXT, default=None)
    protocol: str = field(_TEXT, default="https")
    credentials: Any = field(_STORAGE, default=None)


class AzureFileDatastore(Datastore):
    type = "azure_file"
    account_name: str = field(_TEXT)
    file_share_name: str = field(_TEXT)
    endpoint: str = field(_TEXT, default="core.windows.net")
    protocol: str = field(_TEXT, default="https")
    credentials: Any = field(_STORAGE, default=None)


class AzureDataLakeGen1Datastore(Datastore):
    type = "azure_data_lake_gen1"
    store_name: str = field(_TEXT)
    credentials: Any = field(_LAKE, default=None)


class AzureDataLakeGen2Datastore(Datastore):
    type = "azure_data_lake_gen2"
    account_name: str = field(_TEXT)
    filesystem: str = field(_TEXT)
    endpoint: str = field(_TEXT, default="core.windows.net")
    protocol: str = field(_TEXT, default="https")
    credentials: Any = field(_LAKE, default=None)


class OneLakeDatastore(Datastore):
    type = "one_lake"
    one_lake_workspace_name: str = field(_TEXT)
    artifact: Any = field(Record("artifact", {"name": _TEXT, "type": _TEXT}, required=("name",)))
    endpoint: str | None = field(_TEXT, default=None)
    credentials: Any = field(_LAKE, default=None)


_CLASSES: dict[str, type[Any]] = {
    known.type: known
    for known in (
        AzureBlobDatastore,
        AzureFileDatastore,
        AzureDataLakeGen1Datastore,
        AzureDataLakeGen2Datastore,
        OneLakeDatastore,
        LocalDatastore,
    )
}
DATASTORES = {
    name: Record(
        "a datastore",
        list_fields(kind),
        required=("type", *list_required(kind)),
        ignored=("$schema", "id", "is_default"),
    )
    for name, kind in _CLASSES.items()
}
"""``local`` is ours: a folder of this machine, or one that all nodes see. Source of the others: azure-ai-ml."""


def to_credentials(value: Any) -> CredentialConfiguration | None:
    """Return credentials from a mapping with the keys of YAML. Raises SpecError if they are none."""
    value = ours(value)
    if value is None or isinstance(value, CredentialConfiguration):
        return value
    if isinstance(value, dict):
        if not value:
            return NoneCredentialConfiguration()
        kind = next((kind for key, kind in _BY_KEY.items() if key in value), None)
        if kind is None:
            raise SpecError("these are no known credentials", "{'account_key': ...} or {'sas_token': ...}")
        return kind(**{key: item for key, item in value.items() if key in kind._fields})
    raise SpecError(
        f"credentials cannot be of type {type(value).__name__!r}", "AccountKeyConfiguration(account_key=...)"
    )


def to_dict(datastore: Datastore) -> dict[str, Any]:
    """Return the keys of YAML, secrets too, without what is not set; JSON can hold it."""
    values = {key: plain(value) for key, value in datastore._values().items()}
    if isinstance(datastore, LocalDatastore) and isinstance(datastore.path, str) and datastore.path:
        import os

        values["path"] = os.path.normpath(os.path.join(datastore._base_path or os.getcwd(), datastore.path))
    return {key: value for key, value in values.items() if value != {}}


def mask_secrets(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of ``to_dict`` with stars for every secret."""
    shown = dict(values)
    if isinstance(shown.get("credentials"), dict):
        shown["credentials"] = {
            key: MASK if key in SECRETS else text for key, text in shown["credentials"].items()
        }
    return shown


def from_dict(values: dict[str, Any], *, params_override: list[dict[str, Any]] | None = None) -> Datastore:
    """Return the datastore of such a mapping, checked. Raises SpecError with every problem."""
    return from_tree(wrap_file(values, params_override), Report(""))


def from_tree(root: Mapping, report: Report) -> Datastore:
    """Return the datastore of a file. Raises SpecError with every problem of the file."""
    try:
        kind = find_type(root, "datastore", _CLASSES)
        values = DATASTORES[kind].read(root, report)
    except SpecError as error:
        for problem in error.problems:
            # The line of a problem may hold a secret, under whatever key.
            problem.source_line = ""
        raise SpecError(list(error.problems)) from None
    given = {key: value for key, value in values.items() if key != "type"}
    if kind == LocalDatastore.type:
        given["base_path"] = report.base_path
    made: Datastore = _CLASSES[kind](**given)
    return made
