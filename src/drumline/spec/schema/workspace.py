"""The table of a workspace."""

from __future__ import annotations

from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Kind, MapOf, Text

_TEXT = Text()
UNUSED = (
    "storage_account", "container_registry", "key_vault", "application_insights", "customer_managed_key",
    "hbi_workspace", "image_build_compute", "public_network_access", "network_acls", "identity",
    "primary_user_assigned_identity", "managed_network", "provision_network_now", "system_datastores_auth_mode",
    "serverless_compute", "enable_data_isolation", "allow_roleassignment_on_rg", "hub_id", "workspace_hub", "kind",
)  # fmt: skip
"""Azure's: each is answered with a warning."""

_FIELDS: dict[str, Kind] = {
    "name": _TEXT,
    "display_name": _TEXT,
    "description": _TEXT,
    "tags": MapOf(Anything()),
    "location": _TEXT,
    "resource_group": _TEXT,
}
_READ_ONLY = ("$schema", "id", "discovery_url", "mlflow_tracking_uri", "notebook_info", "creation_context")
WORKSPACE = Record(
    "a workspace",
    {**_FIELDS, **dict.fromkeys(UNUSED, Anything())},
    required=("name",),
    ignored=(*_READ_ONLY, "jobs", "home"),
)
