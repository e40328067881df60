"""The tables of a command job."""

from __future__ import annotations

from drumline.spec import fields
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.records import ByType, Record
from drumline.spec.kinds.values import (
    Anything,
    Kind,
    MapOf,
    OneOf,
    Text,
    to_kinds,
)
from drumline.spec.schema.environment import EnvironmentKind
from drumline.spec.schema.io import INPUTS, OUTPUTS, SERVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT = Text()

RESOURCES = Record("resources", to_kinds(fields.RESOURCES))
PYTHON_RESOURCES = Record("resources", to_kinds(fields.PYTHON_RESOURCES))


def _distribution(unknown: str) -> ByType:
    def record(name: str, declared: fields.Fields) -> Record:
        return Record("distribution", {"type": OneOf(name), **to_kinds(declared)}, unknown=unknown)

    records = {
        "pytorch": record("pytorch", fields.PROCESSES),
        "mpi": record("mpi", fields.PROCESSES),
        "tensorflow": record("tensorflow", fields.TASKS),
        "ray": record("ray", fields.RAY),
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
    """Return a name in lower case with underscores: ``UserIdentity`` and ``user_identity`` are the same identity."""
    import re

    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


def _identity(fold: Callable[[str], str]) -> ByType:
    managed = Record(
        "identity",
        {
            "type": OneOf("managed", "managed_identity", fold=fold),
            **to_kinds(fields.MANAGED_IDENTITY),
        },
    )
    return ByType(
        {
            "managed": managed,
            "managed_identity": managed,
            "aml_token": Record("identity", {"type": OneOf("aml_token", fold=fold)}),
            "user_identity": Record("identity", {"type": OneOf("user_identity", fold=fold)}),
        },
        fold=fold,
    )


IDENTITY = _identity(snake)
LIMITS = Record("limits", to_kinds(fields.LIMITS))
QUEUE_SETTINGS = Record("queue_settings", to_kinds(fields.QUEUE_SETTINGS))
DRUMLINE = Record("drumline", to_kinds(fields.DRUMLINE))

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
    "environment": EnvironmentKind(),
    "environment_variables": MapOf(Anything()),
    "resources": RESOURCES,
    "distribution": DISTRIBUTION,
    "queue_settings": QUEUE_SETTINGS,
}
"""What runs, of a command job and of a sweep's trial."""

_FIELDS: dict[str, Kind] = {
    "type": OneOf("command", fold=str),
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
