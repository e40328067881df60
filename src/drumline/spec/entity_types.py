"""
The files that Drumline reads: of each kind the class, the table that checks it, and its JSON Schema for editors.

All are imported on first use, for a command job is not to pay for sweeps and pipelines.
"""

from __future__ import annotations

from importlib import import_module

from drumline.contract.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.records import Record
    from drumline.spec.kinds.schemas import JsonSchema, Schemas

_JOBS = {
    "command": ("drumline.spec.jobs.command:Command", "drumline.spec.jobs.command:COMMAND_JOB"),
    "parallel": ("drumline.spec.jobs.parallel:Parallel", "drumline.spec.jobs.pipeline_tables:PARALLEL_JOB"),
    "sweep": ("drumline.spec.jobs.sweep:SweepJob", "drumline.spec.jobs.sweep:SWEEP_JOB"),
    "pipeline": (
        "drumline.spec.jobs.pipeline:PipelineJob",
        "drumline.spec.jobs.pipeline_tables:PIPELINE_JOB",
    ),
}
_COMPONENTS = {
    "command": ("drumline.spec.jobs.command:CommandComponent", "drumline.spec.jobs.command", "COMPONENT"),
    "parallel": (
        "drumline.spec.jobs.parallel:ParallelComponent",
        "drumline.spec.jobs.parallel",
        "COMPONENT",
    ),
    "pipeline": (
        "drumline.spec.jobs.pipeline:PipelineComponent",
        "drumline.spec.jobs.pipeline_tables",
        "COMPONENT",
    ),
}
JOB_TYPES = tuple(_JOBS)
_OTHERS = {
    "environment": "drumline.spec.parts.environment:NAMED",
    "data": "drumline.spec.registered.assets:DATA",
    "model": "drumline.spec.registered.assets:MODEL",
    "datastore": "drumline.spec.registered.datastores:DATASTORES",
    "compute": "drumline.spec.registered.compute:RECORDS",
    "workspace": "drumline.spec.registered.workspace:WORKSPACE",
}
KINDS = ("job", *JOB_TYPES, "component", *_OTHERS)
"""``job``: of any type; then each type of job, and each other kind of file."""

DRAFT = "http://json-schema.org/draft-07/schema#"


def job_class(kind: str) -> type[Any]:
    """Return the class of a type of ``JOB_TYPES``."""
    return _import(_JOBS[kind][0])  # type: ignore[no-any-return]


def job_table(kind: str) -> Record:
    """Return the table that checks a file of such a job."""
    return _import(_JOBS[kind][1])  # type: ignore[no-any-return]


def component_class(kind: str) -> type[Any]:
    """Return the class of ``command``, ``parallel`` or ``pipeline`` components."""
    return _import(_COMPONENTS[kind][0])  # type: ignore[no-any-return]


def component_table(kind: str, *, named: bool) -> Record:
    """Return the table that checks a file of such a component; ``named``: one that is registered has a name."""
    _, module, name = _COMPONENTS[kind]
    return _import(f"{module}:NAMED_{name}" if named else f"{module}:{name}")  # type: ignore[no-any-return]


def make_schema(kind: str) -> JsonSchema:
    """Return the JSON Schema of a kind of file. Raises UsageError for an unknown kind."""
    from drumline.spec.kinds.schemas import Schemas

    if kind not in KINDS:
        raise UsageError(f"there is no schema of {kind!r}", f"one of {', '.join(KINDS)}")
    schemas = Schemas()
    root = _make_root(kind, schemas)
    if "$ref" in root:
        root = schemas.definitions[root["$ref"].rpartition("/")[2]]
    return {"$schema": DRAFT, "title": f"Drumline: {kind}", **root, "definitions": schemas.definitions}


def _make_root(kind: str, schemas: Schemas) -> JsonSchema:
    from drumline.spec.kinds.records import ByType

    if kind == "job":
        return schemas.make_by_type({name: job_table(name) for name in JOB_TYPES})
    if kind == "component":
        return schemas.make_by_type({name: component_table(name, named=True) for name in _COMPONENTS})
    table = job_table(kind) if kind in _JOBS else _import(_OTHERS[kind])
    return schemas.make(ByType(table) if isinstance(table, dict) else table)


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
