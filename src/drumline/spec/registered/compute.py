"""The computes that jobs run on, by name: Slurm, Kubernetes, this machine, or what Azure calls an amlcompute."""

from __future__ import annotations

import re

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Entity, Written, plain
from drumline.spec.fields import list_whole
from drumline.spec.keywords import describe_ignored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Mapping


class Compute(Written):
    """
    The root. ``id``, ``provisioning_state`` and ``created_on`` are set by whoever stores the compute.
    """

    type = ""
    _fields: tuple[str, ...] = ("name", "type", "description", "tags")
    _settings: tuple[str, ...] = ()
    """Fields of a class of its own, which are attributes of the same name."""

    def __init__(
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.description = description
        self.tags = dict(tags or {})
        self.location = kwargs.get("location")
        self.id: str | None = None
        self.created_on: str | None = None
        self.provisioning_state: str | None = None
        self.provisioning_errors: str | None = None
        self._warnings: list[str] = []

    def _keep_settings(self, given: dict[str, Any]) -> None:
        """Take the settings from the arguments of a constructor."""
        for field in self._settings:
            setattr(self, field, given[field])

    def _file(self) -> dict[str, Any]:
        return to_dict(self)

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
    _whole = ("nodes",)
    _settings = ("nodes", "isolation", "cpus", "memory", "shm_size", "tmp_size", "link", "silence")
    _fields = (*Compute._fields, "size", *_settings)
    tier: str | None = None
    min_instances: int | None = None
    max_instances: int | None = None
    idle_time_before_scale_down: int | None = None

    def __init__(  # noqa: PLR0913 - a node has this many
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        size: str | None = None,
        nodes: int | None = None,
        isolation: str | None = None,
        cpus: float | None = None,
        memory: str | None = None,
        shm_size: str | None = None,
        tmp_size: str | None = None,
        link: dict[str, str] | None = None,
        silence: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, description=description, tags=tags, **kwargs)
        self.size = size
        self._keep_settings(locals())


class SlurmCompute(Compute):
    """
    A cluster whose ``sbatch`` this machine has. docs/howto/computes.md says what each field does.

    ``tier``: ``low_priority`` makes every job spot.
    """

    type = "slurm"
    _whole = ("cores_per_node", "gpus_per_node", "max_instances")
    _folded = ("tier",)
    _settings = (
        "partition", "account", "qos", "tier", "spot_partition", "spot_qos", "sbatch_options", "folder", "scratch",
        "python", "setup", "cores_per_node", "gpus_per_node", "memory_per_node", "max_instances", "interface",
        "nccl_topo_file", "instance_types", "priorities", "requeue", "time_limit", "slurm_conf",
    )  # fmt: skip
    _fields = (*Compute._fields, *_settings)
    min_instances: int | None = None
    idle_time_before_scale_down: int | None = None

    def __init__(  # noqa: PLR0913 - a cluster has this many
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        tier: str | None = None,
        spot_partition: str | None = None,
        spot_qos: str | None = None,
        sbatch_options: list[str] | None = None,
        folder: str | None = None,
        scratch: str | None = None,
        python: str | None = None,
        setup: str | None = None,
        cores_per_node: int | None = None,
        gpus_per_node: int | None = None,
        memory_per_node: str | None = None,
        max_instances: int | None = None,
        interface: str | None = None,
        nccl_topo_file: str | None = None,
        instance_types: dict[str, dict[str, Any]] | None = None,
        priorities: dict[str, dict[str, Any]] | None = None,
        requeue: bool | None = None,
        time_limit: str | int | None = None,
        slurm_conf: str | None = None,
    ) -> None:
        super().__init__(name=name, description=description, tags=tags)
        self._keep_settings(locals())

    @property
    def size(self) -> str | None:
        """Return the first instance type, which is Azure's size where an amlcompute was attached."""
        return next(iter(self._values().get("instance_types") or ()), None)


class KubernetesCompute(Compute):
    """
    A cluster that a kubeconfig leads to. docs/howto/kubernetes.md says what each field does.
    """

    type = "kubernetes"
    _whole = ("cores_per_node", "gpus_per_node", "max_instances", "gang_timeout")
    _settings = (
        "kubeconfig", "context", "namespace", "image", "python", "cores_per_node", "memory_per_node",
        "shm_size", "gpus_per_node", "gpu_resource", "max_instances", "queue", "gang_timeout",
        "priority_class", "node_selector", "tolerations", "image_pull_secrets", "volumes", "resources",
        "annotations", "spread", "host_network", "scheduler", "runtime_class", "gang",
    )  # fmt: skip
    _fields = (*Compute._fields, *_settings)
    size: str | None = None
    tier: str | None = None
    min_instances: int | None = None
    idle_time_before_scale_down: int | None = None

    def __init__(  # noqa: PLR0913 - a cluster has this many
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        image: str | None = None,
        python: str | None = None,
        cores_per_node: int | None = None,
        memory_per_node: str | None = None,
        shm_size: str | None = None,
        gpus_per_node: int | None = None,
        gpu_resource: str | None = None,
        max_instances: int | None = None,
        queue: str | None = None,
        gang_timeout: int | None = None,
        priority_class: str | None = None,
        node_selector: dict[str, str] | None = None,
        tolerations: list[dict[str, Any]] | None = None,
        image_pull_secrets: list[str] | None = None,
        volumes: list[dict[str, Any]] | None = None,
        resources: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        spread: str | None = None,
        host_network: bool | None = None,
        scheduler: str | None = None,
        runtime_class: str | None = None,
        gang: str | None = None,
        properties: Any = None,
        identity: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, description=description, tags=tags, **kwargs)
        self._keep_settings(locals())
        if properties:
            from drumline.spec.registered.azure_kubernetes import map_properties

            mapped, self._warnings = map_properties(properties)
            for field, value in mapped.items():
                if getattr(self, field) is None:
                    setattr(self, field, value)
        if identity:
            self._warnings.append("identity: not used; pods have no identity of Azure's")


class AmlComputeSshSettings(Entity):
    """Read, and not used: the cluster's administrators manage logins."""

    _fields = tuple(fields.AMLCOMPUTE_SSH)

    def __init__(
        self, *, admin_username: str, admin_password: str | None = None, ssh_key_value: str | None = None
    ) -> None:
        self.admin_username = admin_username
        self.admin_password = admin_password
        self.ssh_key_value = ssh_key_value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.admin_username!r})"


class NetworkSettings(Entity):
    """Read, and not used: the cluster's network is as it is."""

    _fields = tuple(fields.AMLCOMPUTE_NETWORK)

    def __init__(self, *, vnet_name: str | None = None, subnet: str | None = None, **kwargs: Any) -> None:
        self.vnet_name = vnet_name
        self.subnet = subnet


class IdentityConfiguration(Entity):
    """Read, and not used: jobs run as you."""

    _fields = tuple(fields.AMLCOMPUTE_IDENTITY)

    def __init__(self, *, type: str, user_assigned_identities: Any = None, **kwargs: Any) -> None:
        self.type = type
        self.user_assigned_identities = user_assigned_identities


class AmlCompute(Compute):
    """
    Azure's cluster, with Azure's defaults. Attached, it becomes a SlurmCompute: ``to_slurm``.

    Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.entities.amlcompute
    """

    type = "amlcompute"
    _whole = list_whole(fields.AMLCOMPUTE)
    _fields = (*Compute._fields, *fields.AMLCOMPUTE)

    def __init__(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        name: str,
        description: str | None = None,
        size: str | None = None,
        tags: dict[str, str] | None = None,
        ssh_public_access_enabled: bool | None = None,
        ssh_settings: Any = None,
        min_instances: int | None = 0,
        max_instances: int | None = 4,
        network_settings: Any = None,
        idle_time_before_scale_down: int | None = 120,
        identity: Any = None,
        tier: str | None = None,
        enable_node_public_ip: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, description=description, tags=tags, location=kwargs.get("location"))
        self.size = size
        self.tier = tier
        self.min_instances = min_instances
        self.max_instances = max_instances
        self.idle_time_before_scale_down = idle_time_before_scale_down
        self.ssh_public_access_enabled = ssh_public_access_enabled
        self.ssh_settings = ssh_settings
        self.network_settings = network_settings
        self.identity = identity
        self.enable_node_public_ip = enable_node_public_ip
        self._given: frozenset[str] = frozenset()
        """The keys of the file, for there a default is said on purpose."""

        self._warnings = [describe_ignored(name, self._fields) for name in kwargs if name not in _KEPT]


_KEPT = ("location", "resource_id", "type", "created_on", "provisioning_state", "provisioning_errors")
_CLASSES: dict[str, type[Compute]] = {
    "slurm": SlurmCompute,
    "local": LocalCompute,
    "kubernetes": KubernetesCompute,
    "amlcompute": AmlCompute,
}
TYPES = tuple(_CLASSES)
_KNOWN_TYPES = "one of " + ", ".join(map(repr, TYPES))
_OTHER_TYPES = ("virtualmachine", "computeinstance", "synapsespark")


def to_dict(compute: Compute) -> dict[str, Any]:
    """Return the settings with the keys of YAML, without what is not set; JSON can hold it."""
    values = {key: plain(value) for key, value in compute._values().items()}
    return {key: value for key, value in values.items() if value not in ({}, [])}


def from_dict(values: dict[str, Any], *, params_override: list[dict[str, Any]] | None = None) -> Compute:
    """Return the compute of such a mapping, checked. Raises SpecError with every problem."""
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.override import apply_overrides
    from drumline.spec.reading.tree import Mapping, wrap

    root = wrap(values)
    assert isinstance(root, Mapping)
    apply_overrides(root, params_override or [])
    return from_tree(root, Report(""))


def check_compute(compute: Compute) -> Compute:
    """Return a compute that was built or changed in Python, as its file would read. Raises SpecError."""
    values = to_dict(compute)
    if isinstance(compute, AmlCompute) and isinstance(compute.tier, str):
        # Azure's constructor takes LowPriority too; its YAML does not.
        values["tier"] = _snake(compute.tier)
    again = from_dict(values)
    again._warnings = list(compute._warnings)
    if isinstance(again, AmlCompute) and isinstance(compute, AmlCompute):
        again._given = compute._given
    return again


def from_tree(root: Mapping, report: Report) -> Compute:
    """Return the compute of a file. Raises SpecError with every problem of the file."""
    from drumline.spec.schema.compute import RECORDS

    kind = _type_of(root)
    values = RECORDS[kind].check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    compute = _CLASSES[kind](**{key: value for key, value in values.items() if key != "type"})
    if isinstance(compute, AmlCompute):
        compute._given = frozenset(values)
    return compute


def _type_of(root: Mapping) -> str:
    from drumline.spec.kinds.values import quote_node
    from drumline.spec.reading.source import problem_at
    from drumline.spec.reading.tree import Scalar

    node = root.get("type")
    if node is None:
        raise SpecError([problem_at(root, "missing key 'type' in a compute", path="type", hint=_KNOWN_TYPES)])
    kind = node.value.lower() if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    if kind in _CLASSES:
        return kind
    what, hint = _refusal(kind, quote_node(node))
    raise SpecError([problem_at(node, what, path="type", hint=hint)])


def _refusal(kind: str, shown: str) -> tuple[str, str]:
    """Return why that is no type of a compute here, and which are."""
    from drumline.spec.hints import did_you_mean

    is_azures = kind in _OTHER_TYPES
    what = (
        f"computes of type {kind!r} are not supported" if is_azures else f"{shown} is not a type of compute"
    )
    return what, did_you_mean(kind, TYPES) or _KNOWN_TYPES


def check_type(kind: str) -> None:
    """Check the type of a compute. Raises SpecError for an unknown one."""
    if kind not in _CLASSES:
        raise SpecError(*_refusal(kind, repr(kind)))


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
        tier=_snake(aml.tier) if aml.tier else None,
        max_instances=aml.max_instances,
        instance_types={aml.size: {}} if aml.size else None,
    )
    return slurm, [*aml._warnings, *describe_unused(aml)]


def _snake(text: str) -> str:
    """Return the name in Azure's constructor: ``LowPriority`` and ``low-priority`` are ``low_priority`` to it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).replace("-", "_").lower()
