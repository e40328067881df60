"""
Azure's blobs, also by the names that Data Lake Storage gives them.

What is asked for access, in this order: the address itself (a signature), the datastore,
AZURE_STORAGE_CONNECTION_STRING of that account, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, whoever is logged in
(azure-identity, else the variables of a service principal or the ``az`` command), nobody. Source for the variables:
https://learn.microsoft.com/cli/azure/authenticate-azure-cli-storage-account.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from drumline.contract.record import NamedTuple
from drumline.staging.stores.connection import request_headers
from drumline.staging.stores.objects import Access, ObjectStore, import_obstore, make_client_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.uris import Place

_HINT = (
    "set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN with AZURE_STORAGE_ACCOUNT, "
    "run `az login`, or store the key with `drumline datastore create --file` (type: azure_blob)"
)
_SUFFIXES = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".storage.azure.net",
    ".fabric.microsoft.com",
)
_SCOPE = "https://storage.azure.com/.default"


class _AzureAccess(NamedTuple):
    """One way to get access: the arguments of obstore for it."""

    tried: str
    config: dict[str, Any]
    provider: Callable[[], dict[str, Any]] | None = None


def open_store(place: Place, credentials: Mapping[str, Any] | None) -> ObjectStore:
    stores = import_obstore("azure", place)
    way: _AzureAccess | None
    connection = _connection_string(place.account)
    endpoint = _endpoint(place, credentials or {}, connection)
    if "sig=" in place.query:
        way = _sas_credential(place.query, "with the signature of the address")
    else:
        way = _datastore_credential(credentials or {})
    if way is None and ((credentials or {}).get("endpoint") or _is_endpoint_of(connection, endpoint)):
        way = _connection_credential(connection)
    if way is None and _is_azure_endpoint(endpoint):
        way = _variable_credential(place.account) or _login_credential()
    way = way or _AzureAccess("without any credentials, since none were found", {"skip_signature": True})
    made = stores.AzureStore(
        place.container,
        account_name=place.account,
        endpoint=endpoint,
        credential_provider=way.provider,
        **way.config,
        **make_client_options(),
    )
    return ObjectStore(place, Access(made, way.tried, _HINT, _headers_of(made, endpoint, place, way)))


def _connection_string(account: str) -> dict[str, str]:
    """Return the parts of AZURE_STORAGE_CONNECTION_STRING; none if it is another account's."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    named = {name.strip().lower(): value.strip() for name, value in parts.items()}
    owner = named.get("accountname") or named.get("blobendpoint", "").partition("://")[2].partition(".")[0]
    return named if owner.lower() == account.lower() else {}


def _endpoint(place: Place, credentials: Mapping[str, Any], connection: Mapping[str, str]) -> str:
    given = str(credentials.get("endpoint") or "")
    protocol = str(credentials.get("protocol") or ("http" if place.is_plain and place.host else "https"))
    if "://" in given:
        return given.rstrip("/")
    if connection.get("blobendpoint"):
        return connection["blobendpoint"].rstrip("/")
    host = place.host.rpartition("@")[2] or f"{place.account}.blob.{given or 'core.windows.net'}"
    if "." not in host:
        host = f"{host}.blob.core.windows.net"
    # Data Lake's other name of the same account; what is a file there is a blob here.
    return f"{protocol}://{host.replace('.dfs.', '.blob.', 1)}"


def _is_azure_endpoint(endpoint: str) -> bool:
    """Return whether a server is Azure's: no other one is shown a key or token of this machine."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" and (parts.hostname or "").endswith(_SUFFIXES)


def _is_endpoint_of(connection: Mapping[str, str], endpoint: str) -> bool:
    """Return whether that server is the connection's, and not one that an address gives the same account's name."""
    own = connection.get("endpointsuffix", "").strip(".").lower()
    host = urlsplit(endpoint).hostname or ""
    return "blobendpoint" in connection or host.endswith((*_SUFFIXES, *([f".{own}"] if own else [])))


def _datastore_credential(record: Mapping[str, Any]) -> _AzureAccess | None:
    given = record.get("credentials") or {}
    of = f"of the datastore {record['name']!r}" if record.get("name") else "of the datastore"
    if given.get("account_key"):
        return _key_credential(given["account_key"], f"with the account key {of}")
    if given.get("sas_token"):
        return _sas_credential(given["sas_token"], f"with the SAS token {of}")
    if given.get("client_secret"):
        config = {"credential_type": "client_secret", "authority_host": given.get("authority_url")}
        config |= {name: given.get(name) for name in ("tenant_id", "client_id", "client_secret")}
        return _AzureAccess(
            f"with the service principal {of}", {key: value for key, value in config.items() if value}
        )
    return None


def _connection_credential(parts: Mapping[str, str]) -> _AzureAccess | None:
    if parts.get("accountkey"):
        return _key_credential(parts["accountkey"], "with the key of AZURE_STORAGE_CONNECTION_STRING")
    if parts.get("sharedaccesssignature"):
        return _sas_credential(
            parts["sharedaccesssignature"], "with the signature of AZURE_STORAGE_CONNECTION_STRING"
        )
    return None


def _variable_credential(account: str) -> _AzureAccess | None:
    named = _variable("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")[1]
    if named.lower() != account.lower():  # A key or a signature is shown to nobody else.
        return None
    name, value = _variable("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
    if value:
        return _key_credential(value, f"with {name}")
    name, value = _variable("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    return _sas_credential(value, f"with {name}") if value else None


def _variable(*names: str) -> tuple[str, str]:
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), ("", ""))


def _login_credential() -> _AzureAccess | None:
    try:
        import azure.identity
        from azure.core.exceptions import ClientAuthenticationError
    except ImportError:
        return _credential_without_library()
    # Not the empty one that `drumline/azure.py` gives to scripts.
    kind: Any = getattr(azure.identity, "_InstalledCredential", azure.identity.DefaultAzureCredential)
    if kind.__module__ == "drumline.identity":
        return _credential_without_library()
    credential = kind(exclude_interactive_browser_credential=True)

    def provide() -> dict[str, Any]:
        token = credential.get_token(_SCOPE)
        return {"token": token.token, "expires_at": datetime.fromtimestamp(token.expires_on, UTC)}

    try:
        with _silence_log():
            provide()
    except (ClientAuthenticationError, OSError, ValueError):
        return None
    return _AzureAccess("as who is logged in to Azure here (DefaultAzureCredential)", {}, provide)


@contextlib.contextmanager
def _silence_log() -> Iterator[None]:
    """Silence azure-identity, which logs at length what it did not find."""
    logger = logging.getLogger("azure.identity")
    before, logger.level = logger.level, logging.CRITICAL
    try:
        yield
    finally:
        logger.setLevel(before)


def _credential_without_library() -> _AzureAccess | None:
    if all(os.environ.get(name) for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET")):
        return _AzureAccess("as AZURE_CLIENT_ID", {"credential_type": "client_secret"})
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return _AzureAccess("with AZURE_FEDERATED_TOKEN_FILE", {"credential_type": "workload_identity"})
    return (
        _AzureAccess("as `az` is logged in", {"credential_type": "azure_cli"}) if shutil.which("az") else None
    )


def _key_credential(value: str, tried: str) -> _AzureAccess:
    return _AzureAccess(tried, {"credential_type": "access_key", "account_key": value})


def _sas_credential(value: str, tried: str) -> _AzureAccess:
    return _AzureAccess(tried, {"credential_type": "sas_token", "sas_key": value.lstrip("?")})


def _headers_of(
    made: Any, endpoint: str, place: Place, way: _AzureAccess
) -> Callable[[str], dict[str, str]] | None:
    """Return a function that asks by one HEAD for the Content-MD5, which obstore does not show."""
    if way.config.get("credential_type") not in (None, "access_key", "sas_token"):
        return None

    def ask(key: str) -> dict[str, str]:
        return request_headers(*_request(made, f"{endpoint}/{place.container}", key, way))

    return ask


def _request(made: Any, container: str, key: str, way: _AzureAccess) -> tuple[str, dict[str, str]]:
    url = f"{container}/{quote(key)}"
    if "account_key" in way.config:
        import obstore

        # Signed for GET, which HEAD is allowed with too.
        return str(obstore.sign(made, "GET", key, timedelta(minutes=10))), {}
    if "sas_key" in way.config:
        return f"{url}?{way.config['sas_key']}", {}
    if way.provider:
        return url, {"Authorization": f"Bearer {way.provider()['token']}", "x-ms-version": "2023-11-03"}
    return url, {}
