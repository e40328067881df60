"""Isolated nodes without a compute: those of ``drumline run --isolate``, whose settings are a property of the job."""

from __future__ import annotations

import json
from typing import Any

from drumline.contract.errors import PlanError
from drumline.control.machine import computes
from drumline.spec.entity import to_dict

_NAME = "node"


def describe_nodes(link: str = "") -> str:
    """
    Return the property. ``link``: rate, latency and loss with commas between them, each may be missing from the end.
    Raises SpecError.
    """
    words = [word.strip() for word in link.split(",")] if link else []
    given: dict[str, Any] = {"isolation": "namespace"}
    if words:
        given["link"] = {
            key: word for key, word in zip(("rate", "latency", "loss"), words, strict=False) if word
        }
    _check(given)
    return json.dumps(given)


def _check(given: dict[str, Any]) -> dict[str, Any]:
    from drumline.spec.registered.compute import from_dict

    return to_dict(from_dict({"name": _NAME, "type": "local", **given}))


def add_isolation(compute: str | None, text: str) -> dict[str, Any]:
    """
    Return the settings of a job's compute with those of its property. Raises PlanError, SpecError.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise PlanError(
            "properties: the settings of isolated nodes are no JSON", path="properties"
        ) from error
    found = computes.resolve(compute)
    before = {} if found is None else to_dict(found)
    if found is not None and found.type != "local":
        raise PlanError(f"compute: isolated nodes are of this machine, and {found.name!r} is a cluster")
    return _check({**before, **given})
