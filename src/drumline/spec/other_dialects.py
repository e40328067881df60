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
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_SECONDS = (86400, 3600, 60, 1)
_IMAGE = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+)?/[\w./-]+(?:[:@][\w.:-]+)?")
"""The address of an image, with the name of its registry."""

_OTHER_KEYS = {
    "gpu_count": "a job has the GPUs of its machines; on Slurm `resources.instance_type` names how many",
    "storage_connection_name": "remove it: code and inputs go to where the job runs",
}
"""What to write for keys of a training job that mean nothing here."""


def read_other_dialects(root: Mapping, report: Report) -> None:
    """Put the keys of a training job where those of a command job are, and report those that have none there."""
    _refuse_preview(root, report)
    if root.value_of("type") not in (None, "command"):
        return
    if seconds := _to_seconds(root.value_of("timeout")):
        _move(root, "timeout", "limits", Scalar(seconds, str(seconds)))
    if isinstance(root.value_of("instance_count"), int):
        _move(root, "instance_count", "resources", root.entries["instance_count"][1])
    outputs = root.get("outputs")
    for _, _, output in outputs if isinstance(outputs, Mapping) else ():
        for old, new in (("asset_name", "name"), ("asset_version", "version")):
            if isinstance(output, Mapping) and old in output and new not in output:
                key, value = output.entries.pop(old)
                key.value = new
                output.put(key, value)
    environment = root.get("environment")
    address = str(environment.value) if isinstance(environment, Scalar) else ""
    if environment is not None and _IMAGE.fullmatch(address) and not address.endswith((".yml", ".yaml")):
        written = Mapping(environment.source, environment.line, environment.column, environment.width)
        written.put(Scalar("image", "image"), environment)
        root.put(root.entries["environment"][0], written)
    for name, hint in _OTHER_KEYS.items():
        if name in root:
            key, _ = root.entries.pop(name)
            report.add(f"{name} has no counterpart in a job of Azure ML", key, name, hint)


def _to_seconds(value: object) -> int:
    """Return the seconds of a duration such as PT24H; 0 for what is none."""
    parts = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), _SECONDS, strict=True))
        if parts
        else 0
    )


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


def _refuse_preview(root: Mapping, report: Report) -> None:
    inputs = root.get("inputs")
    places = [("code", root, "local_path"), ("compute", root, "target")]
    places += [(name, inputs, "data") for name in inputs.entries] if isinstance(inputs, Mapping) else []
    for name, parent, old in places:
        section = parent.get(name)
        if not isinstance(section, Mapping) or old not in section:
            continue
        value = section.value_of(old)
        path = name if parent is root else f"inputs.{name}"
        now = f"{name}: {value}" if parent is root else f"path: {value}"
        report.add(
            f"{path}.{old} is the syntax of the preview", section.entries[old][0], path, f"write `{now}`"
        )
        del parent.entries[name]
