"""
``MLClient``: the same constructor, the same operation groups.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.mlclient
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar, cast

from drumline.contract.errors import SpecError, UsageError
from drumline.sdk.compute_operations import ComputeOperations
from drumline.sdk.job_operations import JobOperations
from drumline.spec.compute import Compute
from drumline.spec.job import Job

if TYPE_CHECKING:
    from drumline.sdk.compute_operations import Done
    from drumline.spec.command import Command

T = TypeVar("T")

_CONFIG = ("config.json", os.path.join(".azureml", "config.json"))


class MLClient:
    """
    Jobs and computes as this machine knows them. Credential, subscription, resource group and workspace are accepted
    and kept, not used: there is nobody to sign in to.
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
        self.jobs = JobOperations()
        self.compute = ComputeOperations()

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
        With the names of ``config.json`` or ``.azureml/config.json``, looked for in ``path`` and the folders above it.

        Raises UsageError when there is none, or it is not one.
        """
        found = _find_config(os.fspath(path) if path else os.getcwd(), file_name)
        try:
            with open(found, encoding="utf-8") as file:
                data = json.load(file)
            names = {key: str(data[key]) for key in ("subscription_id", "resource_group", "workspace_name")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{found} is not a workspace's configuration",
                "it holds subscription_id, resource_group and workspace_name",
            ) from error
        return cls(credential, names["subscription_id"], names["resource_group"], names["workspace_name"])

    def create_or_update(self, entity: T, **kwargs: Any) -> T:
        """
        Submit a job, as ``jobs.create_or_update``, or attach a compute. Raises SpecError for anything else.
        """
        if isinstance(entity, Compute):
            attached: Any = self.compute.begin_create_or_update(entity).result()
            return cast("T", attached)
        if not isinstance(entity, Job):
            raise SpecError(
                f"{type(entity).__name__} entities are not supported yet", "jobs and computes are"
            )
        submitted: Any = self.jobs.create_or_update(cast("Command", entity), **kwargs)
        return cast("T", submitted)

    def begin_create_or_update(self, entity: Compute, **kwargs: Any) -> Done[Compute]:
        """Attach a compute; as ``compute.begin_create_or_update``."""
        return self.compute.begin_create_or_update(entity)


def _find_config(start: str, file_name: str | None) -> str:
    if os.path.isfile(start):
        return start
    folder = os.path.abspath(start)
    names = (file_name, os.path.join(".azureml", file_name)) if file_name else _CONFIG
    while True:
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                return path
        parent = os.path.dirname(folder)
        if parent == folder:
            raise UsageError(
                f"there is no {names[0]} in {start} or above it", "or give the names to MLClient(...)"
            )
        folder = parent
