"""
``MLClient.workspaces``.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations.workspaceoperations
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import current_workspace
from drumline.control import workspaces
from drumline.control.terminal import clean
from drumline.sdk.compute_operations import Done
from drumline.sdk.operations import Operations
from drumline.sdk.tracking import let_mlflow_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drumline.spec.workspace import Workspace


class WorkspaceOperations(Operations):
    def __init__(self, subscription: str | None = None, resource_group: str | None = None) -> None:
        self._subscription = subscription
        self._resource_group = resource_group

    def get(self, name: str | None = None, **kwargs: Any) -> Workspace:
        """
        That of the client without a name, and by its name whether anything is in it yet. Raises NotFoundError for any
        other that is not there.
        """
        mine = current_workspace()
        is_mine = not name or name == mine or is_placeholder(name)
        return self._of_client(workspaces.described(mine) if is_mine else workspaces.get(str(name)))

    def _of_client(self, found: Workspace) -> Workspace:
        """With the client's subscription and resource group; MLflow may read from where it says."""
        found.resource_group = found.resource_group or self._resource_group
        found.id = workspaces.arm_id(found.name, subscription=self._subscription, group=found.resource_group)
        let_mlflow_read(found.mlflow_tracking_uri)
        return found

    def list(self, *, scope: str = "resource_group", filtered_kinds: Any = None) -> Iterator[Workspace]:
        """In the order of the alphabet, whatever ``scope`` and ``filtered_kinds`` say."""
        return map(self._of_client, workspaces.all(damaged=lambda said: _warn([said])))

    def begin_create(self, workspace: Workspace, *args: Any, **kwargs: Any) -> Done[Workspace]:
        """Make it, or change what is said of it; using one that is not there makes it too. Raises SpecError."""
        _warn(workspaces.create(workspace))
        return Done(self._of_client(workspaces.get(workspace.name)))

    def begin_update(self, workspace: Workspace, **kwargs: Any) -> Done[Workspace]:
        """As ``begin_create``, of one that is there."""
        workspaces.get(workspace.name)
        return self.begin_create(workspace)

    def begin_delete(
        self,
        name: str,
        *,
        delete_dependent_resources: bool = True,
        permanently_delete: bool = False,
        **kwargs: Any,
    ) -> Done[None]:
        """With all jobs and assets in it, for good. Raises NotFoundError; UsageError while a job has not ended."""
        workspaces.delete(name)
        return Done(None)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


def is_placeholder(name: str | None) -> bool:
    """``<WORKSPACE_NAME>``: what documents have in the place of a name."""
    return bool(name) and str(name).startswith("<") and str(name).endswith(">")
