"""All computes and their nodes, as their engines say now."""

from __future__ import annotations

import threading
import time
from typing import Any

from drumline.contract.errors import DrumlineError
from drumline.contract.words import format_count
from drumline.control.machine import computes

_KEPT_S = 10.0
"""An engine is not asked again for so long: it may be a cluster that many ask."""

_kept: dict[str, tuple[float, dict[str, Any]]] = {}
_asking = threading.Lock()


def describe_nodes() -> dict[str, Any]:
    """Return the computes and their nodes; a compute whose engine does not answer says why in ``reason``. Blocks."""
    with _asking:
        damaged: list[str] = []
        found = [_ask(one.name) for one in computes.all(damaged=damaged.append)]
    nodes = [node for one in found for node in one["nodes"]]
    told = [{key: value for key, value in one.items() if key != "nodes"} for one in found]
    return {
        "sentence": _summarize(told, nodes, damaged),
        "computes": told,
        "nodes": nodes,
        "damaged": damaged,
    }


def _ask(name: str) -> dict[str, Any]:
    known = _kept.get(name)
    if known is not None and time.monotonic() - known[0] < _KEPT_S:
        return known[1]
    compute = computes.get(name)
    told: dict[str, Any] = {
        "name": name,
        "type": compute.type,
        "description": compute.description or "",
        "reason": "",
        "nodes": [],
    }
    try:
        told["nodes"] = [{"compute": name, **node} for node in computes.nodes(name)]
    except (DrumlineError, OSError) as error:
        told["reason"] = getattr(error, "message", "") or str(error)
    _kept[name] = (time.monotonic(), told)
    return told


def _summarize(found: list[dict[str, Any]], nodes: list[dict[str, Any]], damaged: list[str]) -> str:
    silent = [one["name"] for one in found if one["reason"]]
    said = f"{format_count(len(nodes), 'node')} of {format_count(len(found), 'compute')}"
    if silent:
        said += f"; {', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
    if damaged:
        said += f"; {len(damaged)} cannot be read"
    return said
