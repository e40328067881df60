"""
``MLClient.workspaces``.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations.workspaceoperations
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.folder import current_workspace
from drumline.control.settings import workspaces
from drumline.sdk.compute_operations import FinishedPoller
from drumline.sdk.job_views import let_mlflow_read
from drumline.sdk.operations import Operations, print_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.registered.workspace import Workspace


class WorkspaceOperations(Operations):
    def __init__(self, subscription: str | None = None, resource_group: str | None = None) -> None:
        self._subscription = subscription
        self._resource_group = resource_group

    def get(self, name: str | None = None, **kwargs: Any) -> Workspace:
        """
        Return a workspace; without a name, or with the client's, the client's own, even if nothing is in it yet.

        Raises NotFoundError for any other that does not exist.
        """
        mine = current_workspace()
        is_mine = not name or name == mine or workspaces.is_placeholder(name)
        return self._of_client(workspaces.describe(mine) if is_mine else workspaces.get(str(name)))

    def _of_client(self, found: Workspace) -> Workspace:
        """Add the client's subscription and resource group, and let MLflow read its store."""
        found.resource_group = found.resource_group or self._resource_group
        found.id = workspaces.arm_id(found.name, subscription=self._subscription, group=found.resource_group)
        let_mlflow_read(found.mlflow_tracking_uri)
        return found

    def list(self, *, scope: str = "resource_group", filtered_kinds: Any = None) -> Iterator[Workspace]:
        """List them in alphabetical order, with any ``scope`` and ``filtered_kinds``."""
        return map(self._of_client, workspaces.all(damaged=lambda said: print_warnings([said])))

    def begin_create(self, workspace: Workspace, *args: Any, **kwargs: Any) -> FinishedPoller[Workspace]:
        """Create or change it; using a workspace creates it too. Raises SpecError."""
        print_warnings(workspaces.create(workspace))
        return FinishedPoller(self._of_client(workspaces.get(workspace.name)))

    def begin_update(self, workspace: Workspace, **kwargs: Any) -> FinishedPoller[Workspace]:
        """Change an existing one, as ``begin_create``."""
        workspaces.get(workspace.name)
        return self.begin_create(workspace)

    def begin_delete(
        self,
        name: str,
        *,
        delete_dependent_resources: bool = True,
        permanently_delete: bool = False,
        **kwargs: Any,
    ) -> FinishedPoller[None]:
        """Delete it with all its jobs and assets. Raises NotFoundError; UsageError while a job has not ended."""
        workspaces.delete(name)
        return FinishedPoller(None)
