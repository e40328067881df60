"""Assets: data, environments, models and components with their versions; and code, which clients upload."""

from __future__ import annotations

import io
import json
import os
import re
from datetime import UTC, datetime
from typing import Any

from starlette.convertors import StringConvertor, register_url_convertor

from drumline.contract.errors import DrumlineError, NotFoundError
from drumline.contract.process_identity import user
from drumline.control.assets import asset_verbs
from drumline.rest import asset_bodies, blob_access
from drumline.rest.arm import Call, Reply, choose_archived, page, warn
from drumline.rest.resource_ids import read_properties
from drumline.rest.routes import uploads
from drumline.spec import load

_UPLOAD_S = 24 * 3600.0
_KINDS = {path: kind for kind, path in asset_bodies.COLLECTIONS.items()}
_LOADERS: dict[str, Any] = {
    "data": load.load_data,
    "model": load.load_model,
    "environment": load.load_environment,
    "component": load.load_component,
}
_ANONYMOUS = ("CliV2AnonymousEnvironment", "azureml_anonymous")
"""The names under which the client registers what a job has written out."""

_CURATED = "AzureML-"
_LABELED = re.compile(
    r"(?P<id>(?:azureml:)?(?:/subscriptions/.*|azureml://registries/[^/]+)/environments/(?P<name>[^/]+))"
    r"/labels/(?P<label>[^/]+)"
)
_DEFAULT = "azureml_default"


def list_names(call: Call) -> dict[str, Any]:
    kind = _find_kind(call)
    listed = asset_verbs.describe_all(kind, archived=choose_archived(call), damaged=warn)
    bodies = [
        asset_bodies.write_container(kind, each, call.scope.path)
        for each in listed
        if each["name"] not in _ANONYMOUS
    ]
    return page(bodies, call)


def show_name(call: Call) -> dict[str, Any]:
    kind = _find_kind(call)
    latest = asset_verbs.describe_all(kind, call.name(), archived=None, damaged=warn)[0]
    version = str(latest["version"])
    following = str(int(version) + 1) if version.isascii() and version.isdigit() else None
    return asset_bodies.write_container(kind, latest, call.scope.path, following)


def put_name(call: Call) -> dict[str, Any]:
    """Archive or restore all versions of a name: nothing else of it can change."""
    _set_archived(call, _find_kind(call), None)
    return show_name(call)


def list_versions(call: Call) -> dict[str, Any]:
    """List the versions of a name, the newest first."""
    kind, name = _find_kind(call), call.name()
    try:
        listed = asset_verbs.describe_all(kind, name, archived=choose_archived(call), damaged=warn)
    except NotFoundError:
        if kind == "environment" and name.startswith(_CURATED):
            return page([_write_curated(call, name, "1")], call)
        raise
    return page([asset_bodies.write_asset(kind, each, call.scope.path) for each in listed], call)


def show_version(call: Call) -> dict[str, Any]:
    kind, name, version = _find_kind(call), call.name(), call.path["version"]
    try:
        return _write_version(call, kind, name, None if version == _DEFAULT else version)
    except NotFoundError:
        if kind == "environment" and name.startswith(_CURATED):
            return _write_curated(call, name, version)
        raise


def put_version(call: Call) -> Reply:
    """Register a version, or change what may change of one; ``isArchived`` archives and restores it."""
    kind, name, version = _find_kind(call), call.name(), call.path["version"]
    values = asset_bodies.read_asset(kind, name, version, call.body, uploads.find_code)
    build = values.get("build")
    if kind == "environment" and isinstance(build, dict) and build.get("path"):
        # The port of the next server is another, and its client sends the same version again.
        build["path"] = uploads.find_context(call, str(build["path"]))
    entity = _LOADERS[kind](io.BytesIO(json.dumps(values).encode()), relative_origin=".")
    asset_verbs.create(entity, version=version)
    _set_archived(call, kind, version)
    if name in _ANONYMOUS:
        asset_verbs.archive(kind, name, version)
    return Reply(_write_version(call, kind, name, version), 201)


def _write_version(call: Call, kind: str, name: str, version: str | None) -> dict[str, Any]:
    described = asset_verbs.describe(kind, name, version)
    body = asset_bodies.write_asset(kind, described, call.scope.path, is_anonymous=name in _ANONYMOUS)
    named: dict[str, Any] = name_versions(body)
    return named


def name_versions(value: Any) -> Any:
    """Return a body with versions of environments in place of labels: the client takes no label in an answer."""
    if isinstance(value, dict):
        return {key: name_versions(item) for key, item in value.items()}
    if isinstance(value, list):
        return [name_versions(item) for item in value]
    known = _LABELED.fullmatch(value) if isinstance(value, str) else None
    if known is None:
        return value
    try:
        version = asset_verbs.find("environment", known["name"], None, known["label"]).version
    except DrumlineError:  # One of Azure's own, which nobody has registered.
        version = "1"
    return f"{known['id']}/versions/{version}"


def _set_archived(call: Call, kind: str, version: str | None) -> None:
    archived = read_properties(call.body).get("isArchived")
    if archived is True:
        asset_verbs.archive(kind, call.name(), version)
    elif archived is False and (
        version is None or asset_verbs.describe(kind, call.name(), version)["is_archived"]
    ):
        asset_verbs.restore(kind, call.name(), version)


def _write_curated(call: Call, name: str, version: str) -> dict[str, Any]:
    """Return an environment of Azure's, which nobody has registered: jobs of it run in the Python that is here."""
    image = f"mcr.microsoft.com/azureml/curated/{name.removeprefix(_CURATED).lower()}:{version}"
    described = {"name": name, "version": version, "image": image}
    return asset_bodies.write_asset("environment", described, call.scope.path)


def _find_kind(call: Call) -> str:
    return _KINDS[call.path["kind"]]


class _KindConvertor(StringConvertor):
    """A part of a path that is one of the collections."""

    regex = "|".join(_KINDS)


register_url_convertor("kind", _KindConvertor())

# code


def begin_upload(call: Call) -> dict[str, Any]:
    """Give a place for code, and a signature to write there."""
    name, version = call.path["name"], call.path["version"]
    container = uploads.name_code_container(call, name, version)
    uploads.make_folder(name, version)
    address = f"{call.address}/{container}"
    token = blob_access.sign(call.key, container, "rcwdl", _UPLOAD_S)
    place = {
        "blobUri": address,
        "storageAccountArmId": call.make_id("storage"),
        "credential": {"credentialType": "SAS", "sasUri": f"{address}?{token}"},
    }
    return {
        "pendingUploadType": "TemporaryBlobReference",
        "pendingUploadId": version,
        "blobReferenceForConsumption": place,
    }


def put_code(call: Call) -> Reply:
    uploads.mark_programs(call.path["name"], call.path["version"])
    return Reply(show_code(call), 201)


def show_code(call: Call) -> dict[str, Any]:
    name, version = call.path["name"], call.path["version"]
    made = datetime.fromtimestamp(os.stat(uploads.find_code(name, version)).st_mtime, UTC).isoformat()
    return {
        "id": call.make_id("codes", name, "versions", version),
        "name": version,
        "type": "Microsoft.MachineLearningServices/workspaces/codes/versions",
        "systemData": {"createdAt": made, "createdBy": user(), "lastModifiedAt": made},
        "properties": {
            "codeUri": f"{call.address}/{uploads.name_code_container(call, name, version)}",
            "isAnonymous": True,
            "properties": {},
            "tags": {},
        },
    }


def list_code(call: Call) -> dict[str, Any]:
    """List none: the client then uploads the code, and skips what is there already."""
    return {"value": []}


_KIND = "/{kind:kind}"
"""Another collection is none of these routes'."""

ROUTES = [
    ("GET", "/codes/{name}/versions", list_code),
    ("GET", "/codes/{name}/versions/{version}", show_code),
    ("PUT", "/codes/{name}/versions/{version}", put_code),
    ("POST", "/codes/{name}/versions/{version}/startPendingUpload", begin_upload),
    ("GET", _KIND, list_names),
    ("GET", _KIND + "/{name}", show_name),
    ("PUT", _KIND + "/{name}", put_name),
    ("GET", _KIND + "/{name}/versions", list_versions),
    ("GET", _KIND + "/{name}/versions/{version}", show_version),
    ("PUT", _KIND + "/{name}/versions/{version:path}", put_version),
]
