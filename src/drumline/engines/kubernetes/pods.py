"""The pods of a job as the API server shows them: pure."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.engines.base import ClusterNode
from drumline.engines.kubernetes import manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


_LINES_SHOWN = 3
"""Of the end of a pod's log, in a reason."""

_LONGEST_TEXT = 400

_IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_START_REASONS = ("StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError")
"""Of a container whose program could not be started; each container runtime has a word of its own."""

_OWN_ENDS = ("Error", "Completed", "it", "nothing")
"""The first words of the end of a pod whose program ended by itself, or of which nothing is known."""

_OVER = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""Conditions of a Job that makes no more pods. The last two come first, from 1.31 on."""


def role_of(pod: Mapping[str, Any]) -> str:
    """Return supervisor or node."""
    return str(pod["metadata"].get("labels", {}).get(manifests.ROLE_LABEL, ""))


def has_started(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has run, so that it has a log."""
    return _phase(pod) in ("Running", "Succeeded", "Failed")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has run to its end."""
    return _phase(pod) in ("Succeeded", "Failed")


def has_begun(pod: Mapping[str, Any]) -> bool:
    """Return whether the program of a pod that has ended was ever there."""
    return not _could_not_start(why_ended(pod))


def _could_not_start(why: str) -> bool:
    return why.startswith(_START_REASONS) or bool(re.search(r"exit code 12[67]\b", why))


def was_ended_by_cluster(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has failed by the cluster, such as for want of memory, and not by its own program."""
    return _phase(pod) == "Failed" and why_ended(pod).partition(" ")[0].rstrip(":") not in _OWN_ENDS


def is_lasting(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod runs or will, and nobody has deleted it."""
    return not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def count_wanted(job: Mapping[str, Any]) -> int:
    """
    Return how many pods a Job keeps there: none once it is over, and fewer by each that it has counted as succeeded.

    >>> count_wanted({"metadata": {}, "spec": {"completions": 4, "parallelism": 4}, "status": {"succeeded": 1}})
    3
    """
    spec, status = job.get("spec", {}), job.get("status", {})
    is_over = any(
        condition.get("type") in _OVER and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    if is_over or "deletionTimestamp" in job["metadata"]:
        return 0
    left = int(spec.get("completions") or 0) - int(status.get("succeeded") or 0)
    return max(0, min(left, int(spec.get("parallelism") or 0)))


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def describe(
    found: Sequence[Mapping[str, Any]],
    count: int,
    warnings: Sequence[Mapping[str, Any]] = (),
    explain: Callable[[Mapping[str, Any]], str] | None = None,
) -> tuple[str, str]:
    """
    Return state (as of ``JobView``) and reason of a job with these pods, and so many nodes. ``warnings``: events of the
    objects that ``find_suspects`` names. ``explain``: says more of a pod that waits or has ended than its status does.
    """
    nodes = [pod for pod in found if role_of(pod) == manifests.NODE]
    running = [pod for pod in nodes if _phase(pod) == "Running"]
    supervised = any(role_of(pod) == manifests.SUPERVISOR and has_started(pod) for pod in found)
    if supervised and len(running) >= count:
        return "runs", ""
    some = f"{len(running)} of {count} pods run"
    if running and not supervised:
        some += ", and not that of the supervisor"
    if blocked := _find_reason(found, nodes, count, warnings, explain or explain_pod):
        return "waits", f"{some}; {blocked}"
    if not found:
        return "waits", "its pods are not made yet: a queue, a quota or an admission may hold them back"
    return ("runs" if supervised else "starts"), some


def _find_reason(
    found: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    count: int,
    warnings: Sequence[Mapping[str, Any]],
    explain: Callable[[Mapping[str, Any]], str],
) -> str:
    """Return the cluster's own reason why not all pods run; empty: none is known."""
    if waits := next((why for pod in found if not has_started(pod) and (why := explain(pod))), ""):
        return waits
    told = sorted(warnings, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    if told:
        return explain_warning(told[-1])
    failed = [pod for pod in nodes if _phase(pod) == "Failed"]
    if failed and len(nodes) - len(failed) < count:
        # The Job waits longer and longer before it makes another.
        return f"{len(failed)} ended, the last one: {explain(failed[-1])}"
    return ""


def find_suspects(found: Sequence[Mapping[str, Any]], count: int, name: str) -> list[str]:
    """Name the objects whose events may tell why a job with these pods does not run; none where pods tell it."""
    nodes = [pod for pod in found if role_of(pod) == manifests.NODE and not has_ended(pod)]
    supervisors = [pod for pod in found if role_of(pod) == manifests.SUPERVISOR]
    suspects = [] if supervisors else [name]
    if len(nodes) < count:
        suspects.append(manifests.name_nodes(name))
    pending = [pod for pod in (*supervisors, *nodes) if _phase(pod) == "Pending" and not why_waits(pod)]
    suspects += [str(pod["metadata"]["name"]) for pod in pending[:1]]
    return suspects


def explain_warning(event: Mapping[str, Any]) -> str:
    """
    Return what a warning of the cluster says, without the name of a pod that never was.

    >>> quota = "exceeded quota: team, requested: cpu=4, used: cpu=6, limited: cpu=8"
    >>> explain_warning({"reason": "FailedCreate", "message": f'Error creating: pods "a-x" is forbidden: {quota}'})
    'no pod is made: exceeded quota: team, requested: cpu=4, used: cpu=6, limited: cpu=8'
    """
    message = " ".join(str(event.get("message") or "").split())
    if event.get("reason") == "FailedCreate":
        return "no pod is made: " + re.sub(r'^Error creating: (pods "[^"]*" is forbidden: )?', "", message)
    return f"{event.get('reason') or 'Warning'}: {message}"


def explain_pod(
    pod: Mapping[str, Any], last_lines: Sequence[str] = (), compute: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """
    Return why a pod waits or how it ended, the end of what it printed, and what to do about it; empty: it runs, or is
    about to.
    """
    why = why_ended(pod) if has_ended(pod) else why_waits(pod)
    lines = [line for line in map(_clean, last_lines[-_LINES_SHOWN:]) if line]
    if lines and has_ended(pod):
        why += f"; its log ends with: {' | '.join(lines)}"
    advice = _advise(why, str(pod["metadata"].get("name") or "POD"), compute) if why else ""
    return f"{why}; {advice}" if advice else why


def _advise(why: str, pod: str, compute: Mapping[str, Any]) -> str:
    """Return what to do about a pod that waits or ended for that reason; empty: nothing is known."""
    reason = why.partition(" ")[0].rstrip(":")
    name, image = str(compute.get("name") or "NAME"), str(compute.get("image") or "its image")
    python = str(compute.get("python") or "python3")
    update = f"drumline compute update {name} --set"
    if reason in _IMAGE_REASONS:
        return f"check the name and the tag of {image}, and image_pull_secrets: {update} image=..."
    if "Unknown option: -P" in why:
        return f"the {python} of {image} is older than Python 3.11: {update} python=... or image=..."
    if _could_not_start(why):
        return f"{image} may have no {python}: {update} python=... names its Python, image=... another image"
    if reason == "OOMKilled" or "low on resource: memory" in why:
        has = f"{compute['memory_per_node']} now" if compute.get("memory_per_node") else "none now"
        return f"give its nodes more memory ({has}): {update} memory_per_node=..."
    if reason == "Evicted":
        return "write less to the disk of its machine: a volume of the compute has room for large files"
    if reason == "CreateContainerConfigError":
        return f"kubectl describe pod {pod} shows what it asks for and the namespace lacks"
    return ""


def _clean(text: object) -> str:
    """Return the words of a message or a line, which a container may have written."""
    words = " ".join("".join(char if char.isprintable() else " " for char in str(text or "")).split())
    return words if len(words) <= _LONGEST_TEXT else words[:_LONGEST_TEXT] + "..."


def why_waits(pod: Mapping[str, Any]) -> str:
    """Return the cluster's own reason why a pod does not run; empty where it does, or is about to."""
    if _phase(pod) != "Pending":
        return ""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {_clean(waiting.get('message'))}".rstrip(": ")
    return ""


def why_ended(pod: Mapping[str, Any]) -> str:
    """Return how a pod ended, in the cluster's words."""
    status = pod.get("status", {})
    disruptions = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
    ]
    # The cluster has ended it: how its container ended follows from that.
    for told in [status] if status.get("reason") else disruptions:
        return f"{told.get('reason')}: {_clean(told.get('message'))}".rstrip(": ")
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended:
            how = f"{ended.get('reason') or 'it ended'} with exit code {ended.get('exitCode')}"
            return f"{how}: {_clean(ended.get('message'))}".rstrip(": ")
    return "nothing more is known"


# The nodes of a cluster as the API server shows them, in our words: pure.

_UNITS = {"": 1, **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}}
_BINARY = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}


def describe_node(
    node: Mapping[str, Any], gpu_resource: str, taken: Mapping[str, Mapping[str, float]] | None = None
) -> ClusterNode:
    """Return a node. ``taken``: as of ``sum_requests``; None where that is not known."""
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

    return ClusterNode(
        node=node["metadata"]["name"],
        state=state,
        cores=int(amount(has.get("cpu", "0"))),
        gpus=int(amount(has.get(gpu_resource, "0"))),
        memory_mb=int(amount(has.get("memory", "0"))) >> 20,
        reason=None if state == "ready" else ready.get("message"),
        free_cores=free("cpu"),
        free_gpus=free(gpu_resource),
        free_memory_mb=free("memory", 1 << 20),
    )


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
