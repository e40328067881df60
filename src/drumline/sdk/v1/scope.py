"""The part of a workspace that every object of v1 needs: its names, and looking for jobs and assets in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import folder
from drumline.sdk.ml_client import MLClient

if TYPE_CHECKING:
    from typing import Self


class WorkspaceScope:
    """The names of a workspace and its client. ``Workspace`` adds the objects that are in it."""

    def __init__(
        self,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        workspace_name: str | None = None,
        auth: Any = None,
        **kwargs: Any,
    ) -> None:
        self._client = MLClient(None, subscription_id, resource_group, workspace_name)
        self.name = workspace_name or ""
        self.subscription_id = subscription_id or ""
        self.resource_group = resource_group or ""
        self.location = "local"
        self.tags: dict[str, str] = {}

    @classmethod
    def of_rank(cls) -> Self:
        """Return the one that the job of this process is in."""
        return cls(workspace_name=folder.current_workspace() or None)

    def _here(self) -> Any:
        """Look for jobs and assets in this workspace, for the length of a ``with``."""
        return folder.workspace(self._client.jobs._workspace)

    def __repr__(self) -> str:
        return f"Workspace.create(name={self.name!r}, subscription_id={self.subscription_id!r})"
