"""docs/reference/azure-ml.md as data, and the tables of ``drumline.spec`` that it speaks of."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import drumline.spec
from drumline.control.measure import rehearsal
from drumline.spec.jobs import command, component, parallel, sweep
from drumline.spec.jobs import pipeline_tables as pipeline
from drumline.spec.jobs.job import DRUMLINE
from drumline.spec.kinds.records import ByType, Record
from drumline.spec.kinds.values import Flag, Integer, Kind, ListOf, MapOf, Number, OneOf
from drumline.spec.parts import environment, io, resources, search, services
from drumline.spec.registered import assets, compute, datastores, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "azure-ml.md"

HONOURED = "honoured"
MAPPED = "mapped"
WARNED = "accepted with a warning"
REFUSED = "refused"
OURS = "ours"
VERDICTS = (HONOURED, MAPPED, WARNED, REFUSED, OURS)


class Row(NamedTuple):
    names: tuple[str, ...]
    """What stands in backticks in the first cell."""

    cells: dict[str, str]
    """By the heads of the columns."""

    @property
    def verdict(self) -> str:
        return self.cells["verdict"]


@cache
def sections() -> dict[str, list[Row]]:
    """The rows of the tables with a verdict, by the heading that they stand under."""
    found: dict[str, list[Row]] = {}
    heading, heads = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading, heads = line.lstrip("# "), []
        elif not line.startswith("|"):
            heads = []
        elif not heads:
            heads = _cells(line)
        elif "verdict" in heads and not line.startswith("| ---"):
            cells = _cells(line)
            assert len(cells) == len(heads), line
            names = tuple(re.findall(r"`([^`]+)`", cells[0]))
            found.setdefault(heading, []).append(Row(names, dict(zip(heads, cells, strict=True))))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def verdicts(heading: str) -> dict[str, str]:
    """By each name of the section's rows."""
    found: dict[str, str] = {}
    for row in sections()[heading]:
        for name in row.names:
            assert name not in found, f"{name} stands twice under {heading}"
            found[name] = row.verdict
    return found


def nouns() -> list[str]:
    """Those of the command line that have a section of their own."""
    return [heading.strip("`").split()[-1] for heading in sections() if heading.startswith("`az ml ")]


def flags_of(noun: str) -> dict[tuple[str, str], str]:
    """By flag and verb, the verdict."""
    return {
        (flag, verb): row.verdict
        for row in sections()[f"`az ml {noun}`"]
        if "flag" in row.cells
        for flag in row.names
        for verb in re.findall(r"`([^`]+)`", row.cells["verbs"])
    }


# the tables

_SERVICES = [
    Record("service", services.list_service_fields(kind), ignored=services._IGNORED)
    for kind in (services.JobService, *services._CLASSES.values())
]
_DATASTORES = list(datastores.DATASTORES.values())
_CREDENTIALS = [
    *{
        id(one): one for kind in (datastores._STORAGE, datastores._LAKE) for one in kind.records.values()
    }.values()
]
_PARTS: list[tuple[str, list[Kind]]] = [
    ("search_space.*.", [search.SPACE]),
    ("sampling_algorithm.", [search.SAMPLING_ALGORITHM.by_type]),
    ("objective.", [search.OBJECTIVE]),
    ("early_termination.", [search.EARLY_TERMINATION]),
    ("limits.", [search.SWEEP_LIMITS]),
]
_PARALLEL_COMPONENTS = [parallel.COMPONENT, parallel.NAMED_COMPONENT]
_PIPELINES = [kind for kind in vars(pipeline).values() if isinstance(kind, Record)]
_PIPELINE_COMPONENTS: list[Kind] = [kind for kind in _PIPELINES if kind.noun == "a pipeline component"]
_NODES: list[Kind] = [
    kind
    for name, kind in vars(pipeline).items()
    if name.endswith("_NODE") and kind in _PIPELINES and kind is not pipeline._PARALLEL_NODE
]
_AML = compute.RECORDS["amlcompute"].fields
_ENVIRONMENT = environment.INLINE.fields

TABLES: dict[str, list[tuple[str, list[Kind]]]] = {
    "Command job": [
        ("", [command.COMMAND_JOB, command.PYTHON_COMMAND_JOB]),
        ("distribution.", [resources.DISTRIBUTION, resources.LOOSE_DISTRIBUTION]),
        ("resources.", [resources.RESOURCES, resources.PYTHON_RESOURCES, resources.LOOSE_RESOURCES]),
        ("limits.", [resources.LIMITS]),
        ("queue_settings.", [resources.QUEUE_SETTINGS]),
        ("services.*.", [*_SERVICES]),
        ("identity.", [resources.IDENTITY]),
        ("drumline.", [command.COMMAND_JOB.fields["drumline"]]),
        ("drumline.lint.", [DRUMLINE.fields["lint"]]),
    ],
    "Inputs and outputs": [
        ("inputs.*.", [io._DATA, io._MODEL, io._TABLE, io._UNTYPED, io._VALUE]),
        ("outputs.*.", [io.OUTPUTS.item]),
    ],
    "Sweep job": [("", [sweep.SWEEP_JOB]), ("trial.", [sweep.TRIAL]), *_PARTS],
    "Pipeline job": [
        ("", [pipeline.PIPELINE_JOB]),
        ("settings.", [pipeline.PIPELINE_JOB.fields["settings"]]),
    ],
    "Pipeline nodes": [("", _NODES)],
    "Parallel job": [
        ("", [pipeline.PARALLEL_JOB, pipeline._PARALLEL_NODE]),
        ("task.", [parallel.Parallel._declarations["task"].kind]),
        ("retry_settings.", [parallel.Parallel._declarations["retry_settings"].kind]),
    ],
    "Parallel component": [
        ("", [*_PARALLEL_COMPONENTS]),
    ],
    "Command component": [
        ("", [command.COMPONENT, command.NAMED_COMPONENT]),
        ("inputs.*.", [component.DECLARED_INPUT]),
        ("outputs.*.", [component.DECLARED_OUTPUT]),
    ],
    "Pipeline component": [("", _PIPELINE_COMPONENTS)],
    "`amlcompute`": [
        ("", [compute.RECORDS["amlcompute"]]),
        ("ssh_settings.", [_AML["ssh_settings"]]),
        ("network_settings.", [_AML["network_settings"]]),
        ("identity.", [_AML["identity"]]),
    ],
    "Environment": [
        ("", [environment.INLINE, environment.NAMED]),
        ("build.", [_ENVIRONMENT["build"]]),
        ("inference_config.", [_ENVIRONMENT["inference_config"]]),
        ("inference_config.*.", [environment._ROUTE]),
    ],
    "Data": [("", [assets.DATA])],
    "Model": [("", [assets.MODEL])],
    "Datastore": [
        ("", [*_DATASTORES]),
        ("credentials.", [*_CREDENTIALS]),
        ("artifact.", [datastores.DATASTORES["one_lake"].fields["artifact"]]),
    ],
    "Workspace": [("", [workspace.WORKSPACE])],
}
"""By heading: which records its rows are about, and what stands before their keys there."""

ELSEWHERE = {
    "computes": [compute.RECORDS["slurm"], compute.RECORDS["local"]],
    "kubernetes": [compute.RECORDS["kubernetes"]],
    "rehearsal": [rehearsal.DRILLS, rehearsal.DRILL],
}
"""Not Azure's; these pages of docs/howto have their fields."""


def modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(drumline.spec.__path__, "drumline.spec."):
        yield importlib.import_module(info.name)


def all_records() -> dict[int, tuple[str, Record]]:
    """Every record that a table of ``spec`` leads to, with the first that does, by its ``id``."""
    found: dict[int, tuple[str, Record]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, (Kind, dict)):
                for record in records_below(value):
                    found.setdefault(id(record), (f"{module.__name__}.{name}", record))
    return found


def records_below(value: Any, seen: set[int] | None = None) -> Iterator[Record]:
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Record):
        yield value
    below = value.values() if isinstance(value, dict) else vars(value).values()
    for inner in below:
        if isinstance(inner, (Kind, dict)):
            yield from records_below(inner, seen)


def records_of(kind: Kind) -> list[Record]:
    """The record itself, or those among which ``type`` chooses."""
    if isinstance(kind, ByType):
        return list(kind.records.values())
    assert isinstance(kind, Record)
    return [kind]


def keys_of(heading: str) -> set[str]:
    """As the rows under the heading have them."""
    return {
        prefix + key
        for prefix, kinds in TABLES[heading]
        for kind in kinds
        for record in records_of(kind)
        for key in (*record.fields, *record.ignored)
    }


def holder_of(heading: str, key: str) -> tuple[str, str, Record]:
    """The prefix, the last part, and a record that has it as a field."""
    for prefix, kinds in TABLES[heading]:
        last = key.removeprefix(prefix)
        for kind in kinds if key.startswith(prefix) else ():
            for record in records_of(kind):
                if last in record.fields:
                    return prefix, last, record
    raise KeyError(key)


def with_field(heading: str, key: str, value: Any) -> dict[str, Any]:
    """A mapping that has the field, with what is required beside it in the same part."""
    prefix, last, record = holder_of(heading, key)
    inner = {}
    if prefix:
        inner = {name: sample(record.fields[name]) for name in record.required}
    if prefix and "type" in record.fields:
        inner["type"] = _type_of(heading, record)
    inner[last] = sample(record.fields[last]) if value is None else value
    for step in reversed(prefix.rstrip(".").split(".") if prefix else ()):
        inner = {"one" if step == "*" else step: inner}
    return inner


def _type_of(heading: str, record: Record) -> Any:
    for kinds in dict(TABLES[heading]).values():
        for kind in kinds:
            if isinstance(kind, ByType):
                for name, known in kind.records.items():
                    if known is record:
                        return name
    extra = next(
        (name for name, kind in services._CLASSES.items() if kind._fields == tuple(record.fields)), "ssh"
    )
    return extra if record in _SERVICES else sample(record.fields["type"])


def sample(kind: Kind) -> Any:
    """A value that the kind takes, and that is not empty."""
    if isinstance(kind, Record):
        wanted = kind.required or list(kind.fields)[:1]
        return {key: sample(kind.fields[key]) for key in wanted}
    if isinstance(kind, ByType):
        name, record = next(iter(kind.records.items()))
        return {**sample(record), "type": name}
    if isinstance(getattr(kind, "kind", None), Kind):
        return sample(kind.kind)  # type: ignore[attr-defined]
    if isinstance(kind, OneOf):
        return kind.values[-1]
    if isinstance(kind, Flag):
        return True
    if isinstance(kind, (Integer, Number)):
        return 3
    if isinstance(kind, MapOf):
        return {"key": sample(kind.item)}
    if isinstance(kind, ListOf):
        return [sample(kind.item)]
    return "text"
