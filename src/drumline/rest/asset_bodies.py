"""
Bodies of assets, datastores, computes and workspaces: read as the mapping of their YAML file, and written from it.

Versions have a body each, and so has their name, the container. Addresses of uploads, such as the context of an image,
stay as the client sends them: whoever serves the storage knows the folders.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.rest.job_bodies import BodyReader, BodyWriter, write_resource
from drumline.rest.resource_ids import (
    check_mapping,
    check_text,
    read_keys,
    read_path,
    read_properties,
    read_seconds,
    read_word,
    write_keys,
    write_reference,
    write_seconds,
    write_word,
)
from drumline.spec.entity import write_yaml
from drumline.spec.reading.source import parse, plain
from drumline.spec.registered.workspace import UNUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COLLECTIONS = {"data": "data", "model": "models", "environment": "environments", "component": "components"}
"""The part of an address that stands for each kind of asset."""

_DATA_NAMES = {
    "data_type": "type",
    "data_uri": "path",
    "model_type": "type",
    "model_uri": "path",
    "context_uri": "path",
}
_SERVER_FIELDS = (
    *("is_anonymous", "is_archived", "provisioning_state", "referenced_uris", "environment_type"),
    *("is_default", "datastore_type", "credentials", "service_data_access_auth_identity"),
)
_STORE_FIELDS = ("$schema", "id", "creation_context", "labels", "latest_version", "is_archived")
"""What ``asset_verbs.describe`` tells of a component that its file does not."""

# assets


def read_asset(
    kind: str, name: str, version: str, body: Mapping[str, Any], find_code: Callable[[str, str], str]
) -> dict[str, Any]:
    """
    Return the file of an asset that a body stands for. ``find_code``: as of ``job_bodies.read_job``.

    kind: one of ``COLLECTIONS``. Raises SpecError, and what ``find_code`` raises.
    """
    properties = read_properties(body)
    if kind == "component":
        spec = check_mapping(properties.get("componentSpec"), "componentSpec")
        values = {
            key: spec.pop(key) for key in ("inputs", "outputs") if key in spec
        }  # Declarations, as in YAML.
        values |= BodyReader(find_code).read_fields(spec, "properties")
        values = {key: value for key, value in values.items() if key not in _STORE_FIELDS}
        return {**values, "name": name, "version": version}
    values = _read_named_keys(properties, "properties")
    if "path" in values:
        values["path"] = read_path(check_text(values["path"], "path"))
    if "conda_file" in values:
        values["conda_file"] = plain(parse(check_text(values["conda_file"], "condaFile"), "condaFile"))
    for key in ("build", "inference_config"):
        if key in values:
            values[key] = _read_named_keys(values[key], key)
    if "flavors" in values:
        flavors = check_mapping(values["flavors"], "flavors")
        values["flavors"] = {key: check_mapping(item, key).get("data") or {} for key, item in flavors.items()}
    return {**values, "name": name, "version": version}


def _read_named_keys(value: object, place: str) -> dict[str, Any]:
    read = read_keys(value, place)
    return {_DATA_NAMES.get(key, key): item for key, item in read.items() if key not in _SERVER_FIELDS}


def write_asset(
    kind: str, described: Mapping[str, Any], workspace_id: str, *, is_anonymous: bool = False
) -> dict[str, Any]:
    """
    Return the body of a version, as ``asset_verbs.describe`` describes it.

    Code of a component has the id ``codes/component.NAME/versions/VERSION``.
    """
    properties = {**_write_common(described), "isAnonymous": is_anonymous}
    if kind == "data":
        properties |= {"dataType": described.get("type") or "uri_folder", "dataUri": described.get("path")}
    elif kind == "model":
        flavors = {key: {"data": data} for key, data in (described.get("flavors") or {}).items()}
        properties |= {
            "modelType": described.get("type"),
            "modelUri": described.get("path"),
            "flavors": flavors,
        }
        properties |= {"stage": described.get("stage"), "jobName": described.get("job_name")}
    elif kind == "environment":
        conda, build = described.get("conda_file"), described.get("build")
        properties |= {
            "image": described.get("image"),
            "condaFile": write_yaml(conda) if isinstance(conda, dict) else conda,
            "build": write_keys(build, {"path": "contextUri"}) if build else None,
            "osType": write_word(described.get("os_type") or "linux"),
            "environmentType": "UserCreated",
        }
    else:
        properties["componentSpec"] = _write_component_spec(described, workspace_id)
    place = f"{workspace_id}/{COLLECTIONS[kind]}/{described['name']}/versions/{described['version']}"
    return write_resource(described, place, properties)


def write_container(
    kind: str, latest: Mapping[str, Any], workspace_id: str, next_version: str | None = None
) -> dict[str, Any]:
    """Return the body of a name, from its latest version, as ``asset_verbs.describe`` describes it."""
    properties = {
        **_write_common(latest),
        "latestVersion": latest.get("latest_version") or latest.get("version"),
        "nextVersion": next_version,
        "dataType": latest.get("type") or "uri_folder" if kind == "data" else None,
    }
    return write_resource(latest, f"{workspace_id}/{COLLECTIONS[kind]}/{latest['name']}", properties)


def _write_common(described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "description": described.get("description"),
        "tags": _write_texts(described.get("tags")),
        "properties": _write_texts(described.get("properties")),
        "isArchived": bool(described.get("is_archived")),
    }


def _write_texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (values or {}).items() if value is not None}


def _write_component_spec(described: Mapping[str, Any], workspace_id: str) -> dict[str, Any]:
    """Return the file of a component with ids in place of references; an environment that is written out has none."""
    spec = {key: value for key, value in described.items() if key not in _STORE_FIELDS and value is not None}
    spec.setdefault("type", "command")
    if isinstance(spec.get("task"), dict):
        spec["task"] = dict(spec["task"])
    for part in (spec, spec.get("task") or {}):
        environment = part.pop("environment", None)
        if isinstance(environment, str):
            part["environment"] = "azureml:" + write_reference(environment, workspace_id, "environments")
        if part.get("code"):
            part["code"] = f"azureml:{workspace_id}/codes/component.{spec['name']}/versions/{spec['version']}"
    if isinstance(spec.get("partition_keys"), list):
        spec["partition_keys"] = json.dumps(spec["partition_keys"])  # As the client sends and reads them.
    if isinstance(spec.get("jobs"), dict):
        writer = BodyWriter(workspace_id)
        spec["jobs"] = {name: writer.write_node(name, node) for name, node in spec["jobs"].items()}
    return spec


# datastores


def read_datastore(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file of a datastore, with its secrets. Raises SpecError."""
    properties = read_properties(body)
    kind = read_word(check_text(properties.get("datastoreType"), "datastoreType"))
    given = read_keys(properties.get("credentials", {}), "credentials")
    secrets = read_keys(given.pop("secrets", {}), "credentials.secrets")
    left_out = ("credentials_type", "secrets_type")
    names = {"key": "account_key"}
    credentials = {
        names.get(key, key): item for key, item in {**given, **secrets}.items() if key not in left_out
    }
    held = {"credentials": credentials} if credentials else {}
    return {**_read_named_keys(properties, "properties"), "name": name, "type": kind, **held}


def write_datastore(
    described: Mapping[str, Any], workspace_id: str, account: str, endpoint: str = "core.windows.net"
) -> dict[str, Any]:
    """
    Return the body of a datastore without its secrets; a folder is a container of the name of the datastore.

    account: the account whose containers are the folders. ``endpoint``: of that account.
    """
    name, kind = str(described["name"]), str(described["type"])
    left_out = ("name", "type", "id", "is_default", "credentials", "path", "tags", "properties")
    given = write_keys({key: value for key, value in described.items() if key not in left_out})
    folder = {"accountName": account, "containerName": name, "endpoint": endpoint, "protocol": "https"}
    properties = {
        **_write_common(described),
        **(folder if kind == "local" else {}),
        **given,
        "datastoreType": "AzureBlob" if kind == "local" else write_word(kind),
        "credentials": {"credentialsType": "None"},
        "isDefault": bool(described.get("is_default")),
    }
    return write_resource(described, f"{workspace_id}/datastores/{name}", properties)


def write_secrets(sas: str = "", key: str = "") -> dict[str, str]:
    """Return the answer to ``listSecrets``: a query that is signed, or the key of an account."""
    return {"secretsType": "Sas", "sasToken": sas} if sas else {"secretsType": "AccountKey", "key": key}


# computes and workspaces


def read_compute(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file of a compute. Raises SpecError for one that is no cluster."""
    properties = read_properties(body)
    kind = check_text(properties.get("computeType"), "computeType")
    if kind.lower() not in ("amlcompute", "computeinstance"):
        raise SpecError(
            f"computes of type {kind!r} are not supported", "AmlCompute, or drumline compute attach"
        )
    inner = check_mapping(properties.get("properties", {}), "properties.properties")
    scale = check_mapping(inner.get("scaleSettings", {}), "scaleSettings")
    idle = scale.get("nodeIdleTimeBeforeScaleDown")
    values = {
        "description": properties.get("description"),
        "tags": body.get("tags"),
        "location": body.get("location"),
        "size": inner.get("vmSize"),
        "tier": read_word(inner.get("vmPriority")),
        "min_instances": scale.get("minNodeCount"),
        "max_instances": 1 if kind.lower() == "computeinstance" else scale.get("maxNodeCount"),
        "idle_time_before_scale_down": read_seconds(idle, "nodeIdleTimeBeforeScaleDown"),
    }
    return {
        "name": name,
        "type": "amlcompute",
        **{key: item for key, item in values.items() if item is not None},
    }


def write_compute(described: Mapping[str, Any], workspace_id: str, location: str = "local") -> dict[str, Any]:
    """Return the body of a compute, as ``computes.settings`` describes it: a cluster, whatever its engine."""
    idle = described.get("idle_time_before_scale_down")
    is_spot = str(described.get("tier")).lower().replace("_", "") == "lowpriority"
    inner = {
        "vmSize": described.get("size") or described["type"],
        "vmPriority": "LowPriority" if is_spot else "Dedicated",
        "allocationState": "Steady",
        "osType": "Linux",
        "remoteLoginPortPublicAccess": "Disabled",
        "scaleSettings": {
            "minNodeCount": described.get("min_instances") or 0,
            "maxNodeCount": described.get("max_instances") or described.get("nodes") or 1,
            "nodeIdleTimeBeforeScaleDown": write_seconds(120 if idle is None else idle),
        },
    }
    properties = {
        "computeType": "AmlCompute",
        "computeLocation": location,
        "description": described.get("description"),
        "provisioningState": described.get("provisioning_state") or "Succeeded",
        "disableLocalAuth": True,
        "properties": inner,
    }
    body = write_resource(described, f"{workspace_id}/computes/{described['name']}", properties)
    return {**body, "location": location, "tags": _write_texts(described.get("tags"))}


def read_workspace(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file of a workspace; what a folder has no use for is kept, to be warned of. Raises SpecError."""
    given = check_mapping(body, "the body")
    given |= read_keys(given.get("properties", {}), "properties")
    given["display_name"] = given.get("friendly_name")
    kept = ("display_name", "description", "location", "tags", *UNUSED)
    return {"name": name, **{key: given[key] for key in kept if given.get(key)}}


def write_workspace(
    described: Mapping[str, Any], workspace_id: str, discovery: str, tracking: str
) -> dict[str, Any]:
    """Return the body of a workspace. ``discovery``, ``tracking``: the addresses of its services and of MLflow."""
    properties = {
        "friendlyName": described.get("display_name") or described["name"],
        "description": described.get("description") or "",
        "workspaceId": described["name"],
        "discoveryUrl": discovery,
        "mlFlowTrackingUri": tracking,
        "provisioningState": "Succeeded",
        "publicNetworkAccess": "Enabled",
    }
    place = {"location": described.get("location") or "local", "kind": "Default"}
    body = write_resource(described, workspace_id, properties)
    return {**body, **place, "tags": _write_texts(described.get("tags"))}
