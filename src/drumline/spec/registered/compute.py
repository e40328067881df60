"""The computes that jobs run on, by name: Slurm, Kubernetes, this machine, or what Azure calls an amlcompute."""

from __future__ import annotations

import math
import re

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, to_dict
from drumline.spec.hints import describe_ignored, refuse_unknown
from drumline.spec.kinds.fields import Any, Declared, OrEmpty, field
from drumline.spec.kinds.lines import Amount, Count, Line, Quantity, SbatchOption, ScriptText, TimeLimit
from drumline.spec.kinds.records import Record, explain_type, find_type, list_fields
from drumline.spec.kinds.values import Anything, Flag, Integer, ListOf, MapOf, OneOf, Report, Text
from drumline.spec.reading.files import wrap_file
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.kinds.values import Kind
    from drumline.spec.reading.source import Node


NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Of a compute; it is a file's name too. Azure's are 2 to 32 letters, digits and ``-``."""

RESERVED = ("local", "serverless")
"""What a job's ``compute`` may say without one being attached."""

_MOST_NICE = 2147483645  # Slurm's own
_MOST_NODES = 250
"""Of the network of isolated nodes."""

_TEXT = Text()
_WORD = Line(r"[^\s\"'`$\\;&|<>#-][^\s\"'`$\\;&|<>#]*", "one word, without quotes or '$'")
_PATH = Line(r"/[^\"'`$\\]*", "an absolute path, without quotes or '$'")
_SCRATCH = Line(
    r"/([^\"'`$\\]|\$(USER|SLURM_JOB_ID)\b|\$\{(USER|SLURM_JOB_ID)\})*",
    "an absolute path, in which only $USER and $SLURM_JOB_ID are filled in",
)
_MEMORY = Line(r"[1-9][0-9]*[KMGT]", "a size with its unit K, M, G or T", "write 64 GB as 64G")
_INTERFACE = Line(r"[A-Za-z0-9][\w.@:-]{0,14}", "the name of one network interface", "ip link shows them")
_NUMBER = r"(?=[^1-9]*[1-9])[0-9]{1,12}(\.[0-9]{1,6})?"
_SIZE = Line(rf"{_NUMBER} ?[kKmMgGtT]i?[bB]?", "a size with its unit k, m, g or t", "write 2 GB as 2g")
_RATE = Line(rf"{_NUMBER} ?[kKmMgG]?[bB][iI][tT]", "a rate with its unit", "such as 1gbit or 100mbit")
_LATENCY = Line(rf"{_NUMBER} ?([uU]|[mM])?[sS]", "a time with its unit", "such as 5ms or 200us")
_LOSS = Line(
    r"(?=[^1-9]*[1-9])0*[0-9]{1,2}(\.[0-9]{1,6})? ?%", "a part of all packets, less than 100%", "such as 1%"
)
_SILENCE = Line(r"([2-9]|[1-9][0-9]{1,2}) ?[sS]", "whole seconds, 2s to 999s", "such as 10s")
_OBJECT = Line(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "lower-case letters, digits, '-' and '.'")
_NAMESPACE = Line(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "lower-case letters, digits and '-', 63 at most")
_CONTEXT = Line(r"[^\"'`$\\]+", "the name of a context", "kubectl config get-contexts shows them")
_IMAGE = Line(r"[^\s\"'`$\\]+", "the name of an image", "such as python:3.12-slim")
_PROGRAM = Line(r"[A-Za-z0-9._+-]+|/[^\"'`$\\]*", "a program's name or absolute path", "such as python3")
_RESOURCE = Line(r"[A-Za-z0-9./_-]+", "the name of a resource", "such as nvidia.com/gpu, or nvidia or amd")
_TAINT = Line(r"[A-Za-z0-9./_-]+", "the key of a taint", "such as nvidia.com/gpu")
_MOUNT = Line(r"/[^\"'`$\\:]*", "an absolute path, without quotes, ':' or '$'")

_READ_ONLY = (
    "$schema", "id", "created_on", "provisioning_state", "provisioning_errors", "resource_id", "location", "reason",
    "slurm", "local",
)  # fmt: skip
"""What ``compute show`` prints beside the settings, and Azure's; so what it shows can be attached again."""


class Compute(Written, Declared):
    """
    The root. ``id``, ``provisioning_state`` and ``created_on`` are set by whoever stores the compute.
    """

    name: str = field(
        Line(NAME, "letters, digits, '-' and '_', beginning with a letter or digit, 64 at most"),
        "The name that jobs use: compute: azureml:NAME.",
    )
    type: str = field(_TEXT, "The type of this thing.", default="", init=False)
    description: str | None = field(ScriptText(), "A text of your own.", default=None)
    tags: OrEmpty[dict[str, str]] = field(
        MapOf(Text(nullable=True)), "Names and values of your own.", factory=dict
    )
    id: str | None = field(None, default=None, init=False)
    created_on: str | None = field(None, default=None, init=False)
    provisioning_state: str | None = field(None, default=None, init=False)
    provisioning_errors: str | None = field(None, default=None, init=False)
    _warnings: list[str] = field(None, factory=list, init=False)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Keep Azure's location; other keywords of Azure's mean nothing here."""
        self.location = others.get("location")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class LocalCompute(Compute):
    """
    This machine, under a name that job files have already: ``compute: azureml:cpu-cluster``. ``size`` is what Azure's
    scripts have called it, kept for those that print it.

    With ``isolation="namespace"`` it plays ``nodes`` machines, each with what the other fields say.
    docs/howto/isolated-nodes.md says what each field does.
    """

    type = "local"
    tier: str | None = field(None, default=None, init=False)
    min_instances: int | None = field(None, default=None, init=False)
    max_instances: int | None = field(None, default=None, init=False)
    idle_time_before_scale_down: int | None = field(None, default=None, init=False)
    size: str | None = field(_TEXT, default=None)
    nodes: int | None = field(
        Count(1, _MOST_NODES), "The number of nodes that this machine plays.", default=None
    )
    isolation: str | None = field(
        OneOf("namespace"),
        "namespace: each node has its own network, host name, shared memory and limits.",
        default=None,
    )
    cpus: float | None = field(Amount(), "The processor time of each node, in processors.", default=None)
    memory: str | None = field(_SIZE, "The memory of each node, such as 2g.", default=None)
    shm_size: str | None = field(_SIZE, "The size of /dev/shm in a container, such as 2g.", default=None)
    tmp_size: str | None = field(
        _SIZE,
        "The size of the folder for temporary files of each node, such as 10g; default: the disk's.",
        default=None,
    )
    link: dict[str, str] | None = field(
        Record(
            "link",
            {
                "rate": field(_RATE, "The most that a node sends, and receives, such as 1gbit."),
                "latency": field(_LATENCY, "How late what a node sends arrives, such as 5ms."),
                "loss": field(_LOSS, "How many of the packets that a node sends are lost, such as 1%."),
            },
        ),
        "The line of each node to the others.",
        default=None,
    )
    silence: str | None = field(_SILENCE, "After how long a node that does not answer is lost.", default=None)


ISOLATED = ("cpus", "memory", "shm_size", "tmp_size", "link", "silence")
"""What isolated nodes alone have."""

_SHAPE = {
    "partition": field(_WORD, "The Slurm partition of its jobs."),
    "gpus_per_node": field(Count(0), "The GPUs of each node that a job gets."),
    "cores_per_node": field(Count(0), "The cores of each node that a job gets."),
    "memory_per_node": field(_MEMORY, "The memory of each node that a job gets, such as 64G."),
    "sbatch_options": field(ListOf(SbatchOption()), "Further options of sbatch, such as --constraint=a100."),
}
"""Of an instance type."""

_PRIORITY = Record(
    "priorities",
    {
        "qos": field(_WORD, "The quality of service of its jobs."),
        "partition": _SHAPE["partition"],
        "nice": Count(-_MOST_NICE, _MOST_NICE),
    },
)


class SlurmCompute(Compute):
    """
    A cluster whose ``sbatch`` this machine has. docs/howto/computes.md says what each field does.

    ``tier``: ``low_priority`` makes every job spot.
    """

    type = "slurm"
    min_instances: int | None = field(None, default=None, init=False)
    idle_time_before_scale_down: int | None = field(None, default=None, init=False)
    partition: str | None = field(_WORD, "The Slurm partition of its jobs.", default=None)
    account: str | None = field(_WORD, "The Slurm account that its jobs are charged to.", default=None)
    qos: str | None = field(_WORD, "The quality of service of its jobs.", default=None)
    tier: str | None = field(
        OneOf("low_priority", "dedicated"), "low_priority: every job is a spot job.", default=None
    )
    spot_partition: str | None = field(_WORD, "The partition of jobs with job_tier: spot.", default=None)
    spot_qos: str | None = field(_WORD, "The quality of service of jobs with job_tier: spot.", default=None)
    sbatch_options: list[str] | None = field(
        ListOf(SbatchOption()), "Further options of sbatch, such as --constraint=a100.", default=None
    )
    folder: str | None = field(
        _PATH, "The folder of its jobs' run folders; visible on all nodes.", default=None
    )
    scratch: str | None = field(_SCRATCH, "A folder on each node for temporary files.", default=None)
    python: str | None = field(_PATH, "The Python on the nodes that has drumline.", default=None)
    setup: str | None = field(
        ScriptText(), "Shell lines that run before a job, such as module load.", default=None
    )
    cores_per_node: int | None = field(Count(0), "The cores of each node that a job gets.", default=None)
    gpus_per_node: int | None = field(Count(0), "The GPUs of each node that a job gets.", default=None)
    memory_per_node: str | None = field(
        _MEMORY, "The memory of each node that a job gets, such as 64G.", default=None
    )
    max_instances: int | None = field(Count(1), "The maximum number of nodes of one job.", default=None)
    interface: str | None = field(_INTERFACE, "The network interface between ranks.", default=None)
    nccl_topo_file: str | None = field(_PATH, default=None)
    instance_types: dict[str, dict[str, Any]] | None = field(
        MapOf(Record("instance_types", _SHAPE)),
        "Shapes of nodes by name, for resources.instance_type.",
        default=None,
    )
    priorities: dict[str, dict[str, Any]] | None = field(
        Record("priorities", dict.fromkeys(("low", "medium", "high"), _PRIORITY)),
        "The QoS, partition or niceness of each priority.",
        default=None,
    )
    requeue: bool | None = field(Flag(), "Whether Slurm requeues its jobs.", default=None)
    time_limit: str | int | None = field(
        TimeLimit(), "The time limit of its jobs: minutes, HH:MM:SS or D-HH:MM:SS.", default=None
    )
    slurm_conf: str | None = field(_PATH, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        refuse_unknown(others, self._fields, "a slurm compute")
        super()._settle_arguments({})

    @property
    def size(self) -> str | None:
        """Return the first instance type, which is Azure's size where an amlcompute was attached."""
        return next(iter(self.instance_types or ()), None)


class AmlComputeSshSettings(Declared):
    """Read, and not used: the cluster's administrators manage logins."""

    admin_username: str = field(_TEXT)
    admin_password: str | None = field(_TEXT, default=None)
    ssh_key_value: str | None = field(_TEXT, default=None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.admin_username!r})"


class NetworkSettings(Declared):
    """Read, and not used: the cluster's network is as it is."""

    vnet_name: str | None = field(_TEXT, default=None)
    subnet: str | None = field(_TEXT, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Drop what else Azure's takes."""


class IdentityConfiguration(Declared):
    """Read, and not used: jobs run as you."""

    type: str = field(OneOf("system_assigned", "user_assigned", "none"))
    user_assigned_identities: Any = field(ListOf(Anything()), default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """Drop what else Azure's takes."""


_IDENTITY = Record(
    "identity", list_fields(IdentityConfiguration), ignored=("$schema", "principal_id", "tenant_id")
)


class KubernetesCompute(Compute):
    """
    A cluster that a kubeconfig leads to. docs/howto/kubernetes.md says what each field does.
    """

    type = "kubernetes"
    size: str | None = field(None, default=None, init=False)
    tier: str | None = field(None, default=None, init=False)
    min_instances: int | None = field(None, default=None, init=False)
    idle_time_before_scale_down: int | None = field(None, default=None, init=False)
    kubeconfig: str | None = field(_PATH, "The file with clusters and users.", default=None)
    context: str | None = field(_CONTEXT, "The context of the kubeconfig.", default=None)
    namespace: str | None = field(_NAMESPACE, "The namespace of the objects of its jobs.", default=None)
    image: str | None = field(_IMAGE, "The image of its jobs' pods.", default=None)
    python: str | None = field(_PROGRAM, "The image's Python.", default=None)
    cores_per_node: int | None = field(Count(1), "The cores of each node that a job gets.", default=None)
    memory_per_node: str | None = field(
        _MEMORY, "The memory of each node that a job gets, such as 64G.", default=None
    )
    shm_size: str | None = field(_MEMORY, "The size of /dev/shm in a container, such as 2g.", default=None)
    gpus_per_node: int | None = field(Count(0), "The GPUs of each node that a job gets.", default=None)
    gpu_resource: str | None = field(_RESOURCE, "The resource of Kubernetes that counts GPUs.", default=None)
    max_instances: int | None = field(Count(1), "The maximum number of nodes of one job.", default=None)
    queue: str | None = field(_OBJECT, "The queue of Kueue that its jobs wait in.", default=None)
    gang_timeout: int | None = field(
        Count(1), "How many seconds the pods of a job wait for each other.", default=None
    )
    priority_class: str | None = field(_OBJECT, "The priority class of its jobs' pods.", default=None)
    node_selector: dict[str, str] | None = field(MapOf(_TEXT), "Labels that nodes must have.", default=None)
    tolerations: list[dict[str, Any]] | None = field(
        ListOf(
            Record(
                "tolerations",
                {
                    "key": field(_TAINT, "The key of the taint."),
                    "operator": field(OneOf("Exists", "Equal", fold=str), "How key and value are compared."),
                    "value": field(_TEXT, "The value of the taint."),
                    "effect": field(
                        OneOf("NoSchedule", "PreferNoSchedule", "NoExecute", fold=str),
                        "The effect of the taint.",
                    ),
                    "tolerationSeconds": field(Count(0), "How long pods stay after the taint came."),
                },
            )
        ),
        "Taints of nodes that do not matter.",
        default=None,
    )
    image_pull_secrets: list[str] | None = field(
        ListOf(_OBJECT), "Secrets with the credentials of registries.", default=None
    )
    volumes: list[dict[str, Any]] | None = field(
        ListOf(
            Record(
                "volumes",
                {
                    "claim": field(_OBJECT, "The name of a persistent volume claim."),
                    "path": field(_MOUNT, "Where pods mount it."),
                    "read_only": field(Flag(), "Whether pods can only read it."),
                },
                required=("claim", "path"),
            )
        ),
        "Claims that all pods of a job mount.",
        default=None,
    )
    resources: dict[str, str] | None = field(
        MapOf(Quantity()), "More of what each node gets, such as rdma/hca: 1.", default=None
    )
    annotations: dict[str, str] | None = field(MapOf(_TEXT), "Annotations of the nodes' pods.", default=None)
    spread: str | None = field(
        OneOf("prefer", "require", "none"),
        "Whether each node of a job gets a machine of its own.",
        default=None,
    )
    host_network: bool | None = field(Flag(), "Whether nodes use the network of their machine.", default=None)
    scheduler: str | None = field(_OBJECT, "The scheduler of the nodes' pods.", default=None)
    runtime_class: str | None = field(_OBJECT, "The runtime class of the nodes' pods.", default=None)
    gang: str | None = field(
        OneOf("kueue", "volcano", "coscheduling", "own"),
        "How all nodes of a job start together: kueue, volcano, coscheduling or own.",
        default=None,
    )

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        if others.get("properties"):
            mapped, self._warnings = map_properties(others["properties"])
            for name, value in mapped.items():
                if getattr(self, name) is None:
                    setattr(self, name, value)
        if others.get("identity"):
            self._warnings.append("identity: not used; pods have no identity of Azure's")


class _Tier(OneOf):
    """Azure's constructor takes ``LowPriority`` and ``low-priority`` too; its YAML does not."""

    def adopt(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).replace("-", "_").lower()


class AmlCompute(Compute):
    """
    Azure's cluster, with Azure's defaults. Attached, it becomes a SlurmCompute: ``to_slurm``.

    Numbers may be any, as for Azure's client; which cannot be shows once it stands for a cluster.
    Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.entities.amlcompute
    """

    type: str = field(OneOf("amlcompute"), "The type of this thing.", default="amlcompute")
    location: str | None = field(_TEXT, default=None)
    size: str | None = field(_TEXT, default=None)
    tier: str | None = field(
        _Tier("low_priority", "dedicated"), "low_priority: every job is a spot job.", default=None
    )
    min_instances: int | None = field(Integer(), default=0)
    max_instances: int | None = field(Integer(), "The maximum number of nodes of one job.", default=4)
    idle_time_before_scale_down: int | None = field(Integer(), default=120)
    ssh_public_access_enabled: bool | None = field(Flag(), default=None)
    ssh_settings: Any = field(Record("ssh_settings", list_fields(AmlComputeSshSettings)), default=None)
    network_settings: Any = field(
        Record(
            "network_settings",
            list_fields(NetworkSettings),
            ignored=("$schema", "public_ip_address", "private_ip_address"),
        ),
        default=None,
    )
    identity: Any = field(_IDENTITY, default=None)
    enable_node_public_ip: bool = field(Flag(), default=True)
    _given: frozenset[str] = field(None, factory=frozenset, init=False)
    """The keys of the file, for there a default is said on purpose."""

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        self._warnings = [describe_ignored(name, self._fields) for name in others if name not in _KEPT]


_KEPT = ("resource_id", "created_on", "provisioning_state", "provisioning_errors")


class NodesOfOneMachine(Record):
    """A local compute. What each node has can be said of isolated nodes alone."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        values = super().take(node, path, report)
        if isinstance(node, Mapping) and "isolation" not in node:
            for key, key_node, _ in node:
                if key in ISOLATED:
                    report.add(f"{key} needs isolated nodes", key_node, str(key), "add isolation: namespace")
        return values


def _table(noun: str, kind: type[Compute], make: type[Record] = Record, **more: Kind) -> Record:
    return make(
        noun,
        {**list_fields(kind), **more},
        required=("name", "type"),
        ignored=_READ_ONLY if kind is AmlCompute else (*_READ_ONLY, kind.type),
    )


RECORDS = {
    "slurm": _table("a slurm compute", SlurmCompute),
    "local": _table("a local compute", LocalCompute, NodesOfOneMachine),
    "kubernetes": _table(
        "a kubernetes compute",
        KubernetesCompute,
        properties=Record("Azure's properties", {}, unknown="keep"),
        identity=_IDENTITY,
    ),
    "amlcompute": _table("an amlcompute", AmlCompute),
}
_CLASSES: dict[str, type[Compute]] = dict(
    zip(RECORDS, (SlurmCompute, LocalCompute, KubernetesCompute, AmlCompute), strict=True)
)
TYPES = tuple(_CLASSES)
_OTHER_TYPES = ("virtualmachine", "computeinstance", "synapsespark")


def from_dict(values: dict[str, Any], *, params_override: list[dict[str, Any]] | None = None) -> Compute:
    """Return the compute of such a mapping, checked. Raises SpecError with every problem."""
    return from_tree(wrap_file(values, params_override), Report(""))


def check_compute(compute: Compute) -> Compute:
    """Return a compute that was built or changed in Python, as its file would read. Raises SpecError."""
    values = to_dict(compute)
    again = from_dict(values)
    again._warnings = list(compute._warnings)
    if isinstance(again, AmlCompute) and isinstance(compute, AmlCompute):
        again._given = compute._given
    return again


def from_tree(root: Mapping, report: Report) -> Compute:
    """Return the compute of a file. Raises SpecError with every problem of the file."""
    kind = find_type(root, "compute", _CLASSES, _OTHER_TYPES)
    values = RECORDS[kind].read(root, report)
    compute = _CLASSES[kind](**{key: value for key, value in values.items() if key != "type"})
    if isinstance(compute, AmlCompute):
        compute._given = frozenset(values)
    return compute


def check_type(kind: str) -> None:
    """Check the type of a compute. Raises SpecError for an unknown one."""
    if kind not in _CLASSES:
        raise SpecError(*explain_type(kind, repr(kind), "compute", _CLASSES, _OTHER_TYPES))


_UNUSED = {
    "location": (None, "the cluster is where it is"),
    "min_instances": (0, "Slurm keeps the nodes"),
    "idle_time_before_scale_down": (120, "Slurm keeps the nodes"),
    "ssh_public_access_enabled": (None, "the cluster's administrators manage logins"),
    "ssh_settings": (None, "the cluster's administrators manage logins"),
    "network_settings": (None, "the cluster's network is as it is"),
    "identity": (None, "jobs run as you"),
    "enable_node_public_ip": (True, "the cluster's network is as it is"),
}


CLUSTER_FIELDS = ("tier", "min_instances", "max_instances", "idle_time_before_scale_down")
"""What a cluster has and this machine has not; scripts written for an amlcompute change it."""


def describe_unused(aml: AmlCompute) -> list[str]:
    """Return a warning for each field of Azure's that has no effect on machines that people own."""
    return [
        f"{field}: not used; {instead}"
        for field, (default, instead) in _UNUSED.items()
        if getattr(aml, field) is not None and (field in aml._given or getattr(aml, field) != default)
    ]


def to_slurm(aml: AmlCompute) -> tuple[SlurmCompute, list[str]]:
    """Return the cluster that stands for Azure's, and the warnings. Nothing is checked here."""
    slurm = SlurmCompute(
        name=aml.name,
        description=aml.description,
        tags=aml.tags,
        tier=aml.tier,
        max_instances=aml.max_instances,
        instance_types={aml.size: {}} if aml.size else None,
    )
    return slurm, [*aml._warnings, *describe_unused(aml)]


# Azure's ``properties`` of a Kubernetes compute, as settings of ours: pure.


_BYTES = {"": 1, **{unit: 1000**power for power, unit in enumerate("kMGT", 1)}}
_BYTES |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}

_NO_GPU = ("cpu", "memory", "ephemeral-storage", "hugepages-")


def map_properties(properties: Any) -> tuple[dict[str, Any], list[str]]:
    """
    Return what they mean in our settings, and warnings of what is not used. An instance type that is the default, or
    the only one, says what the node of a job gets: its pod is one of that type.

    >>> kind = {"nodeSelector": {"pool": "gpu"}, "resources": {"requests": {"cpu": "1500m", "memory": "4Gi"}}}
    >>> map_properties({"instanceTypes": {"gpu": kind}, "defaultInstanceType": "gpu"})
    ({'node_selector': {'pool': 'gpu'}, 'cores_per_node': 2, 'memory_per_node': '4096M'}, [])
    """
    if not isinstance(properties, dict):
        return {}, ["properties: not used; it is no mapping"]
    given = {_plain(name): (name, value) for name, value in properties.items()}
    settings: dict[str, Any] = {}
    used = set()
    namespace = given.get("namespace", ("", None))[1]
    if namespace and isinstance(namespace, str):
        settings["namespace"] = namespace
        used.add("namespace")
    types = given.get("instancetypes", ("", None))[1]
    types = types if isinstance(types, dict) else {}
    default = given.get("defaultinstancetype", ("", None))[1]
    chosen = types.get(default) if default else next(iter(types.values()), None) if len(types) == 1 else None
    warnings = []
    if isinstance(chosen, dict):
        settings |= _map_type(chosen)
        used |= {"instancetypes", "defaultinstancetype"}
        warnings = [
            f"properties.{given['instancetypes'][0]}.{name}: not used; jobs get the default one"
            for name, one in types.items()
            if one is not chosen
        ]
    warnings += [f"properties.{name}: not used" for key, (name, _) in given.items() if key not in used]
    return settings, warnings


def _plain(name: object) -> str:
    """Return a key as it is in Azure's REST and in snake case alike."""
    return str(name).replace("_", "").lower()


def _map_type(one: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    parts = {_plain(name): value for name, value in one.items()}
    if isinstance(parts.get("nodeselector"), dict) and parts["nodeselector"]:
        settings["node_selector"] = {str(name): str(value) for name, value in parts["nodeselector"].items()}
    resources = parts.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    asked: dict[str, Any] = {}
    for part in ("limits", "requests"):
        if isinstance(resources.get(part), dict):
            asked |= resources[part]
    if cores := _amount(asked.get("cpu")):
        settings["cores_per_node"] = math.ceil(cores)
    if memory := _amount(asked.get("memory")):
        settings["memory_per_node"] = f"{max(1, int(memory) >> 20)}M"
    for name, value in asked.items():
        if not str(name).startswith(_NO_GPU) and (count := _amount(value)):
            settings["gpus_per_node"] = int(count)
            if name != "nvidia.com/gpu":
                settings["gpu_resource"] = str(name)
            break
    return settings


def _amount(text: object) -> float:
    """Return the number of a quantity of Kubernetes; 0 for none."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGT]?|[KMGT]i)", str(text))
    if not found:
        return 0.0
    return float(found[1]) / 1000 if found[2] == "m" else float(found[1]) * _BYTES[found[2]]
