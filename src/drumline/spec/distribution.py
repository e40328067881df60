"""How a job's processes find each other: one class per type of distribution."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity
from drumline.spec.foreign.parts import ours
from drumline.spec.keywords import refuse_unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DistributionConfiguration(Entity):
    """The root of them; ``type`` is fixed by the class."""

    type = ""


class PyTorchDistribution(DistributionConfiguration):
    _fields = ("type", "process_count_per_instance")
    _whole = ("process_count_per_instance",)
    type = "pytorch"

    def __init__(self, *, process_count_per_instance: int | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields[1:], "distribution")
        self.process_count_per_instance = process_count_per_instance


class MpiDistribution(DistributionConfiguration):
    _fields = ("type", "process_count_per_instance")
    _whole = ("process_count_per_instance",)
    type = "mpi"

    def __init__(self, *, process_count_per_instance: int | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields[1:], "distribution")
        self.process_count_per_instance = process_count_per_instance


class TensorFlowDistribution(DistributionConfiguration):
    """``worker_count`` None means one worker per node."""

    _fields = ("type", "parameter_server_count", "worker_count")
    _whole = ("parameter_server_count", "worker_count")
    type = "tensorflow"

    def __init__(
        self,
        *,
        parameter_server_count: int | None = 0,
        worker_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields[1:], "distribution")
        self.parameter_server_count = parameter_server_count
        self.worker_count = worker_count


class RayDistribution(DistributionConfiguration):
    _fields = (
        "type",
        "port",
        "address",
        "include_dashboard",
        "dashboard_port",
        "head_node_additional_args",
        "worker_node_additional_args",
    )
    _whole = ("port", "dashboard_port")
    type = "ray"

    def __init__(
        self,
        *,
        port: int | None = None,
        address: str | None = None,
        include_dashboard: bool | None = None,
        dashboard_port: int | None = None,
        head_node_additional_args: str | None = None,
        worker_node_additional_args: str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields[1:], "distribution")
        self.port = port
        self.address = address
        self.include_dashboard = include_dashboard
        self.dashboard_port = dashboard_port
        self.head_node_additional_args = head_node_additional_args
        self.worker_node_additional_args = worker_node_additional_args


CLASSES: dict[str, type[DistributionConfiguration]] = {
    "pytorch": PyTorchDistribution,
    "mpi": MpiDistribution,
    "tensorflow": TensorFlowDistribution,
    "ray": RayDistribution,
}


def to_distribution(value: Any) -> DistributionConfiguration | None:
    """
    Make a distribution from a dictionary, whose type may be in any case.

    Raises SpecError when it is neither a distribution nor a dictionary of one, and for an unknown key.
    """
    value = ours(value)
    if value is None or isinstance(value, DistributionConfiguration):
        return value
    if not isinstance(value, dict):
        hint = "give {'type': 'pytorch'} or PyTorchDistribution(...)"
        raise SpecError(f"distribution cannot be of type {type(value).__name__!r}", hint)
    from drumline.spec.nodes import wrap
    from drumline.spec.schema.command import DISTRIBUTION
    from drumline.spec.schema.report import Report

    report = Report("")
    checked = DISTRIBUTION.check(wrap(value), "distribution", report)
    if report.count:
        raise SpecError(report.problems)
    return from_checked(checked)


def from_checked(values: dict[str, Any]) -> DistributionConfiguration:
    """A distribution from a mapping that a schema has accepted."""
    kind = str(values["type"]).lower()
    return CLASSES[kind](**{key: value for key, value in values.items() if key != "type"})
