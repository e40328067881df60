"""The places of data, by name: Azure's storage accounts, of which only the names are used, and ``LocalDatastore``."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, Written, plain, text_path
from drumline.spec.foreign_parts import ours
from drumline.spec.keywords import describe_ignored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.contract.errors import Problem
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Mapping

SECRETS = ("account_key", "sas_token", "client_secret", "certificate")


class CredentialConfiguration(Entity):
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
    _fields = ("account_key",)

    def __init__(self, *, account_key: str) -> None:
        self.account_key = account_key


class SasTokenConfiguration(CredentialConfiguration):
    type = "sas"
    _fields = ("sas_token",)

    def __init__(self, *, sas_token: str) -> None:
        self.sas_token = sas_token


class _Application(CredentialConfiguration):
    """An application that is registered in Azure."""

    _fields: tuple[str, ...] = ("tenant_id", "client_id", "resource_url", "authority_url")

    def __init__(self, **kwargs: Any) -> None:
        for name in self._fields:
            setattr(self, name, kwargs.get(name))


class ServicePrincipalConfiguration(_Application):
    type = "service_principal"
    _fields = (*_Application._fields, "client_secret")

    def __init__(self, *, client_secret: str, **kwargs: Any) -> None:
        super().__init__(client_secret=client_secret, **kwargs)


class CertificateConfiguration(_Application):
    type = "certificate"
    _fields = (*_Application._fields, "certificate", "thumbprint")

    def __init__(self, certificate: str | None = None, thumbprint: str | None = None, **kwargs: Any) -> None:
        super().__init__(certificate=certificate, thumbprint=thumbprint, **kwargs)


class Datastore(Written):
    """The root. ``id`` and ``is_default`` are set by whoever stores it."""

    type = ""
    _fields: tuple[str, ...] = ("name", "type", "description", "tags", "properties")

    def __init__(
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        properties: dict[str, Any] | None = None,
        credentials: Any = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.description = description
        self.tags = dict(tags or {})
        self.properties = dict(properties or {})
        self.credentials = to_credentials(credentials)
        self.id: str | None = None
        self.is_default = False
        self._warnings = [
            describe_ignored(key, self._fields) for key in kwargs if key not in ("id", "is_default", "type")
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
    _fields = (*Datastore._fields, "path")

    def __init__(self, *, name: str, path: Any, **kwargs: Any) -> None:
        self._base_path: str = text_path(kwargs.pop("base_path", None) or "")
        super().__init__(name=name, **kwargs)
        self.path = text_path(path)


class AzureBlobDatastore(Datastore):
    type = "azure_blob"
    _fields = (*Datastore._fields, "account_name", "container_name", "endpoint", "protocol", "credentials")

    def __init__(
        self,
        *,
        name: str,
        account_name: str,
        container_name: str,
        endpoint: str | None = None,
        protocol: str = "https",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.account_name = account_name
        self.container_name = container_name
        self.endpoint = endpoint
        self.protocol = protocol


class AzureFileDatastore(Datastore):
    type = "azure_file"
    _fields = (*Datastore._fields, "account_name", "file_share_name", "endpoint", "protocol", "credentials")

    def __init__(
        self,
        *,
        name: str,
        account_name: str,
        file_share_name: str,
        endpoint: str = "core.windows.net",
        protocol: str = "https",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.account_name = account_name
        self.file_share_name = file_share_name
        self.endpoint = endpoint
        self.protocol = protocol


class AzureDataLakeGen1Datastore(Datastore):
    type = "azure_data_lake_gen1"
    _fields = (*Datastore._fields, "store_name", "credentials")

    def __init__(self, *, name: str, store_name: str, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.store_name = store_name


class AzureDataLakeGen2Datastore(Datastore):
    type = "azure_data_lake_gen2"
    _fields = (*Datastore._fields, "account_name", "filesystem", "endpoint", "protocol", "credentials")

    def __init__(
        self,
        *,
        name: str,
        account_name: str,
        filesystem: str,
        endpoint: str = "core.windows.net",
        protocol: str = "https",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.account_name = account_name
        self.filesystem = filesystem
        self.endpoint = endpoint
        self.protocol = protocol


class OneLakeDatastore(Datastore):
    type = "one_lake"
    _fields = (*Datastore._fields, "one_lake_workspace_name", "artifact", "endpoint", "credentials")

    def __init__(
        self,
        *,
        name: str,
        artifact: Any,
        one_lake_workspace_name: str,
        endpoint: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.artifact = artifact
        self.one_lake_workspace_name = one_lake_workspace_name
        self.endpoint = endpoint


_CLASSES: dict[str, type[Any]] = {
    known.type: known
    for known in (
        LocalDatastore,
        AzureBlobDatastore,
        AzureFileDatastore,
        AzureDataLakeGen1Datastore,
        AzureDataLakeGen2Datastore,
        OneLakeDatastore,
    )
}
TYPES = tuple(_CLASSES)


def to_credentials(value: Any) -> CredentialConfiguration | None:
    """Return credentials from a mapping with the keys of YAML. Raises SpecError if they are none."""
    value = ours(value)
    if value is None or isinstance(value, CredentialConfiguration):
        return value
    if isinstance(value, dict):
        if "account_key" in value:
            return AccountKeyConfiguration(account_key=value["account_key"])
        if "sas_token" in value:
            return SasTokenConfiguration(sas_token=value["sas_token"])
        if "client_secret" in value:
            return ServicePrincipalConfiguration(**value)
        if not value:
            return NoneCredentialConfiguration()
        if "certificate" in value or "thumbprint" in value:
            return CertificateConfiguration(**value)
        raise SpecError("these are no known credentials", "{'account_key': ...} or {'sas_token': ...}")
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
    from drumline.spec.schema.assets import MASK

    shown = dict(values)
    if isinstance(shown.get("credentials"), dict):
        shown["credentials"] = {
            key: MASK if key in SECRETS else text for key, text in shown["credentials"].items()
        }
    return shown


def from_dict(values: dict[str, Any], *, params_override: list[dict[str, Any]] | None = None) -> Datastore:
    """Return the datastore of such a mapping, checked. Raises SpecError with every problem."""
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.override import apply_overrides
    from drumline.spec.reading.tree import Mapping, wrap

    root = wrap(values)
    assert isinstance(root, Mapping)
    apply_overrides(root, params_override or [])
    return from_tree(root, Report(""))


def from_tree(root: Mapping, report: Report) -> Datastore:
    """Return the datastore of a file. Raises SpecError with every problem of the file."""
    from drumline.spec.schema.assets import DATASTORES

    kind = _type_of(root)
    values = DATASTORES[kind].check(root, "", report)
    if report.problems:
        raise SpecError([_without_line(problem) for problem in report.problems])
    given = {key: value for key, value in values.items() if key != "type"}
    if kind == LocalDatastore.type:
        given["base_path"] = report.base_path
    made: Datastore = _CLASSES[kind](**given)
    return made


def _type_of(root: Mapping) -> str:
    from drumline.spec.hints import did_you_mean
    from drumline.spec.kinds.values import quote_node
    from drumline.spec.reading.source import problem_at
    from drumline.spec.reading.tree import Scalar

    known = "one of " + ", ".join(map(repr, TYPES))
    node = root.get("type")
    if node is None:
        missing = problem_at(root, "missing key 'type' in a datastore", path="type", hint=known)
        raise SpecError([_without_line(missing)])
    kind = node.value.lower() if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    if kind in _CLASSES:
        return kind
    what = f"{quote_node(node)} is not a type of datastore"
    wrong = problem_at(node, what, path="type", hint=did_you_mean(kind, TYPES) or known)
    raise SpecError([_without_line(wrong)])


def _without_line(problem: Problem) -> Problem:
    """Remove the line of a problem: it may hold a secret, under whatever key."""
    problem.source_line = ""
    return problem
