"""Workspaces, their datastores and computes, and where the services of a workspace are."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import urlsplit

from drumline.contract.folder import current_workspace, workspace_names
from drumline.control.assets import datastore_verbs
from drumline.control.machine import computes
from drumline.control.settings import workspaces
from drumline.rest import asset_bodies, blob_access
from drumline.rest.arm import Call, Reply, Scope, page, warn
from drumline.rest.routes.uploads import name_datastore_container
from drumline.spec import load
from drumline.spec.entity import to_dict
from drumline.spec.registered.datastores import LocalDatastore
from drumline.spec.registered.workspace import load_workspace

_KEYLESS_VERSION = "2024"
"""Of the interface: the first in which the client takes signatures for a datastore; azure-ai-ml 1.16 has an older."""

_SAS_S = 24 * 3600.0
_SERVICES = ("api", "history", "experimentation", "execution", "metric", "artifact", "pipelines", "mlflow")


def show_workspace(call: Call) -> dict[str, Any]:
    return _write_workspace(call, call.scope, current_workspace())


def list_workspaces(call: Call) -> dict[str, Any]:
    scopes = {
        name: Scope(call.path["subscription"], call.path.get("group", "local"), name)
        for name in workspace_names()
    }
    return {"value": [_write_workspace(call, scope, name) for name, scope in scopes.items()]}


def _write_workspace(call: Call, scope: Scope, name: str) -> dict[str, Any]:
    found = workspaces.describe(name)
    described = {**to_dict(found), "name": scope.workspace}
    discovery = f"{call.address}/discovery"
    return asset_bodies.write_workspace(described, scope.path, discovery, found.mlflow_tracking_uri or "")


def put_workspace(call: Call) -> Reply:
    values = asset_bodies.read_workspace(current_workspace(), call.body)
    workspaces.create(load_workspace(io.BytesIO(json.dumps(values).encode())))
    return Reply(show_workspace(call), 201)


def patch_workspace(call: Call) -> dict[str, Any]:
    put_workspace(call)
    return show_workspace(call)


def delete_workspace(call: Call) -> Reply:
    # By its own name: a placeholder stands for the server's workspace elsewhere, and deletes none.
    workspaces.delete(call.scope.workspace)
    return Reply({})


def show_services(call: Call) -> dict[str, str]:
    """Reply at the address of discovery: all services are here."""
    return dict.fromkeys(_SERVICES, call.address)


def refuse_mlflow(call: Call) -> Reply:
    """Say where the runs are: MLflow with azureml-mlflow reads that store, or server, as any MLflow does."""
    uri = workspaces.describe(current_workspace()).mlflow_tracking_uri
    text = f"runs are not behind this address: mlflow.set_tracking_uri({uri!r}), the workspace's mlflow_tracking_uri"
    return Reply({"error_code": "NOT_IMPLEMENTED", "message": text}, 501)


def list_sizes(call: Call) -> dict[str, Any]:
    """List the sizes of machines: there is this one."""
    cores, gpus, memory_gb = computes.measure_machine()
    size = {
        "name": "local", "family": "local", "vCPUs": cores, "gpus": gpus, "lowPriorityCapable": True,
        "memoryGB": memory_gb, "premiumIO": False, "osVhdSizeMB": 0, "maxResourceVolumeMB": 0,
        "supportedComputeTypes": ["AmlCompute", "ComputeInstance"],
    }  # fmt: skip
    return {"value": [size]}


# datastores


def put_datastore(call: Call) -> Reply:
    values = asset_bodies.read_datastore(call.name(), call.body)
    datastore_verbs.create(load.load_datastore(io.BytesIO(json.dumps(values).encode())))
    return Reply(show_datastore(call), 201)


def show_datastore(call: Call) -> dict[str, Any]:
    return _write_datastore(call, call.name())


def list_datastores(call: Call) -> dict[str, Any]:
    names = datastore_verbs.names()
    if call.query.get("isDefault", "").lower() == "true":
        names = [datastore_verbs.DEFAULT]
    return page([_write_datastore(call, name) for name in names], call)


def _write_datastore(call: Call, name: str) -> dict[str, Any]:
    found = datastore_verbs.get(name)
    described = {**to_dict(found), "is_default": found.is_default}
    # The client makes an address of it: https://ACCOUNT.blob.ENDPOINT/CONTAINER.
    body = asset_bodies.write_datastore(described, call.scope.path, f"{urlsplit(call.address).netloc}/")
    if isinstance(found, LocalDatastore):
        container = name_datastore_container(call, name)
        kind = "AccountKey" if _takes_keys_alone(call) else "Sas"
        body["properties"] |= {"containerName": container, "credentials": {"credentialsType": kind}}
    return body


def _takes_keys_alone(call: Call) -> bool:
    return call.query.get("api-version", "9") < _KEYLESS_VERSION


def list_secrets(call: Call) -> dict[str, str]:
    """Give a signature for all that is in a datastore, for a day. Raises UsageError for one that is elsewhere."""
    name = call.name()
    if not isinstance(datastore_verbs.get(name), LocalDatastore):
        # The client is to ask Azure itself: secrets that were registered stay here.
        return {"secretsType": "None"}
    if _takes_keys_alone(call):
        return asset_bodies.write_secrets(key=blob_access.make_account_key(call.key))
    container = name_datastore_container(call, name)
    return asset_bodies.write_secrets(blob_access.sign(call.key, container, blob_access.PERMISSIONS, _SAS_S))


def delete_datastore(call: Call) -> Reply:
    datastore_verbs.delete(call.name())
    return Reply({})


# computes


def show_compute(call: Call) -> dict[str, Any]:
    return asset_bodies.write_compute(computes.settings(computes.find(call.name())), call.scope.path)


def list_computes(call: Call) -> dict[str, Any]:
    described = [computes.settings(one) for one in computes.all(damaged=warn)]
    return page([asset_bodies.write_compute(one, call.scope.path) for one in described], call)


def put_compute(call: Call) -> Reply:
    values = asset_bodies.read_compute(call.name(), call.body)
    computes.attach(load.load_compute(io.BytesIO(json.dumps(values).encode())))
    return Reply(show_compute(call), 201)


def delete_compute(call: Call) -> Reply:
    computes.detach(call.name())
    return Reply({})


def list_nodes(call: Call) -> dict[str, Any]:
    listed = computes.nodes(call.name()) if call.name() in computes.names() else ()
    return {"nodes": [{"nodeId": node.node, "nodeState": "idle"} for node in listed]}


ROUTES = [
    ("GET", "/", show_workspace),
    ("PUT", "/", put_workspace),
    ("PATCH", "/", patch_workspace),
    ("DELETE", "/", delete_workspace),
    ("GET", "/datastores", list_datastores),
    ("GET", "/datastores/{name}", show_datastore),
    ("PUT", "/datastores/{name}", put_datastore),
    ("DELETE", "/datastores/{name}", delete_datastore),
    ("POST", "/datastores/{name}/listSecrets", list_secrets),
    ("GET", "/computes", list_computes),
    ("GET", "/computes/{name}", show_compute),
    ("PUT", "/computes/{name}", put_compute),
    ("DELETE", "/computes/{name}", delete_compute),
    ("POST", "/computes/{name}/listNodes", list_nodes),
]

MLFLOW_ROUTES = [(method, "/{path:path}", refuse_mlflow) for method in ("GET", "POST", "PATCH", "DELETE")]

_PROVIDER = f"/providers/{workspaces.PROVIDER}/workspaces"

OUTSIDE = [
    ("/discovery", show_services),
    ("/subscriptions/{subscription}/resourceGroups/{group}" + _PROVIDER, list_workspaces),
    ("/subscriptions/{subscription}" + _PROVIDER, list_workspaces),
    (
        "/subscriptions/{subscription}" + f"/providers/{workspaces.PROVIDER}/locations" + "/{place}/vmSizes",
        list_sizes,
    ),
]
"""Paths without a workspace."""
