"""
The fields of a job's parts and of Azure's compute, each declared once: its name, and what it may hold.

Entities take their names and coercions from here, tables their kinds of values, and hints the places where keys belong.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Fields: TypeAlias = Mapping[str, str | tuple[str, ...]]
    """By name a word of these, or a tuple of the values to choose from, whose case does not matter."""

TEXT, TEXTS, TEXT_OR_TEXTS, VERSIONS = "text", "texts", "text or texts", "versions"
WHOLE, NUMBER, SECONDS, FLAG, SWITCH = "whole", "number", "seconds", "flag", "switch"
CHECKS = "checks"
MAPPING, LIST = "mapping", "list"

PRIMITIVES = ("string", "integer", "number", "boolean")
"""Types of inputs that a component declares; a job gives the value itself."""

RESOURCES: Fields = {
    "instance_count": WHOLE,
    "instance_type": TEXT,
    "properties": MAPPING,
    "locations": TEXTS,
    "shm_size": TEXT,
    "max_instance_count": WHOLE,
    "docker_args": TEXT_OR_TEXTS,
}
PYTHON_RESOURCES: Fields = {**RESOURCES, "instance_type": TEXT_OR_TEXTS}
LIMITS: Fields = {"timeout": WHOLE}
SWEEP_LIMITS: Fields = dict.fromkeys(
    ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout"), WHOLE
)
BETWEEN: Fields = {"min_value": NUMBER, "max_value": NUMBER}
BETWEEN_STEPS: Fields = {**BETWEEN, "q": NUMBER}
BELL: Fields = {"mu": NUMBER, "sigma": NUMBER}
BELL_STEPS: Fields = {**BELL, "q": NUMBER}
RANDINT: Fields = {"upper": WHOLE}
SEARCH_SPACES: Mapping[str, Fields] = {
    "uniform": BETWEEN,
    "loguniform": BETWEEN,
    "quniform": BETWEEN_STEPS,
    "qloguniform": BETWEEN_STEPS,
    "normal": BELL,
    "lognormal": BELL,
    "qnormal": BELL_STEPS,
    "qlognormal": BELL_STEPS,
    "randint": RANDINT,
}
"""By the type of a parameter expression, the numbers that it needs. The other type is ``choice``."""

RETRY_SETTINGS: Fields = {"max_retries": WHOLE, "timeout": WHOLE}
QUEUE_SETTINGS: Fields = {
    "job_tier": ("null", "spot", "basic", "standard", "premium"),
    "priority": ("low", "medium", "high"),
}
PROCESSES: Fields = {"process_count_per_instance": WHOLE}
TASKS: Fields = {"parameter_server_count": WHOLE, "worker_count": WHOLE}
RAY: Fields = {
    "port": WHOLE,
    "address": TEXT,
    "include_dashboard": FLAG,
    "dashboard_port": WHOLE,
    "head_node_additional_args": TEXT,
    "worker_node_additional_args": TEXT,
}
MANAGED_IDENTITY: Fields = {"client_id": TEXT, "object_id": TEXT, "msi_resource_id": TEXT}
SERVICE: Fields = {"type": TEXT, "nodes": TEXT, "port": WHOLE, "properties": MAPPING}
SSH: Fields = {"ssh_public_keys": TEXT}
TENSOR_BOARD: Fields = {"log_dir": TEXT}
DRUMLINE: Fields = {
    "grace": SECONDS,
    "hang_after": SECONDS,
    "hang_action": ("report", "end", "restart"),
    "max_restarts": WHOLE,
    "restart_on": VERSIONS,
    "once": FLAG,
    "mpi": ("launcher", "environment"),
    "mount": ("auto", "always", "never"),
    "warm": SWITCH,
    "preflight": CHECKS,
    "steps": SWITCH,
    "chief": FLAG,
    "evaluator": FLAG,
    "environment": ("current",),
    "secrets": TEXTS,
    "notify": LIST,
}


def list_whole(fields: Fields) -> tuple[str, ...]:
    """Return the names of whole numbers."""
    return tuple(name for name, word in fields.items() if word == WHOLE)


def list_choices(fields: Fields) -> tuple[str, ...]:
    """Return the names of fields whose values are chosen from a set."""
    return tuple(name for name, word in fields.items() if isinstance(word, tuple))
