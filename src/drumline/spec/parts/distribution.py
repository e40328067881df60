"""The distributions by which a job's processes find each other: one class per type."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Entity
from drumline.spec.fields import list_whole
from drumline.spec.foreign_parts import ours
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.values import refuse_wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DistributionConfiguration(Entity):
    """The root of them; ``type`` is fixed by the class."""

    type = ""
    _declared: fields.Fields = fields.PROCESSES

    def _check(self, kwargs: dict[str, Any]) -> None:
        """
        Check keywords and values at the end of each constructor. Raises SpecError for unknown ones, and for other
        types.
        """
        refuse_unknown(kwargs, self._fields[1:], "distribution")
        refuse_wrong(self._values(), self._declared, "distribution")


class PyTorchDistribution(DistributionConfiguration):
    _fields = ("type", *fields.PROCESSES)
    _whole = list_whole(fields.PROCESSES)
    type = "pytorch"

    def __init__(self, *, process_count_per_instance: int | None = None, **kwargs: Any) -> None:
        self.process_count_per_instance = process_count_per_instance
        self._check(kwargs)


class MpiDistribution(DistributionConfiguration):
    _fields = ("type", *fields.PROCESSES)
    _whole = list_whole(fields.PROCESSES)
    type = "mpi"

    def __init__(self, *, process_count_per_instance: int | None = None, **kwargs: Any) -> None:
        self.process_count_per_instance = process_count_per_instance
        self._check(kwargs)


class TensorFlowDistribution(DistributionConfiguration):
    """``worker_count`` None means one worker per node."""

    _fields = ("type", *fields.TASKS)
    _declared = fields.TASKS
    _whole = list_whole(fields.TASKS)
    type = "tensorflow"

    def __init__(
        self,
        *,
        parameter_server_count: int | None = 0,
        worker_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.parameter_server_count = parameter_server_count
        self.worker_count = worker_count
        self._check(kwargs)


class RayDistribution(DistributionConfiguration):
    _fields = ("type", *fields.RAY)
    _declared = fields.RAY
    _whole = list_whole(fields.RAY)
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
        self.port = port
        self.address = address
        self.include_dashboard = include_dashboard
        self.dashboard_port = dashboard_port
        self.head_node_additional_args = head_node_additional_args
        self.worker_node_additional_args = worker_node_additional_args
        self._check(kwargs)


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
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import wrap
    from drumline.spec.schema.command import DISTRIBUTION

    report = Report("")
    checked = DISTRIBUTION.check(wrap(value), "distribution", report)
    if report.count:
        raise SpecError(report.problems)
    return from_checked(checked)


def from_checked(values: dict[str, Any]) -> DistributionConfiguration:
    """Return a distribution from a mapping that a schema has accepted."""
    kind = str(values["type"]).lower()
    return CLASSES[kind](**{key: value for key, value in values.items() if key != "type"})
