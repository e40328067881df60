"""
The objects of a job on Kubernetes: pure, and what ``drumline plan`` shows.

All fields are those of 1.20; an older name of a field that newer servers also take is not used.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotSubmittedError
from drumline.contract.record import NamedTuple
from drumline.engines.kubernetes import access, bundle

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


# Fields that a server has left out of an object: one that does not know a field drops it, and says nothing.

_LEFT_OUT = {"readOnly": False}
"""
Fields that servers leave out where they have this value. They keep false and 0 in all others that a job sends, where
these differ from nothing.
"""

_EMPTY: tuple[Any, ...] = ("", None, {}, [])
"""Values that say nothing: servers leave out most fields that have them."""

_NOTHING = object()

_NOT_NEEDED = ("ttlSecondsAfterFinished",)
"""Fields that jobs do without: servers before 1.21 remove nothing by themselves."""


def find_dropped(sent: Any, kept: Any, path: str = "") -> str:
    """
    Return the path of the first field that is missing in what the server has; empty: none. Values may differ: servers
    write quantities their way, and what a cluster's own rules change is theirs to change.

    >>> find_dropped({"spec": {"a": 1, "b": [{"c": 2}]}}, {"spec": {"a": 1, "b": [{}], "d": 4}})
    'spec.b.0.c'
    >>> find_dropped({"value": "", "list": []}, {})
    ''
    """
    if isinstance(sent, dict):
        wanted = {key: value for key, value in sent.items() if key not in _NOT_NEEDED}
        kept = kept if isinstance(kept, dict) else {}
        parts = [(key, value, kept.get(key, _NOTHING)) for key, value in wanted.items()]
    elif isinstance(sent, list):
        kept = kept if isinstance(kept, list) else []
        parts = [(key, value, kept[key] if key < len(kept) else _NOTHING) for key, value in enumerate(sent)]
    else:
        return ""
    for key, value, there in parts:
        place = f"{path}.{key}" if path else str(key)
        if there is _NOTHING and value not in (*_EMPTY, _LEFT_OUT.get(key, _NOTHING)):
            return place
        if missing := find_dropped(value, there, place):
            return missing
    return ""


# The place of a job's pods and their resources: the settings of a compute as fields of a pod.

GPU_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
    "gaudi": "habana.ai/gaudi",
}
"""The resource that counts GPUs, by the word for their maker; others are written out."""

_RDMA = ("rdma/", "vpc.amazonaws.com/efa")
"""Beginnings of resources whose drivers lock memory."""

_HOST = "kubernetes.io/hostname"

_SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SILENCE_S = 30
"""
After Kubernetes has found a node silent, until its pods are replaced. A server adds 300 s where a pod says nothing.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""


def gpu_resource(compute: Mapping[str, Any]) -> str:
    """
    Return the resource that counts a compute's GPUs.

    >>> gpu_resource({}), gpu_resource({"gpu_resource": "amd"}), gpu_resource({"gpu_resource": "example.com/npu"})
    ('nvidia.com/gpu', 'amd.com/gpu', 'example.com/npu')
    """
    named = str(compute.get("gpu_resource") or "nvidia")
    return GPU_RESOURCES.get(named, named)


def resources_of(plan: Plan) -> access.Manifest:
    """Return requests and limits of a node's pod. Cores have no limit: a rank may use what nobody else does."""
    compute = plan.compute
    wanted = math.ceil(plan.cores_wanted / max(1, len(plan.nodes)))
    fixed: dict[str, str] = {}
    if compute.get("memory_per_node"):
        fixed["memory"] = f"{compute['memory_per_node']}i"
    gpus = max((node.gpu_count for node in plan.nodes), default=0)
    if gpus:
        fixed[gpu_resource(compute)] = str(gpus)
    fixed |= {str(name): str(amount) for name, amount in (compute.get("resources") or {}).items()}
    requests = {"cpu": str(compute.get("cores_per_node") or max(1, wanted)), **fixed}
    return {"requests": requests, **({"limits": fixed} if fixed else {})}


def capabilities_of(compute: Mapping[str, Any]) -> access.Manifest:
    """Return the capabilities of a node's pod: none, but where it has RDMA the one to lock memory."""
    locks = any(str(name).startswith(_RDMA) for name in compute.get("resources") or {})
    return {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if locks else {})}


def place_node(compute: Mapping[str, Any], labels: Mapping[str, str]) -> access.Manifest:
    """Return the fields of a node's pod that say where it may run. ``labels``: those of all nodes of the job."""
    fields: access.Manifest = {}
    if compute.get("node_selector"):
        fields["nodeSelector"] = _plain(compute["node_selector"])
    fields["tolerations"] = _list_tolerations(_plain(compute.get("tolerations") or []))
    for setting, field in (("scheduler", "schedulerName"), ("runtime_class", "runtimeClassName")):
        if compute.get(setting):
            fields[field] = str(compute[setting])
    if compute.get("host_network"):
        # The name of the supervisor is one of the cluster.
        fields |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return fields | _spread(str(compute.get("spread") or "prefer"), labels)


def _spread(wish: str, labels: Mapping[str, str]) -> access.Manifest:
    """Return the fields by which each node of a job gets a machine of its own. ``wish``: prefer, require or none."""
    selector = {"matchLabels": dict(labels)}
    if wish == "require":
        term = {"labelSelector": selector, "topologyKey": _HOST}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    if wish == "none":
        return {}
    soft = {
        "maxSkew": 1,
        "topologyKey": _HOST,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [soft]}


def _list_tolerations(given: list[access.Manifest]) -> list[access.Manifest]:
    """Return the tolerations of a compute, and those of a silent node's taints that it says nothing of."""
    said = {one.get("key") for one in given}
    fields = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SILENCE_S}
    # One without a key is for all taints.
    return [*given, *({"key": key, **fields} for key in _SILENT if not said & {key, None, ""})]


def _plain(value: Any) -> Any:
    """Return the settings of a compute as JSON; the seconds of a toleration are a number."""
    if isinstance(value, dict):
        return {key: int(one) if key == "tolerationSeconds" else one for key, one in value.items()}
    return [_plain(one) for one in value]


# All nodes of a job or none: how the scheduler of a cluster is told so, where it can do that.

KUEUE = "kueue.x-k8s.io"
QUEUE_LABEL = f"{KUEUE}/queue-name"

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
) -> access.Manifest | None:
    """Return the object that says how many pods start together; None: this way has none."""
    if way not in access.GANGS:
        return None
    right = access.GANGS[way]
    spec: access.Manifest = {"minMember": count}
    if way == "volcano" and compute.get("queue"):
        spec["queue"] = str(compute["queue"])
    return {
        "apiVersion": f"{right.group}/{right.version}",
        "kind": "PodGroup",
        "metadata": dict(metadata),
        "spec": spec,
    }


def mark(way: str, job: access.Manifest, group: str, compute: Mapping[str, Any]) -> None:
    """Have the pods of that Job start together. ``group``: the name of their group."""
    template = job["spec"]["template"]
    if way == "kueue" and compute.get("queue"):
        job["metadata"]["labels"][QUEUE_LABEL] = str(compute["queue"])
    elif way == "volcano":
        template["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = group
        template["spec"].setdefault("schedulerName", "volcano")
    elif way == "coscheduling":
        template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group


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

    supervisor: access.Manifest
    """A Job of one pod, held back until the Secrets are there."""

    secrets: list[access.Manifest]
    service: access.Manifest
    nodes: access.Manifest
    """A Job of as many pods as the job has nodes."""

    group: access.Manifest | None = None
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
    secret_data: Sequence[Mapping[str, str]],
    way: str = "",
    submission: str = "",
) -> Objects:
    """
    Return the objects. ``secret_data``: of each Secret, in base64 or as words for people. ``way``: of starting all
    nodes or none (``WAYS``); empty: what the compute says. ``submission``: its mark; empty: none.
    """
    name, namespace = name_of(plan, folder), str(plan.compute.get("namespace") or "default")
    made = _Maker(plan, name, namespace, secret_data)
    secrets = bundle.make_secrets(secret_data, made.metadata)
    way = way or guess(plan.compute)
    group = make_group(way, made.metadata(), len(plan.nodes), plan.compute)
    supervisor = made.supervisor()
    if submission:
        supervisor["metadata"]["annotations"][SUBMISSION_ANNOTATION] = submission
    return Objects(supervisor, secrets, made.service(), made.nodes(way), group)


def own(thing: access.Manifest, owner: Mapping[str, Any]) -> access.Manifest:
    """Return the object with that owner, with which it goes."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [reference]}}


class _Maker:
    def __init__(
        self, plan: Plan, name: str, namespace: str, secret_data: Sequence[Mapping[str, str]]
    ) -> None:
        self._plan = plan
        self._compute = plan.compute
        self._name = name
        self._namespace = namespace
        self._secret_data = secret_data

    def metadata(self, role: str = "", *, suffix: str = "") -> access.Manifest:
        labels = {"app.kubernetes.io/name": "drumline", JOB_LABEL: self._name}
        if role:
            labels[ROLE_LABEL] = role
        return {
            "name": self._name + suffix,
            "namespace": self._namespace,
            "labels": labels,
            "annotations": {NAME_ANNOTATION: self._plan.job},
        }

    def supervisor(self) -> access.Manifest:
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

    def nodes(self, way: str) -> access.Manifest:
        count = len(self._plan.nodes)
        address = f"{self._name}.{self._namespace}.svc"
        arguments = [NODE, self._plan.job, address, str(PORT)]
        container = self._container(NODE, arguments, resources_of(self._plan))
        container["securityContext"]["capabilities"] = capabilities_of(self._compute)
        labels = {JOB_LABEL: self._name, ROLE_LABEL: NODE}
        pod = {**self._pod(NODE, container), **place_node(self._compute, labels)}
        job = self._job(NODE, "-nodes", count, _MOST_REPLACEMENTS, pod)
        if self._compute.get("annotations"):
            job["spec"]["template"]["metadata"]["annotations"] = dict(self._compute["annotations"])
        mark(way, job, self._name, self._compute)
        return job

    def service(self) -> access.Manifest:
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

    def _job(self, role: str, suffix: str, count: int, retries: int, pod: access.Manifest) -> access.Manifest:
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

    def _pod(self, role: str, container: access.Manifest) -> access.Manifest:
        sources = bundle.list_sources(self._secret_data, self._name, with_secrets=role == SUPERVISOR)
        pod: access.Manifest = {
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

    def _container(self, role: str, arguments: list[str], resources: access.Manifest) -> access.Manifest:
        mounts = [
            {"name": "bundle", "mountPath": bundle.BUNDLE, "readOnly": True},
            {"name": "drumline", "mountPath": os.path.dirname(bundle.HOME)},
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
            "command": [str(self._compute.get("python") or "python3"), "-c", bundle.boot(bundle.HOME)],
            "args": arguments,
            "env": [
                {"name": "DRUMLINE_HOME", "value": bundle.HOME},
                {"name": "HOME", "value": os.path.dirname(bundle.HOME)},
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


# The manifests of a job as text, for people.


def render(plan: Plan, folder: RunFolder) -> str:
    """
    Return the manifests that ``submit`` would send, but for the bytes in the Secret, which are several where the
    code is large. Raises PlanError for what pods cannot have.
    """
    import yaml

    bundle.check(plan, folder)
    secret_data = {
        bundle.PACKAGE_FILE: "(Drumline)",
        bundle.name_part(0): "(the plan and the code)",
        bundle.TOKEN_FILE: "(random)",
    }
    if plan.secrets or plan.notify:
        secret_data[bundle.SECRETS_FILE] = "(the job's secrets)"
    made = make_objects(plan, folder, [secret_data], submission="(random)")
    things = [made.supervisor, *made.secrets, made.service, made.nodes, made.group]
    return yaml.safe_dump_all(filter(None, things), sort_keys=False, width=110)
