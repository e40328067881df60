"""The next thing to try after an unknown key of a file, or an unknown keyword of a class."""

from __future__ import annotations

import re

from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


_places: dict[str, list[str]] = {"environment": ["image", "build", "conda_file"]}
"""Where a key belongs."""

_OTHER_NAMES = {
    "process_count_per_node": "process_count_per_instance",
    "process_per_node": "process_count_per_instance",
    "process_count": "process_count_per_instance",
    "processes_per_node": "process_count_per_instance",
    "nproc_per_node": "process_count_per_instance",
    "node_count": "instance_count",
    "nodes": "instance_count",
    "num_nodes": "instance_count",
    "vm_size": "instance_type",
    "env": "environment_variables",
    "env_vars": "environment_variables",
    "image_name": "image",
    "docker_image": "image",
    "conda": "conda_file",
    "source_directory": "code",
    "script": "command",
    "arguments": "command",
    "compute_target": "compute",
    "distributed_job_config": "distribution",
    "job_service_type": "type",
    "max_run_duration_seconds": "timeout",
    "distribution_type": "type",
}
"""Names of older Azure ML versions and of other launchers."""

_ALSO_TOP_LEVEL = ("type", "properties", "environment")
_TOP_LEVEL = [
    "command",
    "code",
    "environment",
    "environment_variables",
    "compute",
    "inputs",
    "outputs",
    "services",
    "identity",
    "distribution",
    "resources",
    "limits",
    "queue_settings",
    "experiment_name",
    "display_name",
    "tags",
]


def add_place(place: str, keys: Iterable[str]) -> None:
    """Note where keys belong, but for those that a job has at its top level too."""
    _places.setdefault(place, []).extend(key for key in keys if key not in _ALSO_TOP_LEVEL)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    import difflib

    match = difflib.get_close_matches(name, [*known], 1, 0.7)
    return f"did you mean {match[0]!r}?" if match else ""


def snake(name: str) -> str:
    """Return ``processCountPerInstance`` and ``Process-Count`` as YAML keys are written."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def key_hint(name: str, path: str, known: tuple[str, ...]) -> str:
    """Return a key of another spelling or another place, or nothing."""
    ours = snake(name)
    if ours in known:
        return f"did you mean {ours!r}?"
    renamed = _OTHER_NAMES.get(ours)
    if renamed in known:
        return f"did you mean {renamed!r}?"
    here = path.rpartition(".")[2]
    if ours == "optional" and ".inputs." in f".{path}.":
        return "inputs of components have it: leave the input out, or make the job a component"
    close = did_you_mean(ours, known)
    return _elsewhere(ours, here) or close or _elsewhere(renamed, here) or _listing(known)


def _elsewhere(name: str | None, here: str) -> str:
    for place, keys in _places.items():
        if name in keys and place != here:
            return f"{name!r} belongs under `{place}`"
    if name in _TOP_LEVEL and here:
        return f"{name!r} belongs at the top level of the job"
    return ""


def _listing(known: tuple[str, ...]) -> str:
    return "known here: " + ", ".join(known) if known and len(known) <= 8 else ""


_PARTS = ("distribution", "resources", "limits", "queue_settings")
_READ_ONLY = (
    "id", "status", "studio_url", "log_files", "creation_context",
    "steps", "trials", "best_trial",
)  # fmt: skip
"""Attributes that the store gives a job."""


def refuse_unknown(given: Iterable[str], known: tuple[str, ...], where: str = "") -> None:
    """
    Raise SpecError for the first keyword that is not known. Private ones, with an underscore, pass.

    ``where``: the field that takes them, such as ``distribution``; empty for the job itself.
    azure-ai-ml drops them in silence, and the job then is another one.
    """
    for name in given:
        if name not in known and not name.startswith("_"):
            place = f" in {where}" if where else ""
            raise SpecError(f"unknown keyword {name!r}{place}", key_hint(name, where, known))


def describe_ignored(name: str, known: tuple[str, ...]) -> str:
    """Return the warning for a keyword that azure-ai-ml drops in silence, which turns a typo into another job."""

    hint = did_you_mean(name, known)
    return f"{name}: not known, and ignored" + (f"; {hint}" if hint else "")


def unknown_attributes(job: Any) -> Iterator[str]:
    """
    Yield a warning for each attribute that a script set on a job or its parts and that they do not have.

    No error: scripts may keep attributes of their own on a job. Private ones, with an underscore, pass.
    """
    yield from _unknown(job, "")
    for part in _PARTS:
        yield from _unknown(getattr(job, part, None), part)


def _unknown(entity: Any, where: str) -> Iterator[str]:
    if not hasattr(entity, "_fields"):
        return
    for name in vars(entity):
        if (
            name.startswith("_")
            or name in entity._fields
            or name in _READ_ONLY
            or hasattr(type(entity), name)
        ):
            continue

        hint = key_hint(name, where, tuple(entity._fields))
        place = f"{where}.{name}" if where else name
        yield f"{place}: not an attribute of the {where or 'job'}, not used" + (f"; {hint}" if hint else "")
