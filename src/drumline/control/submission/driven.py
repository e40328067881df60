"""Submission of a pipeline or a sweep: its graph, its run folder, and the process that drives it."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.folder import RunFolder, home
from drumline.contract.identity import user
from drumline.contract.record import NamedTuple
from drumline.contract.secrets import list_names
from drumline.control.jobs import driver_process
from drumline.control.submission import notices, pipeline, run_folder, secrets, sweep
from drumline.control.submission.fields import locate_problems
from drumline.control.submission.warning_groups import group_warnings
from drumline.engines.local import machine
from drumline.plan import unsupported
from drumline.spec import paths

if TYPE_CHECKING:
    from drumline.spec.jobs.job import Job


class _WrittenJob(NamedTuple):
    """A job that exists and has no driver yet. ``secrets``: of its steps, in no file, and their ``names``."""

    folder: RunFolder
    warnings: list[str]
    names: list[str]
    secrets: str


def prepare(job: Job, *, validate: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph that the job's driver will work by, and the warnings; only snapshots of code are created.

    Raises SpecError, PlanError with every problem of every step.
    """
    pipeline.check_name_and_fields(job, fields=validate)
    graph, warnings = _prepare(job)
    # A sweep and its trials may say the same, and so may the steps of a pipeline.
    return graph, group_warnings((*unsupported.list_shared_warnings(job), *warnings))


def warnings_of(job: Job) -> list[str]:
    """Return those of ``prepare``, without taking the code of a pipeline. Raises as that does."""
    if job.type == "sweep":
        return prepare(job)[1]
    return pipeline.check_pipeline(job)[1]  # type: ignore[arg-type]


def _find_wish(job: Job) -> list[Any] | None:
    """Return ``drumline.notify`` of a sweep, which its trial has, or None."""
    given = (getattr(getattr(job, "trial", None), "drumline", None) or {}).get("notify")
    return list(given) if given is not None else None


def _prepare(job: Job) -> tuple[dict[str, Any], list[str]]:
    if job.type == "sweep":
        return sweep.prepare(job)  # type: ignore[arg-type]
    return pipeline.prepare(job)  # type: ignore[arg-type]


def submit_driven(job: Job, *, check: bool = True) -> tuple[RunFolder, list[str]]:
    """Start the job, and return when its driver is on its way. Raises SpecError, PlanError, EngineError."""
    with run_folder.hold_removal_lock(home()):
        written = _write_folder(job, check=check)
    folder = written.folder
    try:
        with run_folder.block_signals(forks=True):
            driver_process.start_driver(folder, sys.executable, {}, written.names, written.secrets)
    except BaseException:
        run_folder.remove_folder(folder)
        raise
    return folder, [*getattr(job, "_warnings", ()), *written.warnings]


def _write_folder(job: Job, *, check: bool) -> _WrittenJob:
    """Write the run folder of a job, with which it exists. Raises SpecError, PlanError."""
    # The driver runs here, wherever its steps do.
    machine.check_can_run()
    named = bool(job.name)
    job.name = job.name or paths.random_name()
    try:
        graph, warnings = prepare(job, validate=check)
        secret_names = list_names(graph)
        if not job._top_job:
            secrets.check_wanted(secret_names, job.type)
        with locate_problems(job):
            held = secrets.find_text(secret_names)
        text = run_folder.text_of(job)
        receivers = notices.list_receivers(_find_wish(job)) if not job._top_job else ()
        folder = run_folder.create_folder(job, home())
    except BaseException:
        job.name = job.name if named else None
        raise
    graph |= {
        "notify": receivers,
        "top": job._top_job or job.name,
        "interpreter": sys.executable,
        "surroundings": {
            name: os.environ[name] for name in driver_process.KEPT_VARIABLES if name in os.environ
        },
    }
    try:
        folder.write(folder.job, text)
        folder.write(folder.graph, json.dumps(graph, indent=1))
        run_folder.check_is_ours(folder)
        folder.begin(e.JobSubmitted(time.time(), user(), "local", job.type))
    except BaseException:
        run_folder.remove_folder(folder)
        raise
    return _WrittenJob(folder, warnings, secret_names, held)
