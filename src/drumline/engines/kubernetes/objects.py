"""
The objects of a job on Kubernetes: pure, and what ``drumline plan`` shows.

All fields are those of 1.20; an older name of a field that newer servers also take is not used.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.engines.kubernetes.manifests import gang, placement, pod_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

HOME = "/drumline/home"
"""The home of Drumline in the pods: a run folder there is that pod's own."""

NOTES = "/drumline-notes"
"""Where the supervisor's pod reads what is asked of the job: an annotation of the pod, which the client writes."""

REQUESTS = "drumline/requests"
"""The annotation of the supervisor's pod with requests: a JSON object of the run folder's files."""

REASON_FILE = "cluster-says"
"""Why the job waits, in the words of the cluster."""

REQUEST_FILES = ("cancel", "preempt", "stacks-request", REASON_FILE)
"""Files of a run folder here that are carried to the one of the supervisor."""

PORT = 7433
"""Where agents ask the supervisor's pod which node they are."""

JOB_LABEL = "drumline/job"
ROLE_LABEL = "drumline/role"
NAME_ANNOTATION = "drumline/name"

SUBMISSION_ANNOTATION = "drumline/submission"
"""Of the supervisor's Job: random, by which whoever submits knows what an earlier try of the same has made."""

SUPERVISOR, NODE = "supervisor", "node"

_USER = 1000
_MOST_REPLACEMENTS = 1_000_000
"""Of pods: whether a lost one is worth another attempt is the supervisor's to decide."""

_END_S = 30
"""After the grace period, for the last words of a pod."""

_KEPT_S = 7 * 86400
"""After its end, for a client that went away: then a server that can removes all objects."""


class Objects(NamedTuple):
    """The objects of a job, in the order in which they are made. The first owns the others."""

    supervisor: dict[str, Any]
    """A Job of one pod, held back until the Secrets are there."""

    secrets: list[dict[str, Any]]
    service: dict[str, Any]
    nodes: dict[str, Any]
    """A Job of as many pods as the job has nodes."""

    group: dict[str, Any] | None = None
    """By which the cluster's scheduler starts all nodes or none; None: it has no such object. Made before them."""


def name_of(plan: Plan, folder: RunFolder) -> str:
    """Return the name of a job's objects: readable, and another one for each run folder of each machine."""
    import hashlib

    readable = re.sub(r"[^a-z0-9]+", "-", plan.job.lower()).strip("-")[:40].strip("-") or "job"
    key = f"{os.uname().nodename}\0{folder.path}"
    return f"dl-{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def name_nodes(name: str, number: int = 1) -> str:
    """Return the name of the Job of a job's nodes; ``number``: of the Jobs that made them, one after the other."""
    return f"{name}-nodes" if number == 1 else f"{name}-nodes-{number}"


def make_objects(
    plan: Plan,
    folder: RunFolder,
    bundle: Sequence[Mapping[str, str]],
    way: str = "",
    submission: str = "",
) -> Objects:
    """
    Return the objects. ``bundle``: the data of each Secret, in base64 or as words for people. ``way``: of starting all
    nodes or none (``gang.WAYS``); empty: what the compute says. ``submission``: its mark; empty: none.
    """
    name, namespace = name_of(plan, folder), str(plan.compute.get("namespace") or "default")
    made = _Maker(plan, name, namespace, bundle)
    secrets = pod_files.make_secrets(bundle, made.metadata)
    way = way or gang.guess(plan.compute)
    group = gang.make_group(way, made.metadata(), len(plan.nodes), plan.compute)
    supervisor = made.supervisor()
    if submission:
        supervisor["metadata"]["annotations"][SUBMISSION_ANNOTATION] = submission
    return Objects(supervisor, secrets, made.service(), made.nodes(way), group)


def own(thing: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with that owner, with which it goes."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [reference]}}


class _Maker:
    def __init__(self, plan: Plan, name: str, namespace: str, bundle: Sequence[Mapping[str, str]]) -> None:
        self._plan = plan
        self._compute = plan.compute
        self._name = name
        self._namespace = namespace
        self._bundle = bundle

    def metadata(self, role: str = "", *, suffix: str = "") -> dict[str, Any]:
        labels = {"app.kubernetes.io/name": "drumline", JOB_LABEL: self._name}
        if role:
            labels[ROLE_LABEL] = role
        return {
            "name": self._name + suffix,
            "namespace": self._namespace,
            "labels": labels,
            "annotations": {NAME_ANNOTATION: self._plan.job},
        }

    def supervisor(self) -> dict[str, Any]:
        small = {"requests": {"cpu": "100m", "memory": "256Mi"}}
        container = self._container(SUPERVISOR, [SUPERVISOR, self._plan.job], small)
        container["volumeMounts"].append({"name": "notes", "mountPath": NOTES, "readOnly": True})
        pod = self._pod(SUPERVISOR, container)
        annotation = {"path": "requests", "fieldRef": {"fieldPath": f"metadata.annotations['{REQUESTS}']"}}
        pod["volumes"].append({"name": "notes", "downwardAPI": {"items": [annotation]}})
        job = self._job(SUPERVISOR, "", 1, 0, pod)
        # Nothing starts before its Secrets, Service and nodes are there.
        job["spec"]["parallelism"] = 0
        return job

    def nodes(self, way: str) -> dict[str, Any]:
        count = len(self._plan.nodes)
        address = f"{self._name}.{self._namespace}.svc"
        arguments = [NODE, self._plan.job, address, str(PORT)]
        container = self._container(NODE, arguments, placement.resources_of(self._plan))
        container["securityContext"]["capabilities"] = placement.capabilities_of(self._compute)
        labels = {JOB_LABEL: self._name, ROLE_LABEL: NODE}
        pod = {**self._pod(NODE, container), **placement.place_node(self._compute, labels)}
        job = self._job(NODE, "-nodes", count, _MOST_REPLACEMENTS, pod)
        if self._compute.get("annotations"):
            job["spec"]["template"]["metadata"]["annotations"] = dict(self._compute["annotations"])
        gang.mark(way, job, self._name, self._compute)
        return job

    def service(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {JOB_LABEL: self._name, ROLE_LABEL: SUPERVISOR},
                "ports": [{"name": "nodes", "port": PORT, "protocol": "TCP"}],
            },
        }

    def _job(self, role: str, suffix: str, count: int, retries: int, pod: dict[str, Any]) -> dict[str, Any]:
        template = {"metadata": {"labels": self.metadata(role)["labels"]}, "spec": pod}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(role, suffix=suffix),
            "spec": {
                "completions": count,
                "parallelism": count,
                "backoffLimit": retries,
                "ttlSecondsAfterFinished": _KEPT_S,
                "template": template,
            },
        }

    def _pod(self, role: str, container: dict[str, Any]) -> dict[str, Any]:
        sources = pod_files.list_sources(self._bundle, self._name, with_secrets=role == SUPERVISOR)
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": math.ceil(self._plan.grace_s) + _END_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "bundle", "projected": {"defaultMode": 0o440, "sources": sources}},
                {"name": "drumline", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": self._shm_size()}},
                *(
                    {"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": one["claim"]}}
                    for index, one in enumerate(self._compute.get("volumes") or ())
                ),
            ],
        }
        if self._compute.get("priority_class"):
            pod["priorityClassName"] = str(self._compute["priority_class"])
        if self._compute.get("image_pull_secrets"):
            pod["imagePullSecrets"] = [{"name": name} for name in self._compute["image_pull_secrets"]]
        return pod

    def _container(self, role: str, arguments: list[str], resources: dict[str, Any]) -> dict[str, Any]:
        mounts = [
            {"name": "bundle", "mountPath": pod_files.BUNDLE, "readOnly": True},
            {"name": "drumline", "mountPath": os.path.dirname(HOME)},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - likewise
            *(
                {
                    "name": f"volume-{index}",
                    "mountPath": one["path"],
                    "readOnly": bool(one.get("read_only")),
                }
                for index, one in enumerate(self._compute.get("volumes") or ())
            ),
        ]
        node_name = {"name": "DRUMLINE_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        return {
            "name": role,
            "image": str(self._compute.get("image") or ""),
            "command": [str(self._compute.get("python") or "python3"), "-c", pod_files.boot(HOME)],
            "args": arguments,
            "env": [
                {"name": "DRUMLINE_HOME", "value": HOME},
                {"name": "HOME", "value": os.path.dirname(HOME)},
                node_name,
            ],
            "resources": resources,
            "volumeMounts": mounts,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
        }

    def _shm_size(self) -> str:
        """Return the size of shared memory: as the compute says, else half of the pod's memory."""
        if self._compute.get("shm_size"):
            return f"{self._compute['shm_size']}i"
        memory = re.fullmatch(r"(\d+)([KMGT])", str(self._compute.get("memory_per_node") or ""))
        if not memory:
            return "4Gi"
        number, unit = int(memory[1]), memory[2]
        below = {"T": "G", "G": "M", "M": "K"}
        return f"{number * 512}{below[unit]}i" if unit in below else f"{max(1, number // 2)}Ki"
