"""The needs of isolated nodes: what a compute may be and a job ask, and what this machine lacks, in one sentence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError, PlanError
from drumline.contract.plan import NodeShape
from drumline.engines.base import ClusterNode
from drumline.engines.local import resources
from drumline.engines.local.isolation import batches, inside
from drumline.engines.local.isolation.carrier import NOTE
from drumline.engines.local.isolation.isolation_settings import MOST_NODES, address_of, read_isolation
from drumline.linux import limits, namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.plan import Plan
    from drumline.engines.local.isolation.isolation_settings import Isolation, Link


def check_here(isolation: Isolation) -> None:
    """Try whether this machine can play such nodes. Raises EngineError with the first thing that it cannot do."""
    check_limits(isolation)
    if may_try():
        try_here(isolation)


def may_try() -> bool:
    """Return whether a child of this process can try: one with threads, such as a notebook's, is not ours to fork."""
    return len(os.listdir("/proc/self/task")) == 1


def try_here(isolation: Isolation) -> None:
    """Make a network in a child of this process, and let it go. Raises EngineError."""
    inside.call_in_child(lambda: _try(isolation.link))


def has_netem() -> bool:
    """Return whether this kernel delays and loses packets by itself. Raises EngineError where there is no network."""
    found = inside.call_in_child(_try_netem)
    for descriptor in found:
        os.close(descriptor)
    return bool(found)


def _try_netem() -> Sequence[int]:
    """Return a descriptor, whichever, where there is netem."""
    inside.begin_namespaces()
    inside.run_batch("ip", ["link add probe0 type veth peer name probe1"])
    try:
        inside.run_batch("tc", batches.delay("probe0"))
    except EngineError:
        return ()
    return [os.open(os.devnull, os.O_RDONLY)]


def _try(link: Link) -> Sequence[int]:
    inside.begin_namespaces()
    namespaces.begin_mounts()
    inside.run_batch("ip", ["link add probe0 type veth peer name probe1", "link add probe type bridge"])
    if link.rate_bits:
        check_link(link._replace(latency_ms=None, loss_percent=None), "probe0")
    return ()


def check_link(link: Link, device: str) -> None:
    """Shape a device of this network as a link. Raises EngineError where the kernel cannot."""
    lines = [line.replace(f"dev {batches.CARD} ", f"dev {device} ") for line in batches.shape_card(link)]
    try:
        inside.run_batch("tc", lines)
    except EngineError as error:
        if link.needs_delays:
            raise
        raise EngineError(f"the kernel cannot limit the rate of a link (sch_tbf): {error.message}") from error


def check_limits(isolation: Isolation) -> None:
    """Raise EngineError for a limit of processors or memory that cannot be set here."""
    groups = limits.choose_limit_groups("drumline-00000000-n0")
    hint = (
        "run it as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes drumline ..."
    )
    if isolation.memory_bytes is not None and not groups.memory:
        raise EngineError(
            "memory of a node cannot be limited: no control group for memory is yours here",
            f"leave out memory; or {hint}",
        )
    if isolation.cpus is not None and not groups.cpu and isolation.cpus != int(isolation.cpus):
        raise EngineError(
            "a part of a processor cannot be limited: no control group for processor time is yours here",
            f"a whole number of cpus; or {hint}",
        )


# Isolated nodes before there are any: what a compute may be, and what a job may ask of it.


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
    cores = resources.cores()
    starts = [node * whole for node in range(len(gpu_counts))]
    chosen = [tuple(cores[(start + index) % len(cores)] for index in range(whole)) for start in starts]
    return [NodeShape(tuple(sorted(set(mine))), gpus) for mine, gpus in zip(chosen, gpu_counts, strict=True)]


def check_compute(compute: Mapping[str, Any]) -> list[str]:
    """List what this machine cannot do of a compute."""
    isolation = read_isolation(compute)
    assert isolation is not None, "asked of isolated nodes alone"
    try:
        check_here(isolation)
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
        check_here(isolation)
    except EngineError as error:
        raise PlanError(f"compute: {error.message}", error.hint or "", path="compute") from error
    warnings = []
    if isolation.link.needs_delays and may_try() and not has_netem():
        warnings.append(f"link: {NOTE}")
    cores = len(resources.cores())
    if isolation.cpus is not None and isolation.cpus > cores:
        warnings.append(
            f"cpus: a node is to have {isolation.cpus:g} processors, and this machine has {cores}"
        )
    if any(plan.user_env.get("MLFLOW_TRACKING_URI", "").startswith(kind) for kind in ("http:", "https:")):
        warnings.append("MLFLOW_TRACKING_URI: isolated nodes reach no other network, so no server is reached")
    return warnings


def list_nodes(compute: Mapping[str, Any]) -> list[ClusterNode]:
    """List the nodes of a compute of this machine: itself, or its isolated nodes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    counts = (len(resources.cores()), len(resources.gpus()), memory >> 20)
    machine = ClusterNode(os.uname().nodename, "up", *counts, reason="")
    isolation = read_isolation(compute)
    if isolation is None:
        return [machine]
    if isolation.cpus is not None:
        machine = machine._replace(cores=isolation.cpus)
    if isolation.memory_bytes is not None:
        machine = machine._replace(memory_mb=isolation.memory_bytes >> 20)
    count = int(compute.get("nodes") or 1)
    return [machine._replace(node=isolation.host(node), address=address_of(node)) for node in range(count)]
