"""The reference of the YAML files, from the tables that check them and the rows of ``docs/reference/azure-ml.md``."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drumline.spec.jobs import command, parallel, sweep
from drumline.spec.jobs import pipeline_tables as pipeline
from drumline.spec.kinds.records import ByType, Record
from drumline.spec.kinds.values import Kind, ListOf, MapOf, OneOf
from drumline.spec.parts import environment, search, services
from drumline.spec.parts import io as inputs_and_outputs
from drumline.spec.registered import assets, compute, datastores
from drumline.spec.registered import workspace as workspaces

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"

INPUTS_AND_OUTPUTS = Record(
    "inputs and outputs",
    {
        "inputs": MapOf(
            ByType(
                {
                    "data": inputs_and_outputs._DATA,
                    "table": inputs_and_outputs._TABLE,
                    "model": inputs_and_outputs._MODEL,
                    "value": inputs_and_outputs._VALUE,
                }
            )
        ),
        "outputs": MapOf(inputs_and_outputs.OUTPUTS.item),
    },
)
SERVICES = Record(
    "services",
    {
        "services": MapOf(
            Record(
                "service",
                {
                    name: kind
                    for entity in services._CLASSES.values()
                    for name, kind in services.list_service_fields(entity).items()
                },
            )
        )
    },
)
JOBS: dict[str, list[Kind]] = {
    "Command job": [command.COMMAND_JOB, SERVICES],
    "Inputs and outputs": [INPUTS_AND_OUTPUTS],
    "Sweep job": [
        sweep.SWEEP_JOB,
        Record("sweep", {"trial": sweep.TRIAL, "sampling_algorithm": search.SAMPLING_ALGORITHM.by_type}),
    ],
    "Pipeline job": [pipeline.PIPELINE_JOB],
    "Pipeline nodes": [
        pipeline._COMMAND_NODE,
        pipeline._COMPONENT_NODE,
        pipeline._SWEEP_NODE,
        pipeline._PIPELINE_NODE,
    ],
    "Parallel job": [pipeline.PARALLEL_JOB, pipeline._PARALLEL_NODE],
    "Command component": [command.NAMED_COMPONENT],
    "Parallel component": [parallel.NAMED_COMPONENT],
    "Pipeline component": [pipeline.NAMED_COMPONENT],
}
FILES: dict[str, list[Kind]] = {
    "Slurm compute": [compute.RECORDS["slurm"]],
    "Local compute": [compute.RECORDS["local"]],
    "`amlcompute`": [compute.RECORDS["amlcompute"]],
    "Environment": [environment.NAMED],
    "Data": [assets.DATA],
    "Model": [assets.MODEL],
    "Datastore": list(datastores.DATASTORES.values()),
    "Workspace": [workspaces.WORKSPACE],
}
"""By heading, the records whose keys its table has."""

_ELSEWHERE = {
    "inputs": "[inputs and outputs](#inputs-and-outputs)",
    "outputs": "[inputs and outputs](#inputs-and-outputs)",
    "jobs": "[pipeline nodes](#pipeline-nodes)",
}
"""Keys whose own keys have a table of their own."""


class Key(NamedTuple):
    path: str
    holds: str
    is_required: bool


def job_files() -> str:
    return tables(JOBS)


def other_files() -> str:
    return tables(FILES)


def tables(headings: dict[str, list[Kind]]) -> str:
    parts = []
    for heading, kinds in headings.items():
        parts += [f"## {heading}\n", "| key | holds | in Drumline |", "| --- | --- | --- |"]
        for key in keys_of(kinds, heading):
            required = ", required" if key.is_required else ""
            parts.append(f"| `{key.path}` | {key.holds}{required} | {meaning(heading, key.path)} |")
        parts.append("")
    return "\n".join(parts)


def keys_of(kinds: list[Kind], heading: str) -> list[Key]:
    """Return the keys of all the records, each once, with those of the mappings below them."""
    found: dict[str, Key] = {}
    for kind in kinds:
        for key in _walk(kind, "", heading, ()):
            found.setdefault(key.path, key)
    return list(found.values())


def _walk(kind: Kind, prefix: str, heading: str, above: tuple[int, ...]) -> Iterator[Key]:
    if id(kind) in above:
        return
    above = (*above, id(kind))
    if isinstance(kind, Record):
        for name, value in kind.fields.items():
            path = f"{prefix}{name}"
            is_elsewhere = name in _ELSEWHERE and not prefix and heading != "Inputs and outputs"
            words = f"see {_ELSEWHERE[name]}" if is_elsewhere else describe(value)
            yield Key(path, words, name in kind.required)
            if not is_elsewhere:
                yield from _walk(value, f"{path}.", heading, above)
    elif isinstance(kind, MapOf | ListOf):
        yield from _walk(kind.item, f"{prefix}*.", heading, above)
    else:
        for inner in _inside(kind):
            yield from _walk(inner, prefix, heading, above)


def _inside(kind: Kind) -> Iterator[Kind]:
    """The kinds among which this one chooses, or that it stands for."""
    for value in vars(kind).values():
        for inner in value.values() if isinstance(value, dict) else (value,):
            if isinstance(inner, Kind):
                yield inner


def describe(kind: Kind) -> str:
    """Return in words what a key holds."""
    if isinstance(kind, OneOf):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, ByType):
        return "a mapping with `type`: " + ", ".join(f"`{name}`" for name in kind.records)
    if isinstance(kind, MapOf):
        return f"a mapping of names to {describe(kind.item)}"
    if isinstance(kind, ListOf):
        return f"a list of {describe(kind.item)}"
    word = kind.word
    for inner in vars(kind).values():
        if word == Kind.word and isinstance(inner, Kind):
            return describe(inner)
    return word.replace("|", "\\|").replace("<", "&lt;")


def meaning(heading: str, path: str) -> str:
    """Return what the page of Azure ML's fields, or that of computes, says of a key; empty if it says nothing."""
    rows = verdicts()
    last_two = ".".join(path.split(".")[-2:])
    for section in (heading, "Inputs and outputs", "Command job"):
        for name in (path, last_two):
            if name in rows.get(section, {}):
                return rows[section][name]
    if heading in ("Slurm compute", "Local compute"):
        return compute_fields().get(path, "")
    return ""


@cache
def verdicts() -> dict[str, dict[str, str]]:
    """By heading and key, the verdict and the note of ``azure-ml.md``."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for line in (REFERENCE / "azure-ml.md").read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| `"):
            cells = _cells(line)
            if len(cells) == 3:
                note = re.sub(r"\]\(#", "](azure-ml.md#", cells[2])
                text = f"{cells[1]}: {note}" if note else cells[1]
                for name in re.findall(r"`([^`]+)`", cells[0]):
                    found.setdefault(heading, {})[name] = text
    return found


@cache
def compute_fields() -> dict[str, str]:
    """By field, its row in the page of computes."""
    found: dict[str, str] = {}
    for line in (REFERENCE.parent / "howto" / "computes.md").read_text().splitlines():
        cells = _cells(line) if line.startswith("| `") else []
        if len(cells) == 4:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = f"{cells[1]}; default: {cells[3]}"
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
