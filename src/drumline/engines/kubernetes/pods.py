"""The pods of a job as the API server shows them: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.engines.kubernetes import objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def role_of(pod: Mapping[str, Any]) -> str:
    """Return supervisor or node."""
    return str(pod["metadata"].get("labels", {}).get(objects.ROLE_LABEL, ""))


def has_started(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has run, so that it has a log."""
    return _phase(pod) in ("Running", "Succeeded", "Failed")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has run to its end."""
    return _phase(pod) in ("Succeeded", "Failed")


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def describe(found: Sequence[Mapping[str, Any]], count: int) -> tuple[str, str]:
    """Return state (as of ``JobView``) and reason of a job with these pods, and so many nodes."""
    nodes = [pod for pod in found if role_of(pod) == objects.NODE]
    running = [pod for pod in nodes if _phase(pod) == "Running"]
    supervised = any(role_of(pod) == objects.SUPERVISOR and has_started(pod) for pod in found)
    blocked = next((why for pod in found if (why := why_waits(pod))), "")
    if supervised and len(running) >= count:
        return "runs", ""
    if blocked:
        return "waits", f"{len(running)} of {count} pods run; {blocked}"
    if not found:
        return "waits", "its pods are not made yet: a queue, a quota or an admission may hold them back"
    return ("runs" if supervised else "starts"), f"{len(running)} of {count} pods run"


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
            said = waiting.get("message") or ""
            return f"{waiting['reason']}: {said}".rstrip(": ")
    return ""


def why_ended(pod: Mapping[str, Any]) -> str:
    """Return how a pod ended, in the cluster's words."""
    status = pod.get("status", {})
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended:
            return f"{ended.get('reason') or 'it ended'} with exit code {ended.get('exitCode')}"
    return "nothing more is known"
