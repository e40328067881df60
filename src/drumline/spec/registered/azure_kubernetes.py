"""Azure's ``properties`` of a Kubernetes compute, as settings of ours: pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_BYTES = {"": 1, **{unit: 1000**power for power, unit in enumerate("kMGT", 1)}}
_BYTES |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}

_NO_GPU = ("cpu", "memory", "ephemeral-storage", "hugepages-")


def map_properties(properties: Any) -> tuple[dict[str, Any], list[str]]:
    """
    Return what they mean in our settings, and warnings of what is not used. An instance type that is the default, or
    the only one, says what the node of a job gets: its pod is one of that type.

    >>> kind = {"nodeSelector": {"pool": "gpu"}, "resources": {"requests": {"cpu": "1500m", "memory": "4Gi"}}}
    >>> map_properties({"instanceTypes": {"gpu": kind}, "defaultInstanceType": "gpu"})
    ({'node_selector': {'pool': 'gpu'}, 'cores_per_node': 2, 'memory_per_node': '4096M'}, [])
    """
    if not isinstance(properties, Mapping):
        return {}, ["properties: not used; it is no mapping"]
    given = {_plain(name): (name, value) for name, value in properties.items()}
    settings: dict[str, Any] = {}
    used = set()
    namespace = given.get("namespace", ("", None))[1]
    if namespace and isinstance(namespace, str):
        settings["namespace"] = namespace
        used.add("namespace")
    types = given.get("instancetypes", ("", None))[1]
    types = types if isinstance(types, Mapping) else {}
    default = given.get("defaultinstancetype", ("", None))[1]
    chosen = types.get(default) if default else next(iter(types.values()), None) if len(types) == 1 else None
    warnings = []
    if isinstance(chosen, Mapping):
        settings |= _map_type(chosen)
        used |= {"instancetypes", "defaultinstancetype"}
        warnings = [
            f"properties.{given['instancetypes'][0]}.{name}: not used; jobs get the default one"
            for name, one in types.items()
            if one is not chosen
        ]
    warnings += [f"properties.{name}: not used" for key, (name, _) in given.items() if key not in used]
    return settings, warnings


def _plain(name: object) -> str:
    """Return a key as it is in Azure's REST and in snake case alike."""
    return str(name).replace("_", "").lower()


def _map_type(one: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    parts = {_plain(name): value for name, value in one.items()}
    if isinstance(parts.get("nodeselector"), Mapping) and parts["nodeselector"]:
        settings["node_selector"] = {str(name): str(value) for name, value in parts["nodeselector"].items()}
    resources = parts.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    asked: dict[str, Any] = {}
    for part in ("limits", "requests"):
        if isinstance(resources.get(part), Mapping):
            asked |= resources[part]
    if cores := _amount(asked.get("cpu")):
        settings["cores_per_node"] = math.ceil(cores)
    if memory := _amount(asked.get("memory")):
        settings["memory_per_node"] = f"{max(1, int(memory) >> 20)}M"
    for name, value in asked.items():
        if not str(name).startswith(_NO_GPU) and (count := _amount(value)):
            settings["gpus_per_node"] = int(count)
            if name != "nvidia.com/gpu":
                settings["gpu_resource"] = str(name)
            break
    return settings


def _amount(text: object) -> float:
    """Return the number of a quantity of Kubernetes; 0 for none."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGT]?|[KMGT]i)", str(text))
    if not found:
        return 0.0
    return float(found[1]) / 1000 if found[2] == "m" else float(found[1]) * _BYTES[found[2]]
