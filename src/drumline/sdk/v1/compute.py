"""
Compute targets of v1.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.compute.amlcompute.amlcompute
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.machine import computes
from drumline.spec.entity import to_dict
from drumline.spec.registered.compute import AmlCompute as Today

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.sdk.v1.scope import WorkspaceScope


class ComputeTargetException(NotFoundError):  # noqa: N818 - azureml's name
    """No compute has that name; scripts then create one."""


class ComputeTarget:
    """An attached compute. ``ComputeTarget(ws, name)`` raises ComputeTargetException if there is none of that name."""

    def __init__(self, workspace: WorkspaceScope, name: str, **kwargs: Any) -> None:
        self.workspace: Any = workspace
        self.name = name
        self._found: Any = None
        self.refresh_state()

    @staticmethod
    def create(workspace: WorkspaceScope, name: str, provisioning_configuration: Any) -> AmlCompute:
        """
        Attach it: to the Slurm cluster of this machine, else as this machine. One of its name is updated.

        Raises SpecError, PlanError.
        """
        if not isinstance(provisioning_configuration, AmlComputeProvisioningConfiguration):
            raise UsageError(
                f"{type(provisioning_configuration).__name__} cannot be created",
                "use AmlCompute.provisioning_configuration(...)",
            )
        workspace._client.compute.begin_create_or_update(provisioning_configuration.to_compute(name))
        return AmlCompute(workspace, name)

    @staticmethod
    def attach(workspace: WorkspaceScope, name: str, attach_configuration: Any) -> ComputeTarget:
        """Raise UsageError: computes are attached by the command line."""
        raise UsageError("computes of that type cannot be attached", "drumline compute attach --help")

    type = "AmlCompute"
    _look_up = staticmethod(computes.get)
    provisioning_state = "Succeeded"
    provisioning_errors = None
    location = "local"

    @property
    def tags(self) -> dict[str, str]:
        return dict(self._found.tags or {})

    @property
    def vm_size(self) -> str | None:
        """Return the first instance type of a Slurm compute."""
        return next(iter(getattr(self._found, "instance_types", None) or ()), None)

    def refresh_state(self) -> None:
        """Read it again. Raises ComputeTargetException if it no longer exists."""
        try:
            self._found = self._look_up(self.name)
        except NotFoundError as error:
            raise ComputeTargetException(error.message, error.hint) from None

    def wait_for_completion(self, show_output: bool = False, **kwargs: Any) -> None:
        """Return at once. A cluster's nodes come with the jobs, for any ``min_node_count``."""
        if show_output:
            sys.stdout.write("Succeeded\nAmlCompute wait for completion finished\n\n")
            sys.stdout.flush()

    def get_status(self) -> AmlComputeStatus:
        self.refresh_state()
        return AmlComputeStatus(self._found)

    def serialize(self) -> dict[str, Any]:
        return {**to_dict(self._found), "provisioningState": "Succeeded"}

    def list_nodes(self) -> Sequence[dict[str, Any]]:
        """List its nodes. Raises EngineError when the cluster does not answer."""
        nodes = self.workspace._client.compute.list_nodes(self.name)
        return [{**vars(node), "nodeId": node.node_id, "nodeState": node.node_state} for node in nodes]

    def update(self, min_nodes: Any = None, max_nodes: Any = None, **kwargs: Any) -> None:
        """Set ``max_nodes`` of a Slurm compute, the most that a job may ask for. The rest has no effect here."""
        if max_nodes is not None:
            config = AmlComputeProvisioningConfiguration(max_nodes=max_nodes)
            self.workspace._client.compute.begin_create_or_update(config.to_compute(self.name))
        self.refresh_state()

    def delete(self) -> None:
        """Detach it; machines and jobs stay."""
        self.workspace._client.compute.begin_delete(self.name)

    detach = delete

    @staticmethod
    def list(workspace: WorkspaceScope) -> Sequence[AmlCompute]:
        """List the attached computes."""
        names = (one.name for one in workspace._client.compute.list())
        return [AmlCompute(workspace, name) for name in names if name != computes.LOCAL]

    def __repr__(self) -> str:
        return f"AmlCompute(workspace={self.workspace.name!r}, name={self.name!r})"


class AmlCompute(ComputeTarget):
    @staticmethod
    def provisioning_configuration(vm_size: str = "", **kwargs: Any) -> AmlComputeProvisioningConfiguration:
        return AmlComputeProvisioningConfiguration(vm_size=vm_size, **kwargs)

    @staticmethod
    def supported_vmsizes(workspace: WorkspaceScope, location: str | None = None) -> Sequence[Any]:
        """Return an empty list: machines here have no sizes."""
        return []


class NamedTarget(AmlCompute):
    """A compute that a job may name: this machine if nobody attached it."""

    _look_up = staticmethod(computes.find)


class AmlComputeStatus:
    """A cluster with all its nodes, which is how Slurm keeps them."""

    allocation_state = "Steady"
    provisioning_state = "Succeeded"
    errors = None

    def __init__(self, found: Any) -> None:
        self.scale_settings = ScaleSettings(getattr(found, "max_instances", None) or 1)
        self.current_node_count = self.target_node_count = 0
        self.vm_size = next(iter(getattr(found, "instance_types", None) or ()), None)

    def serialize(self) -> dict[str, Any]:
        """Return it with azureml's keys."""
        return {
            "allocationState": self.allocation_state,
            "provisioningState": self.provisioning_state,
            "currentNodeCount": self.current_node_count,
            "targetNodeCount": self.target_node_count,
            "scaleSettings": vars(self.scale_settings),
            "vmSize": self.vm_size,
            "errors": None,
        }


class ScaleSettings:
    def __init__(self, most: int) -> None:
        self.minimum_node_count = 0
        self.maximum_node_count = most


_TIERS = {"lowpriority": "low_priority", "dedicated": "dedicated"}


class AmlComputeProvisioningConfiguration:
    """
    Settings of a cluster. ``vm_priority``: ``dedicated`` or ``lowpriority``, in any case; ``lowpriority`` makes every
    job spot. Settings of network, login and identity have no effect and get a warning.
    """

    def __init__(
        self,
        vm_size: str = "",
        vm_priority: str | None = None,
        min_nodes: int = 0,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int | None = None,
        tags: dict[str, str] | None = None,
        description: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.vm_size = vm_size
        self.vm_priority = vm_priority
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.idle_seconds_before_scaledown = idle_seconds_before_scaledown
        self.tags = tags
        self.description = description
        self._others = [name for name, value in kwargs.items() if value is not None]
        if vm_priority is not None and str(vm_priority).lower() not in _TIERS:
            raise UsageError(f"vm_priority must be 'dedicated' or 'lowpriority'; got {vm_priority!r}")

    def to_compute(self, name: str) -> Today:
        """Convert it to v2's entity with only what was given, so that an attached compute keeps its other settings."""
        made = Today(
            name=name,
            size=self.vm_size or None,
            tier=_TIERS[self.vm_priority.lower()] if self.vm_priority else None,
            min_instances=self.min_nodes,
            max_instances=self.max_nodes,
            idle_time_before_scale_down=self.idle_seconds_before_scaledown,
            tags=self.tags,
            description=self.description,
        )
        made._warnings += [f"{other}: not used" for other in self._others]
        return made
