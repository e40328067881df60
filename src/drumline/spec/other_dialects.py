"""
Job files in the words of Azure's other products: Foundry's training jobs (``azd ai training``), whose keys are put
where Azure ML has them, and the preview of Azure ML's own files, whose keys are refused with today's.

Source: Azure/azure-dev, cli/azd/extensions/azure.ai.training (0.0.3-preview, August 2026).
"""

from __future__ import annotations

import re

from drumline.spec.reading.source import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_SECONDS = (86400, 3600, 60, 1)
_IMAGE = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+)?/[\w./-]+(?:[:@][\w.:-]+)?")
"""The address of an image, with the name of its registry."""

_OTHER_TYPES = {
    "import": "an input with the data's address is fetched before the command",
    "automl": "a sweep searches parameters",
    "spark": "a command can call spark-submit",
    "data_transfer": "a command can copy, from an input to an output",
    "flow": "a command can call pf",
    "finetuning": "a command can run a script of yours that does it",
    "distillation": "a command can run a script of yours that does it",
}
"""Of Azure's, and not run here: what does the like."""

_OTHER_KEYS = {
    "gpu_count": "a job has the GPUs of its machines; on Slurm `resources.instance_type` names how many",
    "storage_connection_name": "remove it: code and inputs go to where the job runs",
}
"""What to write for keys of a training job that mean nothing here."""


def explain_type(kind: str, noun: str) -> tuple[str, str] | None:
    """
    Return what is wrong with a type of Azure's that is not run here, or of the preview's, and the way out.

    >>> explain_type("flow", "nodes")
    ("nodes of type 'flow' are not supported", 'a command can call pf')
    """
    if kind in _OTHER_TYPES:
        return f"{noun} of type {kind!r} are not supported", _OTHER_TYPES[kind]
    if kind.endswith("_job"):
        now = "command" if kind == "component_job" else kind.removesuffix("_job")
        return f"type {kind!r} is the syntax of the preview", f"write `type: {now}`"
    return None


def read_other_dialects(root: Mapping, report: Report) -> None:
    """Put the keys of a training job where those of a command job are, and report those that have none there."""
    _refuse_preview(root, report)
    if root.value_of("type") not in (None, "command"):
        return
    if seconds := _to_seconds(root.value_of("timeout")):
        _move(root, "timeout", "limits", Scalar(seconds, str(seconds)))
    if isinstance(priority := root.value_of("priority"), str):
        _move(root, "priority", "queue_settings", Scalar(priority.lower(), priority))
    if isinstance(root.value_of("instance_count"), int):
        _move(root, "instance_count", "resources", root.entries["instance_count"][1])
    _read_inputs(root, report)
    _name_keys(root)
    for name, hint in _OTHER_KEYS.items():
        if name in root:
            key, _ = root.entries.pop(name)
            report.add(f"{name} has no counterpart in a job of Azure ML", key, name, hint)


def _name_keys(root: Mapping) -> None:
    """Give outputs, identity and environment the keys of a command job."""
    for _, output in _list_mappings(root, "outputs"):
        for old, new in (("asset_name", "name"), ("asset_version", "version")):
            if old in output and new not in output:
                key, value = output.entries.pop(old)
                key.value = new
                output.put(key, value)
    identity = root.get("identity")
    if isinstance(identity, Scalar) and str(identity.value).startswith("/subscriptions/"):
        _wrap(root, "identity", {"type": Scalar("managed", "managed"), "msi_resource_id": identity})
    environment = root.get("environment")
    address = str(environment.value) if isinstance(environment, Scalar) else ""
    if environment is not None and _IMAGE.fullmatch(address) and not address.endswith((".yml", ".yaml")):
        _wrap(root, "environment", {"image": environment})


def _read_inputs(root: Mapping, report: Report) -> None:
    """Read values as such, which may be of the type ``literal``; report addresses of Foundry's own data."""
    for name, given in _list_mappings(root, "inputs"):
        if given.value_of("type") == "literal" and "value" in given:
            del given.entries["type"]
        path = given.get("path")
        if isinstance(path, Scalar) and str(path.value).startswith("azureai://"):
            what, place = (
                f"inputs.{name}.path: data of Foundry is not reached from here",
                f"inputs.{name}.path",
            )
            report.add(what, path, place, "register its files, and write `azureml:NAME:VERSION`")
            path.value = "."  # What it refers to is there, for who reads on.


def _list_mappings(root: Mapping, name: str) -> list[tuple[str, Mapping]]:
    """List the parts of a section that are mappings, by name."""
    section = root.get(name)
    parts = section if isinstance(section, Mapping) else ()
    return [(str(key.value), part) for _, key, part in parts if isinstance(part, Mapping)]


def _to_seconds(value: object) -> int:
    """Return the seconds of a duration such as PT24H; 0 for what is none."""
    parts = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), _SECONDS, strict=True))
        if parts
        else 0
    )


def _wrap(root: Mapping, name: str, parts: dict[str, Any]) -> None:
    """Put a mapping in the place of a value."""
    key, value = root.entries[name]
    written = Mapping(value.source, value.line, value.column, value.width)
    for part, node in parts.items():
        written.put(Scalar(part, part), node)
    root.put(key, written)


def _move(root: Mapping, name: str, place: str, value: Node) -> None:
    """Put the value of a key under that place, unless something is there."""
    key, _ = root.entries[name]
    section = root.get(place) or Mapping(key.source, key.line, key.column, key.width)
    if not isinstance(section, Mapping) or name in section:
        return
    del root.entries[name]
    if place not in root:
        root.put(Scalar(place, place), section)
    value.source, value.line, value.column, value.width = key.source, key.line, key.column, key.width
    section.put(key, value)


def _refuse_preview(root: Mapping, report: Report, above: str = "") -> None:
    for name, node in _list_mappings(root, "jobs"):
        _refuse_preview(node, report, f"jobs.{name}.")
    inputs = root.get("inputs")
    places = [("code", root, "local_path"), ("compute", root, "target")]
    places += [(name, inputs, "data") for name in inputs.entries] if isinstance(inputs, Mapping) else []
    for name, parent, old in places:
        section = parent.get(name)
        if not isinstance(section, Mapping) or old not in section:
            continue
        value = section.value_of(old)
        path = above + (name if parent is root else f"inputs.{name}")
        now = f"{name}: {value}" if parent is root else f"path: {value}"
        report.add(
            f"{path}.{old} is the syntax of the preview", section.entries[old][0], path, f"write `{now}`"
        )
        del parent.entries[name]
