"""JSON Schemas of the files that Drumline reads, for editors: made from the tables that check those files."""

from __future__ import annotations

from drumline.contract.errors import UsageError
from drumline.spec.entity_types import JOB_TYPES, component_table, job_table
from drumline.spec.kinds.records import ByType
from drumline.spec.kinds.schemas import Schemas, lacks, when_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drumline.spec.kinds.values import Kind

DRAFT = "http://json-schema.org/draft-07/schema#"


def _make_job(schemas: Schemas) -> dict[str, Any]:
    return _make_by_type({name: job_table(name) for name in JOB_TYPES}, schemas)


def _make_component(schemas: Schemas) -> dict[str, Any]:
    kinds = ("command", "parallel", "pipeline")
    return _make_by_type({name: component_table(name, named=True) for name in kinds}, schemas)


def _make_by_type(tables: dict[str, Any], schemas: Schemas) -> dict[str, Any]:
    """Make the schema of a mapping of one of several types; the first is that of a mapping without ``type``."""
    first = next(iter(tables))
    rules = [when_type([name], schemas.make(table)) for name, table in tables.items()]
    rules.append({"if": lacks("type"), "then": schemas.make(tables[first])})
    return {"type": "object", "properties": {"type": {"enum": list(tables)}}, "allOf": rules}


def _make_environment(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.parts import environment

    return schemas.make(environment.NAMED)


def _make_compute(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.registered import compute

    return schemas.make(ByType(dict(compute.RECORDS)))


def _make_datastore(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.registered.datastores import DATASTORES

    return schemas.make(ByType(DATASTORES))


def _make_data(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.registered import assets

    return schemas.make(assets.DATA)


def _make_model(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.registered import assets

    return schemas.make(assets.MODEL)


def _make_workspace(schemas: Schemas) -> dict[str, Any]:
    from drumline.spec.registered import workspace

    return schemas.make(workspace.WORKSPACE)


def _make_one_job(kind: str) -> Callable[[Schemas], dict[str, Any]]:
    return lambda schemas: schemas.make(_job_table(kind))


def _job_table(kind: str) -> Kind:
    return job_table(kind)


_MAKERS: dict[str, Callable[[Schemas], dict[str, Any]]] = {
    "job": _make_job,
    **{kind: _make_one_job(kind) for kind in JOB_TYPES},
    "component": _make_component,
    "environment": _make_environment,
    "data": _make_data,
    "model": _make_model,
    "datastore": _make_datastore,
    "compute": _make_compute,
    "workspace": _make_workspace,
}
KINDS = tuple(_MAKERS)
"""``job``: of any type; then each type of job, and each other kind of file."""


def make_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file. Raises UsageError for an unknown kind."""
    from drumline.spec.kinds.descriptions import describe

    if kind not in _MAKERS:
        raise UsageError(f"there is no schema of {kind!r}", f"one of {', '.join(KINDS)}")
    schemas = Schemas(describe)
    root = _MAKERS[kind](schemas)
    if "$ref" in root:
        root = schemas.definitions[root["$ref"].rpartition("/")[2]]
    return {"$schema": DRAFT, "title": f"Drumline: {kind}", **root, "definitions": schemas.definitions}
