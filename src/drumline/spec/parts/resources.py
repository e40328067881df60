"""The resources that a job asks for: nodes, time, its place in the queue; how its processes find each other."""

from __future__ import annotations

import re

from drumline.spec.entity import Keyed
from drumline.spec.kinds.fields import Any, field
from drumline.spec.kinds.records import Part, PartByType, PartRecord
from drumline.spec.kinds.values import Anything, Flag, Integer, ListOf, MapOf, OneOf, Text, TextOrList

_TEXT = Text()


class ResourceConfiguration(Keyed, Part):
    _place = "resources"
    _checks_values = True
    instance_count: int | None = field(Integer(), "The number of nodes.", default=None)
    instance_type: Any = field(
        TextOrList(), "The type of node, one of instance_types of the compute.", default=None
    )
    properties: dict[str, Any] | None = field(MapOf(Anything()), default=None)


class JobResourceConfiguration(ResourceConfiguration):
    """The resources of a job. ``instance_count`` is the number of nodes; ``shm_size`` is text such as ``2g``."""

    locations: list[str] | None = field(ListOf(_TEXT), "Azure's regions; not used here.", default=None)
    shm_size: str | None = field(_TEXT, "The size of /dev/shm in a container, such as 2g.", default=None)
    max_instance_count: int | None = field(
        Integer(), "The largest number of nodes; not used here.", default=None
    )
    docker_args: str | list[str] | None = field(
        TextOrList(), "Further arguments of the container engine.", default=None
    )


class CommandJobLimits(Part):
    """The limits of a command job. ``timeout`` is in seconds."""

    _place = "limits"
    _checks_values = True
    timeout: int | str | None = field(Integer(), "The time limit in seconds.", default=None)


class QueueSettings(Part):
    _place = "queue_settings"
    job_tier: str | None = field(
        OneOf("null", "spot", "basic", "standard", "premium"), "spot jobs may be preempted.", default=None
    )
    priority: str | None = field(OneOf("low", "medium", "high"), "The priority in the queue.", default=None)


class RetrySettings(Part):
    """
    Settings for another try. ``max_retries`` of a mini-batch that has failed; ``timeout``: seconds for a call of
    ``run()``.
    """

    _place = "retry_settings"
    max_retries: int | None = field(Integer(), default=None)
    timeout: int | None = field(Integer(), "The time limit of a mini-batch in seconds.", default=None)


class _JobIdentity(Part):
    _place = "identity"
    type: str = field(_TEXT, default="", init=False)


class UserIdentityConfiguration(_JobIdentity):
    type = "user_identity"


class AmlTokenConfiguration(_JobIdentity):
    type = "aml_token"


class ManagedIdentityConfiguration(_JobIdentity):
    type = "managed"
    client_id: str | None = field(_TEXT, default=None)
    object_id: str | None = field(_TEXT, default=None)
    msi_resource_id: str | None = field(_TEXT, default=None, alias="resource_id")
    principal_id: str | None = field(None, default=None)

    @property
    def resource_id(self) -> str | None:
        """Return what YAML calls ``msi_resource_id``."""
        return self.msi_resource_id

    @resource_id.setter
    def resource_id(self, value: str | None) -> None:
        self.msi_resource_id = value


def snake(name: str) -> str:
    """Return a name in lower case with underscores: ``UserIdentity`` and ``user_identity`` are the same identity."""
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


RESOURCES = PartRecord(JobResourceConfiguration, more={"instance_type": _TEXT})
PYTHON_RESOURCES = PartRecord(JobResourceConfiguration)
LOOSE_RESOURCES = PartRecord(JobResourceConfiguration, more={"instance_type": _TEXT}, unknown="drop")
"""Of components in files: azure-ai-ml drops keys that it does not know."""

LIMITS = PartRecord(CommandJobLimits)
QUEUE_SETTINGS = PartRecord(QueueSettings)
_MANAGED = PartRecord(
    ManagedIdentityConfiguration, more={"type": OneOf("managed", "managed_identity", fold=snake)}
)
IDENTITY = PartByType(
    _JobIdentity,
    {
        "managed": _MANAGED,
        "managed_identity": _MANAGED,
        "aml_token": PartRecord(AmlTokenConfiguration, more={"type": OneOf("aml_token", fold=snake)}),
        "user_identity": PartRecord(
            UserIdentityConfiguration, more={"type": OneOf("user_identity", fold=snake)}
        ),
    },
    fold=snake,
)
"""Read and kept, without effect on machines of your own."""


class DistributionConfiguration(Part):
    """The root of them; ``type`` is fixed by the class."""

    _place = "distribution"
    _checks_values = True
    type: str = field(
        _TEXT, "The framework that the processes use to find each other.", default="", init=False
    )


class PyTorchDistribution(DistributionConfiguration):
    type = "pytorch"
    process_count_per_instance: int | None = field(
        Integer(), "The number of processes on each node.", default=None
    )


class MpiDistribution(DistributionConfiguration):
    type = "mpi"
    process_count_per_instance: int | None = field(
        Integer(), "The number of processes on each node.", default=None
    )


class TensorFlowDistribution(DistributionConfiguration):
    """``worker_count`` None means one worker per node."""

    type = "tensorflow"
    parameter_server_count: int | None = field(
        Integer(), "The number of TensorFlow's parameter servers.", default=0
    )
    worker_count: int | None = field(Integer(), "The number of TensorFlow's workers.", default=None)


class RayDistribution(DistributionConfiguration):
    type = "ray"
    port: int | None = field(Integer(), "The port.", default=None)
    address: str | None = field(_TEXT, default=None)
    include_dashboard: bool | None = field(Flag(), "Whether Ray's dashboard runs.", default=None)
    dashboard_port: int | None = field(Integer(), "The port of Ray's dashboard.", default=None)
    head_node_additional_args: str | None = field(
        _TEXT, "Further arguments of ray start on the head node.", default=None
    )
    worker_node_additional_args: str | None = field(
        _TEXT, "Further arguments of ray start on the other nodes.", default=None
    )


_OTHER_NAMES = {
    "torch": "pytorch",
    "torch.distributed": "pytorch",
    "ddp": "pytorch",
    "horovod": "mpi",
    "tf": "tensorflow",
}


def _hint(name: str) -> str:
    other = _OTHER_NAMES.get(name.lower())
    if other:
        return f"use 'type: {other}'"
    return "leave `distribution` out for one process" if name.lower() == "none" else ""


def _tables(unknown: str) -> PartByType:
    classes = (PyTorchDistribution, MpiDistribution, TensorFlowDistribution, RayDistribution)
    records = {kind.type: PartRecord(kind, unknown=unknown) for kind in classes}
    return PartByType(DistributionConfiguration, records, hint=_hint)


DISTRIBUTION = _tables("error")
LOOSE_DISTRIBUTION = _tables("drop")
"""Of components in files: azure-ai-ml drops keys that it does not know."""
