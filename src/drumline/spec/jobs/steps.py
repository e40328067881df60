"""A node of a pipeline with its component filled in."""

from __future__ import annotations

import os
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.jobs.component import component_of, declare_inputs, fill_command
from drumline.spec.jobs.parallel import SETTINGS, Parallel, ParallelComponent, to_command
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob
from drumline.spec.parts.environment import give_folder
from drumline.spec.parts.io import PATTERN
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.component import Lookup
    from drumline.spec.jobs.job import Job


def fill_component(node: Job, lookup: Lookup) -> Job:
    """
    Return the node as a job that needs no component: its own fields go before those of its component.

    ``_declared``: the component's inputs, by which the values are to be checked; empty for a node without one.
    Raises SpecError, NotFoundError.
    """
    component = component_of(node, lookup)
    job = deepcopy(node)
    if isinstance(component, PipelineComponent):
        # A node need not say of which type its component is.
        is_pipeline = job.type == "pipeline"
        return _pipeline(
            job if is_pipeline else _as(PipelineJob, job, without=("jobs", "settings")), component
        )
    if isinstance(component, CommandComponent):
        if job.type != "command":
            raise SpecError(f"{component._label} is a command, and this a {job.type}")
        fill_command(job, component)
        return job
    if isinstance(component, ParallelComponent):
        job = _parallel(job if job.type == "parallel" else _as(Parallel, job), component)
    if job.type == "parallel":
        return to_command(job)  # type: ignore[arg-type]
    return job


def _as(kind: type[Any], job: Any, without: tuple[str, ...] = ()) -> Any:
    with builder.building(None):
        made = kind()
    for name in (*kind._fields, "_base_path", "_node_name", "_comment", "_root"):
        if hasattr(job, name) and name not in ("type", *without):
            object.__setattr__(made, name, getattr(job, name))
    return made


def _parallel(job: Any, component: ParallelComponent) -> Job:
    pin_job_paths(job)
    if job.task is None and component.task is not None:
        job.task = deepcopy(component.task)
        if job.task.code and not is_remote(job.task.code):
            job.task.code = resolve(component, job.task.code)
        give_folder(job.task.environment, component.base_path)
    for name in (*SETTINGS, "resources"):
        if getattr(job, name) is None:
            setattr(job, name, deepcopy(getattr(component, name)))
    job._is_deterministic = component.is_deterministic
    job.component = None
    declare_inputs(job, component)
    return job  # type: ignore[no-any-return]


def _pipeline(job: Any, component: PipelineComponent) -> Job:
    job.component = None
    pin_job_paths(job)
    job.jobs = component.jobs
    if not component.is_deterministic:
        job.settings.force_rerun = True
    job._base_path = component.base_path
    job._source = os.path.abspath(component._source) if component._source else ""
    declare_inputs(job, component)
    return job  # type: ignore[no-any-return]


def pin_job_paths(job: Any) -> None:
    """Make its paths absolute, so that they may be read from another folder."""
    for given in (*job.inputs.values(), *job.outputs.values()):
        path = getattr(given, "path", None)
        if isinstance(path, str) and path and not is_remote(path) and not PATTERN.search(path):
            given.path = resolve(job, path)
