"""
``MLClient``: the same constructor, the same operation groups.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.mlclient
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

from drumline.azure import NotSupportedError
from drumline.contract import folder
from drumline.contract.errors import SpecError, UsageError
from drumline.contract.ownership import check_owner
from drumline.control.settings import workspaces
from drumline.control.terminal import clean
from drumline.sdk import asset_operations
from drumline.sdk.compute_operations import ComputeOperations
from drumline.sdk.job_operations import JobOperations
from drumline.sdk.workspace_operations import WorkspaceOperations
from drumline.spec.foreign import translate_object
from drumline.spec.jobs.job import Job
from drumline.spec.registered.compute import Compute
from drumline.spec.registered.workspace import Workspace

if TYPE_CHECKING:
    from drumline.sdk.compute_operations import FinishedPoller
    from drumline.spec.jobs.command import Command

T = TypeVar("T")

_CONFIG = ("config.json", os.path.join(".azureml", "config.json"))


class MLClient:
    """
    Jobs and assets of a workspace, and computes, as this machine knows them. A workspace is a folder of its own:
    ``$DRUMLINE_HOME/workspaces/<workspace_name>``; without a name it is ``DRUMLINE_WORKSPACE``'s, else the base home.

    Credential, subscription and resource group are stored, not used: there is no service to sign in to.
    Raises UsageError for what cannot be a workspace's name, and as ``ownership.check_owner``.
    """

    def __init__(
        self,
        credential: object = None,
        subscription_id: str | None = None,
        resource_group_name: str | None = None,
        workspace_name: str | None = None,
        registry_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.subscription_id = subscription_id
        self.resource_group_name = resource_group_name
        self.workspace_name = workspace_name
        self._credential = credential
        if registry_name:
            where = workspace_name or "the workspace"
            said = f"registry_name: Drumline has no registries; assets are looked for in {where}"
            print(f"warning: {clean(said)}", file=sys.stderr)
        check_owner(folder.base_home())
        with folder.workspace(_choose_workspace(workspace_name)):
            # Each keeps to the workspace in which it is made: ``sdk/operations.py``.
            self.jobs = JobOperations()
            self.compute = ComputeOperations()
            self.data = asset_operations.DataOperations()
            self.environments = asset_operations.EnvironmentOperations()
            self.models = asset_operations.ModelOperations()
            self.components = asset_operations.ComponentOperations()
            self.datastores = asset_operations.DatastoreOperations()
            self.workspaces = WorkspaceOperations(subscription_id, resource_group_name)

    # Public scripts read these, and _credential, although they are private.
    _operation_scope = property(lambda self: self)
    _workspaces = property(lambda self: self.workspaces)

    @classmethod
    def from_config(
        cls,
        credential: object = None,
        *,
        path: str | os.PathLike[str] | None = None,
        file_name: str | None = None,
        **kwargs: Any,
    ) -> MLClient:
        """
        Use the names of ``config.json`` or ``.azureml/config.json`` in ``path`` or the nearest folder above it.

        Raises UsageError when there is none, or it is not one.
        """
        found = _find_config(os.fspath(path) if path else os.getcwd(), file_name)
        try:
            with open(found, encoding="utf-8") as file:
                data = json.load(file)
            names = _parse_config(data)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{found} is not a workspace's configuration",
                "it must contain subscription_id, resource_group and workspace_name",
            ) from error
        return cls(credential, names["subscription_id"], names["resource_group"], names["workspace_name"])

    def create_or_update(self, entity: T, **kwargs: Any) -> T:
        """
        Submit a job, as ``jobs.create_or_update``, attach a compute, register an asset, or make a workspace.

        Raises SpecError for anything else.
        """
        entity = translate_object(entity)
        if isinstance(entity, Compute):
            attached: Any = self.compute.begin_create_or_update(entity).result()
            return cast("T", attached)
        if isinstance(entity, Workspace):
            made: Any = self.workspaces.begin_create(entity).result()
            return cast("T", made)
        group = asset_operations.find_group(entity)
        if group:
            registered: Any = getattr(self, group).create_or_update(entity, **kwargs)
            return cast("T", registered)
        if not isinstance(entity, Job):
            known = "jobs, computes, data, environments, models, components, datastores, workspaces"
            raise SpecError(f"{type(entity).__name__} entities are not supported", f"supported: {known}")
        submitted: Any = self.jobs.create_or_update(cast("Command", entity), **kwargs)
        return cast("T", submitted)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _OTHER_GROUPS.split():
                raise NotSupportedError(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        names = ("subscription_id", "resource_group_name", "workspace_name")
        return f"MLClient({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def begin_create_or_update(self, entity: Any, **kwargs: Any) -> FinishedPoller[Any]:
        """Attach a compute, as ``compute.begin_create_or_update``; make a workspace, as ``workspaces.begin_create``."""
        entity = translate_object(entity)
        if isinstance(entity, Workspace):
            return self.workspaces.begin_create(entity)
        return self.compute.begin_create_or_update(entity)


_OTHER_GROUPS = """
azure_openai_deployments batch_deployments batch_endpoints capability_hosts connections deployment_templates evaluators
feature_sets feature_store_entities feature_stores indexes marketplace_subscriptions online_deployments online_endpoints
registries schedules serverless_endpoints workspace_outbound_rules
"""
"""Groups of azure-ai-ml's client that Drumline lacks."""

_SCOPE = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/(?:.+/)?workspaces/([^/]+)/?", re.IGNORECASE
)
"""The id of a workspace, which older configurations have in the place of its three names."""


def _parse_config(data: dict[str, Any]) -> dict[str, str]:
    """Return the three names. Raises KeyError, TypeError, ValueError for what is not a configuration."""
    keys = ("subscription_id", "resource_group", "workspace_name")
    if "Scope" not in data:
        return {key: str(data[key]) for key in keys}
    found = _SCOPE.fullmatch(data["Scope"])
    if found is None:
        raise ValueError("not the id of a workspace")
    return dict(zip(keys, found.groups(), strict=True))


def _choose_workspace(workspace_name: str | None) -> str | None:
    """Return the name as ``folder.workspace`` takes it; a placeholder that was never filled in counts as none."""
    if workspaces.is_placeholder(workspace_name):
        where = clean(folder.home())
        print(
            f"warning: workspace_name: {clean(str(workspace_name))} is a placeholder; using {where}",
            file=sys.stderr,
        )
        workspace_name = None
    return workspace_name or folder.chosen_workspace()


def _find_config(start: str, file_name: str | None) -> str:
    if os.path.isfile(start):
        return start
    place = os.path.abspath(start)
    names = (file_name, os.path.join(".azureml", file_name)) if file_name else _CONFIG
    while True:
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                return path
        parent = os.path.dirname(place)
        if parent == place:
            raise UsageError(
                f"there is no {names[0]} in {start} or its parent folders", "pass the names to MLClient(...)"
            )
        place = parent
