"""The nodes of a pipeline: jobs, or mappings with the keys of YAML that become jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity_types import JOB_TYPES, job_class
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def to_nodes(jobs: dict[str, Any] | None, base_path: str) -> dict[str, Any]:
    """Return jobs for mappings of YAML, whose relative paths resolve against ``base_path``. Raises SpecError."""
    made: dict[str, Any] = {}
    if not isinstance(jobs or {}, Mapping):
        raise SpecError(f"jobs must be a mapping, not a {type(jobs).__name__}")
    with builder.building(None):
        for name, node in (jobs or {}).items():
            is_twice = any(node is other for other in made.values())
            made[name] = to_node(name, deepcopy(node) if is_twice else node, base_path)
    return made


def to_node(name: str, node: Any, base_path: str) -> Any:
    """Return a job for a node; one that is a job already is left as it is."""
    if isinstance(node, Job):
        if not node._base_path:
            node._base_path = base_path
    elif isinstance(node, dict):
        node = _from_mapping(name, node, base_path)
    elif isinstance(node, Component):
        node = node()  # type: ignore[operator]
    else:
        raise SpecError(f"jobs.{name} must be a job, not a {type(node).__name__}")
    node._node_name = name
    return node


def _from_mapping(name: str, node: dict[str, Any], base_path: str) -> Job:
    kind = _class_of(name, node, base_path)
    # Of what is left out the tables of YAML have told, where it was to be told.
    values = {key: value for key, value in node.items() if key in kind._fields and key != "type"}
    made: Job = kind(**values, base_path=base_path)
    made._comment = node.get("comment")
    made._warnings = []
    environment = getattr(made, "environment", None)
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = base_path
    return made


def _class_of(name: str, node: dict[str, Any], base_path: str) -> type[Any]:
    given = node.get("type") or _type_by_content(node, base_path)
    kind = str(given).lower()
    if kind in JOB_TYPES:
        return job_class(kind)
    problem = f"jobs.{name}: nodes of type {kind!r} are not supported"
    raise SpecError(problem, "command, parallel, sweep and pipeline are")


def _type_by_content(node: dict[str, Any], base_path: str) -> str:
    """Return the type of a node that does not say it: a pipeline's or parallel, or its component's."""
    component = node.get("component")
    if isinstance(component, str) and not component.startswith("azureml:"):
        from drumline.spec.reading.files import read_yaml

        try:
            held: Any = read_yaml(os.path.join(base_path, component.removeprefix("file:")))
        except SpecError:
            return "command"  # To be told when it is needed.
    else:
        held = component if isinstance(component, dict) else node
    return "pipeline" if "jobs" in held else "parallel" if "task" in held else "command"
