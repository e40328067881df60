"""The place of a job's pods and their resources: the settings of a compute as fields of a pod."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Plan

GPU_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
    "gaudi": "habana.ai/gaudi",
}
"""The resource that counts GPUs, by the word for their maker; others are written out."""

_RDMA = ("rdma/", "vpc.amazonaws.com/efa")
"""Beginnings of resources whose drivers lock memory."""

_HOST = "kubernetes.io/hostname"

_SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SILENCE_S = 30
"""
After Kubernetes has found a node silent, until its pods are replaced. A server adds 300 s where a pod says nothing.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""


def gpu_resource(compute: Mapping[str, Any]) -> str:
    """
    Return the resource that counts a compute's GPUs.

    >>> gpu_resource({}), gpu_resource({"gpu_resource": "amd"}), gpu_resource({"gpu_resource": "example.com/npu"})
    ('nvidia.com/gpu', 'amd.com/gpu', 'example.com/npu')
    """
    named = str(compute.get("gpu_resource") or "nvidia")
    return GPU_RESOURCES.get(named, named)


def resources_of(plan: Plan) -> dict[str, Any]:
    """Return requests and limits of a node's pod. Cores have no limit: a rank may use what nobody else does."""
    compute = plan.compute
    wanted = math.ceil(plan.cores_wanted / max(1, len(plan.nodes)))
    fixed: dict[str, str] = {}
    if compute.get("memory_per_node"):
        fixed["memory"] = f"{compute['memory_per_node']}i"
    gpus = max((node.gpu_count for node in plan.nodes), default=0)
    if gpus:
        fixed[gpu_resource(compute)] = str(gpus)
    fixed |= {str(name): str(amount) for name, amount in (compute.get("resources") or {}).items()}
    requests = {"cpu": str(compute.get("cores_per_node") or max(1, wanted)), **fixed}
    return {"requests": requests, **({"limits": fixed} if fixed else {})}


def capabilities_of(compute: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities of a node's pod: none, but where it has RDMA the one to lock memory."""
    locks = any(str(name).startswith(_RDMA) for name in compute.get("resources") or {})
    return {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if locks else {})}


def place_node(compute: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a node's pod that say where it may run. ``labels``: those of all nodes of the job."""
    fields: dict[str, Any] = {}
    if compute.get("node_selector"):
        fields["nodeSelector"] = _plain(compute["node_selector"])
    fields["tolerations"] = _list_tolerations(_plain(compute.get("tolerations") or []))
    for setting, field in (("scheduler", "schedulerName"), ("runtime_class", "runtimeClassName")):
        if compute.get(setting):
            fields[field] = str(compute[setting])
    if compute.get("host_network"):
        # The name of the supervisor is one of the cluster.
        fields |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return fields | _spread(str(compute.get("spread") or "prefer"), labels)


def _spread(wish: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields by which each node of a job gets a machine of its own. ``wish``: prefer, require or none."""
    selector = {"matchLabels": dict(labels)}
    if wish == "require":
        term = {"labelSelector": selector, "topologyKey": _HOST}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    if wish == "none":
        return {}
    soft = {
        "maxSkew": 1,
        "topologyKey": _HOST,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [soft]}


def _list_tolerations(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tolerations of a compute, and those of a silent node's taints that it says nothing of."""
    said = {one.get("key") for one in given}
    fields = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SILENCE_S}
    # One without a key is for all taints.
    return [*given, *({"key": key, **fields} for key in _SILENT if not said & {key, None, ""})]


def _plain(value: Any) -> Any:
    """Return the settings of a compute as JSON; the seconds of a toleration are a number."""
    if isinstance(value, dict):
        return {key: int(one) if key == "tolerationSeconds" else one for key, one in value.items()}
    return [_plain(one) for one in value]
