"""The nodes of a cluster as the API server shows them, in our words: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNITS = {"": 1, **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}}
_BINARY = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}


def describe(
    node: Mapping[str, Any], gpu_resource: str, taken: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Any]:
    """
    Return a node with the keys of ``Engine.list_nodes``. ``taken``: as of ``sum_requests``; None where that is not
    known.
    """
    status = node.get("status", {})
    has = status.get("allocatable") or {}
    ready: Mapping[str, Any] = next(
        (one for one in status.get("conditions") or () if one.get("type") == "Ready"), {}
    )
    state = "ready" if ready.get("status") == "True" else "not ready"
    if node.get("spec", {}).get("unschedulable"):
        state += ", cordoned"

    def free(resource: str, unit: int = 1) -> float | None:
        if taken is None:
            return None
        used = taken.get(str(node["metadata"]["name"]), {}).get(resource, 0.0)
        left = round(max(amount(has.get(resource, "0")) - used, 0.0) / unit, 2)
        return int(left) if unit > 1 or left.is_integer() else left

    return {
        "node": node["metadata"]["name"],
        "state": state,
        "cores": int(amount(has.get("cpu", "0"))),
        "gpus": int(amount(has.get(gpu_resource, "0"))),
        "memory_mb": int(amount(has.get("memory", "0"))) >> 20,
        "free_cores": free("cpu"),
        "free_gpus": free(gpu_resource),
        "free_memory_mb": free("memory", 1 << 20),
        "reason": None if state == "ready" else ready.get("message"),
        "jobs": None,
    }


def sum_requests(pods: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by node and resource what its pods have asked for. A pod that is listed twice counts once."""
    taken: dict[str, dict[str, float]] = {}
    for pod in {str(one["metadata"].get("uid") or id(one)): one for one in pods}.values():
        of_node = taken.setdefault(str(pod.get("spec", {}).get("nodeName") or ""), {})
        for resource, number in requests_of(pod.get("spec", {})).items():
            of_node[resource] = of_node.get(resource, 0.0) + number
    taken.pop("", None)
    return taken


def requests_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """
    Return what a pod takes of its node, as the scheduler counts: its containers together, or more while one that
    prepares it runs; and what its runtime adds.

    >>> one, prepares = {"cpu": "500m"}, {"resources": {"requests": {"cpu": "2"}}}
    >>> requests_of({"containers": [{"resources": {"requests": one}}] * 2, "initContainers": [prepares]})
    {'cpu': 2.0}
    """
    beside: dict[str, float] = {}
    most: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            # It runs beside the others from then on.
            beside = _add(beside, own)
            own = {}
        most = _take_greater(most, _add(beside, own))
    for container in spec.get("containers") or ():
        beside = _add(beside, _requests(container))
    whole = _take_greater(most, beside)
    # What is asked for the pod itself, as newer servers have it, counts in place of that.
    whole |= _requests(spec)
    return _add(whole, {name: amount(text) for name, text in (spec.get("overhead") or {}).items()})


def _requests(thing: Mapping[str, Any]) -> dict[str, float]:
    asked = (thing.get("resources") or {}).get("requests") or {}
    return {name: amount(text) for name, text in asked.items()}


def _add(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def _take_greater(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


def amount(text: object) -> float:
    """
    Return the number of a quantity; 0 for none.

    >>> amount("3920m"), amount("4"), amount("2Gi"), amount("1k"), amount("12e6"), amount("1E")
    (3.92, 4.0, 2147483648.0, 1000.0, 12000000.0, 1e+18)
    """
    found = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)(m|[kMGTPE]?|[KMGTPE]i)", str(text))
    if not found:
        return 0.0
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit == "m" else number * {**_UNITS, **_BINARY}[unit]
