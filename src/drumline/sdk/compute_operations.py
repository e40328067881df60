"""
``MLClient.compute``. Every method that takes a name raises NotFoundError for a compute that is not there.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations.computeoperations
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from drumline.contract.errors import SpecError, UsageError
from drumline.contract.record import describe_record
from drumline.control.machine import computes
from drumline.sdk.operations import Operations, print_warnings
from drumline.spec.registered.compute import Compute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")


class FinishedPoller(Generic[T]):
    """The part of azure-core's LROPoller that scripts use, of what was done before it returned."""

    def __init__(self, result: T) -> None:
        self._result = result

    def result(self, timeout: float | None = None) -> T:
        return self._result

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""

    def done(self) -> bool:
        return True

    def status(self) -> str:
        return "Succeeded"


class ComputeNode:
    """One node, with the engine's facts of it as attributes and under Azure's names: ``node_id``, ``node_state``."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.__dict__.update(facts)
        self.node_id = facts.get("node")
        self.node_state = facts.get("state")

    def __repr__(self) -> str:
        return f"ComputeNode({self.node_id!r}, {self.node_state!r})"


class VmSize:
    """The size of a machine, under Azure's names."""

    name = family = computes.LOCAL
    supported_compute_types = "AmlCompute"
    low_priority_capable = True

    def __init__(self, size: computes.MachineSize) -> None:
        self.v_cp_us, self.gpus, self.memory_gb = size

    def __repr__(self) -> str:
        return f"VmSize({self.name!r}, cores={self.v_cp_us}, gpus={self.gpus}, memory_gb={self.memory_gb})"


class ComputeOperations(Operations):
    def get(self, name: str) -> Compute:
        """Return a compute; one that nobody attached is this machine, unless this machine has a cluster."""
        return computes.find(name, is_for_script=True)

    def list_sizes(self, *, location: str | None = None, compute_type: str | None = None) -> Iterable[VmSize]:
        """List the sizes of machines: there is this one."""
        return [VmSize(computes.measure_machine())]

    def list(self, *, compute_type: str | None = None) -> Iterator[Compute]:
        """List them in alphabetical order; one that cannot be read is left out, with a warning."""
        return iter(computes.all(compute_type, damaged=lambda said: print_warnings([said])))

    def list_nodes(self, name: str) -> Iterable[ComputeNode]:
        """List its nodes. Raises EngineError when the cluster does not answer."""
        return [ComputeNode(describe_record(node)) for node in computes.nodes(name)]

    def doctor(self, name: str = "local", *, nodes: int | None = None) -> Sequence[dict[str, Any]]:
        """
        Check this machine, or nodes of a compute, and return what was found: dictionaries with ``id``, ``status`` (ok,
        warning, error), ``node``, ``finding`` and ``remedy``, as ``drumline doctor -o json``.

        ``nodes``: on how many; None: on those that are free. Blocks until there are such nodes. Raises UsageError.
        """
        from drumline.control.upkeep.machine_doctor import examine_compute

        return [finding._asdict() for finding in examine_compute(name, nodes, lambda _: None)]

    def begin_create_or_update(self, compute: Compute) -> FinishedPoller[Compute]:
        """
        Attach it, over one of its name. An AmlCompute becomes a SlurmCompute, and changes only what it speaks of
        where one of its name is attached.

        Raises SpecError, and PlanError where it cannot be used from this machine.
        """
        if not isinstance(compute, Compute):
            raise SpecError(f"{type(compute).__name__} is not a compute", "SlurmCompute(name=...)")
        print_warnings(computes.attach(compute))
        return FinishedPoller(computes.get(compute.name))

    def begin_attach(self, compute: Compute, **kwargs: Any) -> FinishedPoller[Compute]:
        """Attach it, as ``begin_create_or_update``."""
        return self.begin_create_or_update(compute)

    def begin_update(self, compute: Compute) -> FinishedPoller[Compute]:
        """Update an existing one, as ``begin_create_or_update``."""
        computes.get(compute.name)
        return self.begin_create_or_update(compute)

    def begin_delete(self, name: str, *, action: str = "Detach") -> FinishedPoller[None]:
        """Detach it, with either ``action``; machines and jobs stay."""
        if str(getattr(action, "value", action)).lower() not in ("detach", "delete"):
            raise UsageError(f"action must be 'Detach' or 'Delete'; got {action!r}")
        computes.detach(name)
        return FinishedPoller(None)
