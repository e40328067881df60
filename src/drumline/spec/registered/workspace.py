"""A workspace: a home of its own for jobs and assets."""

from __future__ import annotations

from drumline.spec.entity import Written
from drumline.spec.hints import describe_ignored
from drumline.spec.kinds.fields import Any, Declared, OrEmpty, field
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import Anything, MapOf, Report, Text
from drumline.spec.reading.files import read_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import IO

    from drumline.spec.reading.source import Node

_TEXT = Text()

UNUSED = (
    "storage_account", "container_registry", "key_vault", "application_insights", "customer_managed_key",
    "hbi_workspace", "image_build_compute", "public_network_access", "network_acls", "identity",
    "primary_user_assigned_identity", "managed_network", "provision_network_now", "system_datastores_auth_mode",
    "serverless_compute", "enable_data_isolation", "allow_roleassignment_on_rg", "hub_id", "workspace_hub", "kind",
)  # fmt: skip
"""Azure's: each is answered with a warning."""


class Workspace(Written, Declared):
    """
    ``id``, ``mlflow_tracking_uri`` and ``discovery_url`` are set by whoever stores it. What else Azure's takes is
    accepted with a warning: there is no account of anything to be made.
    """

    name: str = field(_TEXT)
    display_name: str | None = field(_TEXT, default=None)
    description: str | None = field(_TEXT, default=None)
    tags: OrEmpty[dict[str, str]] = field(MapOf(Anything()), factory=dict)
    location: str | None = field(_TEXT, default=None)
    resource_group: str | None = field(_TEXT, default=None)
    id: str | None = field(None, default=None, init=False)
    mlflow_tracking_uri: str | None = field(None, default=None, init=False)
    discovery_url: str | None = field(None, default=None, init=False)
    _warnings: list[str] = field(None, factory=list, init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        for key, value in others.items():
            if value not in (None, False):
                is_azures = key in UNUSED
                unused = f"{key}: not used; a workspace is a folder of this machine"
                self._warnings.append(unused if is_azures else describe_ignored(key, self._fields))

    def __getattr__(self, name: str) -> None:
        if name not in UNUSED:
            raise AttributeError(f"'Workspace' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Workspace(name={self.name!r})"


WORKSPACE = Record(
    "a workspace",
    {**list_fields(Workspace), **dict.fromkeys(UNUSED, Anything())},
    required=("name",),
    ignored=(
        "$schema", "id", "discovery_url", "mlflow_tracking_uri", "notebook_info", "creation_context", "jobs", "home",
    ),
)  # fmt: skip


def load_workspace(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Workspace:
    """Load a workspace from a file. Raises SpecError with every problem of it."""
    _, root, base_path = read_tree(source, relative_origin, params_override)
    return from_tree(root, Report(base_path))


def from_tree(root: Node, report: Report) -> Workspace:
    """Return the workspace of a file. Raises SpecError with every problem of the file."""
    return Workspace(**WORKSPACE.read(root, report))
