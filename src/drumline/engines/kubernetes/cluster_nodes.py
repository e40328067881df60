"""The nodes of a cluster as the API server shows them, in our words: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def describe(node: Mapping[str, Any], gpu_resource: str) -> dict[str, Any]:
    """Return a node with the keys of ``Engine.list_nodes``."""
    status = node.get("status", {})
    has = status.get("allocatable") or {}
    ready: Mapping[str, Any] = next(
        (one for one in status.get("conditions") or () if one.get("type") == "Ready"), {}
    )
    state = "ready" if ready.get("status") == "True" else "not ready"
    if node.get("spec", {}).get("unschedulable"):
        state += ", cordoned"
    return {
        "node": node["metadata"]["name"],
        "state": state,
        "cores": int(amount(has.get("cpu", "0"))),
        "gpus": int(amount(has.get(gpu_resource, "0"))),
        "memory_mb": int(amount(has.get("memory", "0"))) >> 20,
        "reason": None if state == "ready" else ready.get("message"),
        "jobs": None,
    }


def amount(text: object) -> float:
    """
    Return the number of a quantity; 0 for none.

    >>> amount("3920m"), amount("4"), amount("2Gi"), amount("1k")
    (3.92, 4.0, 2147483648.0, 1000.0)
    """
    found = re.fullmatch(r"([0-9.]+)(m|[kMGT]?|[KMGT]i)", str(text))
    if not found:
        return 0.0
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit == "m" else number * {**_UNITS, **_BINARY}[unit]
