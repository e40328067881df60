"""The tables of a command job."""

from __future__ import annotations

from drumline.spec.schema.environment import Environment
from drumline.spec.schema.io import INPUTS, OUTPUTS, SERVICES
from drumline.spec.schema.kinds import (
    Anything,
    Choice,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Seconds,
    Switch,
    Text,
    TextOrList,
    VersionText,
)
from drumline.spec.schema.locations import Code
from drumline.spec.schema.records import ByType, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT = Text()
_INTEGER = Integer()

RESOURCES = Record(
    "resources",
    {
        "instance_count": _INTEGER,
        "instance_type": _TEXT,
        "properties": MapOf(Anything()),
        "locations": ListOf(_TEXT),
        "shm_size": _TEXT,
        "max_instance_count": _INTEGER,
        "docker_args": TextOrList(),
    },
)
PYTHON_RESOURCES = Record("resources", {**RESOURCES.fields, "instance_type": TextOrList()})


def _distribution(unknown: str) -> ByType:
    def record(name: str, fields: dict[str, Kind]) -> Record:
        return Record("distribution", {"type": Choice(name), **fields}, unknown=unknown)

    per_instance: dict[str, Kind] = {"process_count_per_instance": _INTEGER}
    tasks: dict[str, Kind] = {"parameter_server_count": _INTEGER, "worker_count": _INTEGER}
    cluster: dict[str, Kind] = {
        "port": _INTEGER,
        "address": _TEXT,
        "include_dashboard": Flag(),
        "dashboard_port": _INTEGER,
        "head_node_additional_args": _TEXT,
        "worker_node_additional_args": _TEXT,
    }
    records = {
        "pytorch": record("pytorch", per_instance),
        "mpi": record("mpi", per_instance),
        "tensorflow": record("tensorflow", tasks),
        "ray": record("ray", cluster),
    }
    return ByType(records, hint=_distribution_hint)


def _distribution_hint(name: str) -> str:
    others = {
        "torch": "pytorch",
        "torch.distributed": "pytorch",
        "ddp": "pytorch",
        "horovod": "mpi",
        "tf": "tensorflow",
    }
    other = others.get(name.lower())
    if other:
        return f"use 'type: {other}'"
    return "leave `distribution` out for one process" if name.lower() == "none" else ""


DISTRIBUTION = _distribution("error")
LOOSE_DISTRIBUTION = _distribution("drop")
"""Of components in files: azure-ai-ml drops keys that it does not know."""


def snake(name: str) -> str:
    """``UserIdentity`` and ``user_identity`` are the same type of identity."""
    import re

    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


def _identity(fold: Callable[[str], str]) -> ByType:
    managed = Record(
        "identity",
        {
            "type": Choice("managed", "managed_identity", fold=fold),
            "client_id": _TEXT,
            "object_id": _TEXT,
            "msi_resource_id": _TEXT,
        },
    )
    return ByType(
        {
            "managed": managed,
            "managed_identity": managed,
            "aml_token": Record("identity", {"type": Choice("aml_token", fold=fold)}),
            "user_identity": Record("identity", {"type": Choice("user_identity", fold=fold)}),
        },
        fold=fold,
    )


IDENTITY = _identity(snake)
LIMITS = Record("limits", {"timeout": _INTEGER})
QUEUE_SETTINGS = Record(
    "queue_settings",
    {
        "job_tier": Choice("null", "spot", "basic", "standard", "premium"),
        "priority": Choice("low", "medium", "high"),
    },
)
DRUMLINE = Record(
    "drumline",
    {
        "grace": Seconds(),
        "hang_after": Seconds(),
        "hang_action": Choice("report", "end", "restart"),
        "max_restarts": _INTEGER,
        "restart_on": ListOf(VersionText()),
        "once": Flag(),
        "mpi": Choice("launcher", "environment"),
        "mount": Choice("auto", "always", "never"),
        "warm": Switch("auto"),
        "chief": Flag(),
        "evaluator": Flag(),
        "environment": Choice("current"),
    },
)

READ_ONLY = ("$schema", "id", "status", "creation_context", "log_files")

BASE: dict[str, Kind] = {
    "name": _TEXT,
    "display_name": _TEXT,
    "experiment_name": _TEXT,
    "description": _TEXT,
    "tags": MapOf(Text(nullable=True)),
    "properties": MapOf(Text(nullable=True)),
    "services": SERVICES,
    "compute": _TEXT,
    "identity": IDENTITY,
}
"""The fields of every type of job."""

PROGRAM: dict[str, Kind] = {
    "command": _TEXT,
    "code": Code(),
    "environment": Environment(),
    "environment_variables": MapOf(Anything()),
    "resources": RESOURCES,
    "distribution": DISTRIBUTION,
    "queue_settings": QUEUE_SETTINGS,
}
"""What runs, of a command job and of a sweep's trial."""

_FIELDS: dict[str, Kind] = {
    "type": Choice("command", fold=str),
    **BASE,
    **PROGRAM,
    "limits": LIMITS,
    "inputs": INPUTS,
    "outputs": OUTPUTS,
    "parent_job_name": _TEXT,
    "drumline": DRUMLINE,
}

COMMAND_JOB = Record("a command job", _FIELDS, required=("command",), ignored=(*READ_ONLY, "parameters"))
PYTHON_COMMAND_JOB = Record(
    "a command job",
    {**_FIELDS, "resources": PYTHON_RESOURCES},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)
