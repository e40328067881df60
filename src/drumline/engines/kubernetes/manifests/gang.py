"""All nodes of a job or none: how the scheduler of a cluster is told so, where it can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotSubmittedError
from drumline.engines.kubernetes import access

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KUEUE = "kueue.x-k8s.io"
QUEUE_LABEL = f"{KUEUE}/queue-name"

WAYS = ("kueue", *access.GANGS, "own")
"""Own: the pods wait for each other until a deadline, and give everything back then. It is always there too."""

_GROUPS = {"kueue": KUEUE, **{name: right.group for name, right in access.GANGS.items()}}


_PATIENCE_S = 600.0
"""From the first pod of a job to the last, unless the compute says otherwise: those that wait hold nodes."""


def patience_s(compute: Mapping[str, Any]) -> float:
    """Return how long the pods of a job wait for each other, in seconds."""
    return float(compute.get("gang_timeout") or _PATIENCE_S)


class NoSuchWayError(NotSubmittedError):
    """The cluster does not have what the compute asks for."""

    exit_code = 2


def guess(compute: Mapping[str, Any]) -> str:
    """Return the way that a compute asks for, before the cluster was asked what it has."""
    return str(compute.get("gang") or ("kueue" if compute.get("queue") else "own"))


def choose(compute: Mapping[str, Any], groups: Collection[str]) -> str:
    """
    Return the way of a job. ``groups``: of objects that the server has. Raises NoSuchWayError.

    >>> choose({}, ["batch"]), choose({}, ["scheduling.volcano.sh"]), choose({"queue": "a"}, ["kueue.x-k8s.io"])
    ('own', 'volcano', 'kueue')
    """
    wanted = str(compute.get("gang") or "")
    if wanted == "kueue" and not compute.get("queue"):
        raise NoSuchWayError("gang: kueue starts the nodes of a job by its queue", "queue: the name of one")
    if wanted not in ("", "kueue", "volcano") and compute.get("queue"):
        what = f"queue: {compute['queue']} is a queue of Kueue or Volcano, and gang says {wanted}"
        raise NoSuchWayError(what, "one of queue and gang is to go")
    if wanted:
        if _GROUPS.get(wanted, "") not in ("", *groups):
            what = f"gang: the cluster has no {wanted}: its server knows no objects of {_GROUPS[wanted]}"
            raise NoSuchWayError(what, "gang: own needs nothing of the cluster")
        return wanted
    found = [way for way in _GROUPS if _GROUPS[way] in groups and (way != "kueue" or compute.get("queue"))]
    if compute.get("queue") and not {"kueue", "volcano"} & set(found):
        what = f"queue: {compute['queue']} is a queue of Kueue or Volcano, and the cluster has neither"
        raise NoSuchWayError(what, "without queue of the compute it waits for free nodes alone")
    return found[0] if found else "own"


def make_group(
    way: str, metadata: Mapping[str, Any], count: int, compute: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the object that says how many pods start together; None: this way has none."""
    if way not in access.GANGS:
        return None
    right = access.GANGS[way]
    spec: dict[str, Any] = {"minMember": count}
    if way == "volcano" and compute.get("queue"):
        spec["queue"] = str(compute["queue"])
    return {
        "apiVersion": f"{right.group}/{right.version}",
        "kind": "PodGroup",
        "metadata": dict(metadata),
        "spec": spec,
    }


def mark(way: str, job: dict[str, Any], group: str, compute: Mapping[str, Any]) -> None:
    """Have the pods of that Job start together. ``group``: the name of their group."""
    template = job["spec"]["template"]
    if way == "kueue" and compute.get("queue"):
        job["metadata"]["labels"][QUEUE_LABEL] = str(compute["queue"])
    elif way == "volcano":
        template["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = group
        template["spec"].setdefault("schedulerName", "volcano")
    elif way == "coscheduling":
        template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group
