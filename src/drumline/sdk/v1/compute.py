"""
Compute targets of v1.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.compute.amlcompute.amlcompute
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.computes import LOCAL
from drumline.spec.compute import AmlCompute as Today

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.sdk.v1.workspace import Workspace


class ComputeTargetException(NotFoundError):  # noqa: N818 - azureml's name
    """There is no compute of that name; scripts make one then."""


class ComputeTarget:
    """A compute that is there. ``ComputeTarget(ws, name)`` raises ComputeTargetException when it is not."""

    def __init__(self, workspace: Workspace, name: str, **kwargs: Any) -> None:
        self.workspace = workspace
        self.name = name
        self._found: Any = None
        self.refresh_state()

    @staticmethod
    def create(workspace: Workspace, name: str, provisioning_configuration: Any) -> AmlCompute:
        """
        Attach it: to the Slurm cluster of this machine, else as this machine. One of its name is updated.

        Raises SpecError, PlanError.
        """
        if not isinstance(provisioning_configuration, AmlComputeProvisioningConfiguration):
            raise UsageError(
                f"{type(provisioning_configuration).__name__} cannot be created",
                "AmlCompute.provisioning_configuration(...) can",
            )
        workspace._client.compute.begin_create_or_update(provisioning_configuration.to_compute(name))
        return AmlCompute(workspace, name)

    @staticmethod
    def attach(workspace: Workspace, name: str, attach_configuration: Any) -> ComputeTarget:
        """Refused."""
        raise UsageError("computes of that type cannot be attached", "drumline compute attach --help")

    @property
    def type(self) -> str:
        return "AmlCompute"

    provisioning_state = property(lambda self: "Succeeded")
    provisioning_errors = property(lambda self: None)
    location = property(lambda self: "local")

    @property
    def tags(self) -> dict[str, str]:
        return dict(self._found.tags or {})

    @property
    def vm_size(self) -> str | None:
        """Of a Slurm compute, the first of its instance types."""
        return next(iter(getattr(self._found, "instance_types", None) or ()), None)

    def refresh_state(self) -> None:
        """Raises ComputeTargetException when it is gone."""
        try:
            self._found = self.workspace._client.compute.get(self.name)
        except NotFoundError as error:
            raise ComputeTargetException(error.message, error.hint) from None

    def wait_for_completion(self, show_output: bool = False, **kwargs: Any) -> None:
        """Return at once: it is there. A cluster's nodes come with the jobs, whatever ``min_node_count`` says."""
        if show_output:
            sys.stdout.write("Succeeded\nAmlCompute wait for completion finished\n\n")
            sys.stdout.flush()

    def get_status(self) -> AmlComputeStatus:
        self.refresh_state()
        return AmlComputeStatus(self._found)

    def serialize(self) -> dict[str, Any]:
        from drumline.spec.compute import to_dict

        return {**to_dict(self._found), "provisioningState": "Succeeded"}

    def list_nodes(self) -> Sequence[dict[str, Any]]:
        """Raises EngineError when the cluster does not answer."""
        nodes = self.workspace._client.compute.list_nodes(self.name)
        return [{**vars(node), "nodeId": node.node_id, "nodeState": node.node_state} for node in nodes]

    def delete(self) -> None:
        """Forget it; the machines stay, and its jobs go on."""
        self.workspace._client.compute.begin_delete(self.name)

    detach = delete

    @staticmethod
    def list(workspace: Workspace) -> Sequence[AmlCompute]:
        """Those that were attached."""
        names = (one.name for one in workspace._client.compute.list())
        return [AmlCompute(workspace, name) for name in names if name != LOCAL]

    def __repr__(self) -> str:
        return f"AmlCompute(workspace={self.workspace.name!r}, name={self.name!r})"


class AmlCompute(ComputeTarget):
    @staticmethod
    def provisioning_configuration(vm_size: str = "", **kwargs: Any) -> AmlComputeProvisioningConfiguration:
        return AmlComputeProvisioningConfiguration(vm_size=vm_size, **kwargs)

    def update(self, min_nodes: Any = None, max_nodes: Any = None, **kwargs: Any) -> None:
        """Of a Slurm compute, ``max_nodes``: the most that a job may ask for. The rest has no effect here."""
        if max_nodes is not None:
            config = AmlComputeProvisioningConfiguration(max_nodes=max_nodes)
            self.workspace._client.compute.begin_create_or_update(config.to_compute(self.name))
        self.refresh_state()

    @staticmethod
    def supported_vmsizes(workspace: Workspace, location: str | None = None) -> Sequence[Any]:
        """Empty: machines here have no sizes."""
        return []


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
        """With azureml's keys."""
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
    ``vm_priority``: ``dedicated`` or ``lowpriority``, in any case; ``lowpriority`` makes every job spot. What it says
    of the network, of logging in and of identities has no effect, and gets a warning.
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
            raise UsageError(f"vm_priority: {vm_priority!r} is not known", "'dedicated' or 'lowpriority'")

    def to_compute(self, name: str) -> Today:
        """What v2 calls it. Only what was said is in it, so that nothing else of an attached one changes."""
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
