"""The pods of a job as the API server shows them: pure."""

from __future__ import annotations

import re
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


def describe(
    found: Sequence[Mapping[str, Any]], count: int, warnings: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, str]:
    """
    Return state (as of ``JobView``) and reason of a job with these pods, and so many nodes. ``warnings``: events of the
    objects that ``find_suspects`` names.
    """
    nodes = [pod for pod in found if role_of(pod) == objects.NODE]
    running = [pod for pod in nodes if _phase(pod) == "Running"]
    supervised = any(role_of(pod) == objects.SUPERVISOR and has_started(pod) for pod in found)
    if supervised and len(running) >= count:
        return "runs", ""
    some = f"{len(running)} of {count} pods run"
    if running and not supervised:
        some += ", and not that of the supervisor"
    if blocked := _find_reason(found, nodes, count, warnings):
        return "waits", f"{some}; {blocked}"
    if not found:
        return "waits", "its pods are not made yet: a queue, a quota or an admission may hold them back"
    return ("runs" if supervised else "starts"), some


def _find_reason(
    found: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    count: int,
    warnings: Sequence[Mapping[str, Any]],
) -> str:
    """Return the cluster's own reason why not all pods run; empty: none is known."""
    if waits := next((why for pod in found if (why := why_waits(pod))), ""):
        return waits
    told = sorted(warnings, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    if told:
        return explain_warning(told[-1])
    failed = [pod for pod in nodes if _phase(pod) == "Failed"]
    if failed and len(nodes) - len(failed) < count:
        # The Job waits longer and longer before it makes another.
        return f"{len(failed)} ended before the job began, the last one: {why_ended(failed[-1])}"
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
            said = " ".join(str(waiting.get("message") or "").split())
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
