"""Isolated nodes before there are any: what a compute may be, and what a job may ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError, PlanError
from drumline.contract.plan import NodeShape
from drumline.engines.local import machine
from drumline.engines.local.isolation import needs
from drumline.engines.local.isolation.carrier import NOTE
from drumline.engines.local.isolation.settings import MOST_NODES, address_of, read_isolation
from drumline.linux import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.plan import Plan


def check_count(node_count: int, compute: Mapping[str, Any]) -> None:
    """Raise PlanError for more nodes than the compute has."""
    most = int(compute.get("nodes") or MOST_NODES)
    if node_count > most:
        name = compute.get("name")
        what = f"resources.instance_count: compute {name!r} has {most} nodes; got {node_count}"
        hint = f"drumline compute update {name} --set nodes={node_count}"
        raise PlanError(what, hint if node_count <= MOST_NODES else "", path="resources.instance_count")


def shape_nodes(compute: Mapping[str, Any], gpu_counts: Sequence[int]) -> list[NodeShape]:
    """Return the shapes of nodes with ``cpus``: processor time by a control group, else processors of their own."""
    cpus = float(compute["cpus"])
    whole = max(1, int(cpus))
    if limits.choose_limit_groups("drumline-00000000-n0").cpu:
        return [NodeShape((), gpus, whole) for gpus in gpu_counts]
    cores = machine.cores()
    starts = [node * whole for node in range(len(gpu_counts))]
    chosen = [tuple(cores[(start + index) % len(cores)] for index in range(whole)) for start in starts]
    return [NodeShape(tuple(sorted(set(mine))), gpus) for mine, gpus in zip(chosen, gpu_counts, strict=True)]


def check_compute(compute: Mapping[str, Any]) -> list[str]:
    """List what this machine cannot do of a compute."""
    isolation = read_isolation(compute)
    assert isolation is not None, "asked of isolated nodes alone"
    try:
        needs.check_here(isolation)
    except EngineError as error:
        return ["; ".join(filter(None, (error.message, error.hint)))]
    return []


def check_plan(plan: Plan) -> list[str]:
    """Return warnings. Raises PlanError for what isolated nodes cannot do here."""
    isolation = read_isolation(plan.compute)
    assert isolation is not None, "asked of isolated nodes alone"
    if plan.container:
        raise PlanError(
            "environment: containers do not run on isolated nodes",
            "another compute, or an environment of packages",
            path="environment",
        )
    try:
        needs.check_here(isolation)
    except EngineError as error:
        raise PlanError(f"compute: {error.message}", error.hint or "", path="compute") from error
    warnings = []
    if isolation.link.needs_delays and needs.may_try() and not needs.has_netem():
        warnings.append(f"link: {NOTE}")
    cores = len(machine.cores())
    if isolation.cpus is not None and isolation.cpus > cores:
        warnings.append(
            f"cpus: a node is to have {isolation.cpus:g} processors, and this machine has {cores}"
        )
    if any(plan.user_env.get("MLFLOW_TRACKING_URI", "").startswith(kind) for kind in ("http:", "https:")):
        warnings.append("MLFLOW_TRACKING_URI: isolated nodes reach no other network, so no server is reached")
    return warnings


def list_nodes(compute: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the nodes of a compute, as ``Engine.list_nodes``."""
    isolation = read_isolation(compute)
    assert isolation is not None, "asked of isolated nodes alone"
    own = dict(facts)
    if isolation.cpus is not None:
        own["cores"] = isolation.cpus
    if isolation.memory_bytes is not None:
        own["memory_mb"] = isolation.memory_bytes >> 20
    count = int(compute.get("nodes") or 1)
    return [{"node": isolation.host(node), "address": address_of(node), **own} for node in range(count)]
