"""
The types of jobs and components: of each the class, and the table that checks its files.

All are imported on first use, for a command job is not to pay for sweeps and pipelines.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.records import Record

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


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
