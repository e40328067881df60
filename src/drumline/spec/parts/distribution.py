"""The distributions by which a job's processes find each other: one class per type."""

from __future__ import annotations

from drumline.spec.kinds.fields import field
from drumline.spec.kinds.parts import Part, PartByType, PartRecord
from drumline.spec.kinds.values import Flag, Integer, Text

_TEXT = Text()


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
