"""The pods of a job as the API server shows them: pure."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.engines.kubernetes import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    return str(pod["metadata"].get("labels", {}).get(objects.ROLE_LABEL, ""))


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
    nodes = [pod for pod in found if role_of(pod) == objects.NODE]
    running = [pod for pod in nodes if _phase(pod) == "Running"]
    supervised = any(role_of(pod) == objects.SUPERVISOR and has_started(pod) for pod in found)
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
    nodes = [pod for pod in found if role_of(pod) == objects.NODE and not has_ended(pod)]
    supervisors = [pod for pod in found if role_of(pod) == objects.SUPERVISOR]
    suspects = [] if supervisors else [name]
    if len(nodes) < count:
        suspects.append(objects.name_nodes(name))
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
