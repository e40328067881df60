"""A pipeline or a sweep from a job to a driver that is on its way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import EngineError, PlanError, SpecError
from drumline.contract.folder import RunFolder, base_home, home
from drumline.contract.user import user
from drumline.control.driver.grouping import grouped
from drumline.plan import unhonoured
from drumline.plan.request import check_name
from drumline.spec import names

if TYPE_CHECKING:
    from drumline.spec.job import Job

_KEPT = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "SLURM_CONF",
    "CUDA_VISIBLE_DEVICES", "TMPDIR", "LANG", "LC_ALL",
)  # fmt: skip
"""
Variables of whoever submits that a driver has too when somebody else starts it again: those that say where programs
are. Others may be secrets, and are nowhere on disk.
"""


def prepared(job: Job, *, validate: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    What its driver will work by, and the warnings; nothing is created but snapshots of code.

    Raises SpecError, PlanError with every problem of every step.
    """
    check(job, fields=validate)
    graph, warnings = _prepared(job)
    # A sweep and its trials may say the same, and so may the steps of a pipeline.
    return graph, grouped((*unhonoured.of_whole(job), *warnings))


def warnings_of(job: Job) -> list[str]:
    """Those of ``prepared``, without taking the code of a pipeline. Raises as that does."""
    if job.type == "sweep":
        return prepared(job)[1]
    from drumline.control.driver import prepare

    return prepare.checked(job)[1]  # type: ignore[arg-type]


def check(job: Job, *, fields: bool = True) -> None:
    """Its name, and its fields. Raises PlanError, SpecError."""
    if job.name:
        check_name(job.name)
    if fields:
        from drumline.spec.validate import validate

        result = validate(job)
        if not result.passed:
            raise SpecError(list(result.problems))


def _prepared(job: Job) -> tuple[dict[str, Any], list[str]]:
    if job.type == "sweep":
        from drumline.control.driver import sweep

        return sweep.prepare(job)  # type: ignore[arg-type]
    from drumline.control.driver import prepare

    return prepare.prepare(job)  # type: ignore[arg-type]


def submit(job: Job, *, check: bool = True) -> tuple[RunFolder, list[str]]:
    """Start the job, and return when its driver is on its way. Raises SpecError, PlanError, EngineError."""
    import json

    from drumline.control import submit as single

    named = bool(job.name)
    job.name = job.name or names.random_name()
    try:
        graph, warnings = prepared(job, validate=check)
        text = single.text_of(job)
        folder = single.create_folder(job, home())
    except BaseException:
        job.name = job.name if named else None
        raise
    graph |= {
        "top": job._top_job or job.name,
        "interpreter": sys.executable,
        "surroundings": {name: os.environ[name] for name in _KEPT if name in os.environ},
    }
    try:
        folder.write(folder.job, text)
        folder.write(folder.graph, json.dumps(graph, indent=1))
        single.check_is_ours(folder)
        folder.begin(e.JobSubmitted(time.time(), user(), "local", job.type))
        with single.uninterrupted(forks=True):
            _spawn(folder, sys.executable, {})
    except BaseException:
        single.remove_folder(folder)
        raise
    return folder, [*getattr(job, "_warnings", ()), *warnings]


def revive(folder: RunFolder) -> None:
    """
    Start a driver where there is none any more; harmless where there is one. It has our environment, but for what the
    one that submitted the job had. Never raises.
    """
    try:
        graph = folder.read_json(folder.graph) or {}
        interpreter = str(graph.get("interpreter") or sys.executable)
        kept = graph.get("surroundings")
        surroundings = (
            {str(name): str(kept[name]) for name in _KEPT if name in kept} if isinstance(kept, dict) else {}
        )
        _spawn(folder, interpreter if os.access(interpreter, os.X_OK) else sys.executable, surroundings)
    except (EngineError, OSError):
        return  # Whoever looks next tries again.


def _spawn(folder: RunFolder, interpreter: str, surroundings: dict[str, str]) -> None:
    # A fork of this process would not do: it may have threads, and its modules are not those of a driver.
    ours = {"DRUMLINE_HOME": base_home(), "DRUMLINE_WORKSPACE": folder.workspace}
    argv = [interpreter, "-P", "-m", "drumline.control.driver", folder.path]
    done = subprocess.run(  # noqa: S603
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **surroundings, **ours},
    )
    if done.returncode:
        raise EngineError(f"the driver of job {folder.name} did not start: {done.stderr.strip()[-500:]}")


def located(error: PlanError, job: Job) -> PlanError:
    """With file and line of each problem, where the job came from a file."""
    if job._root is not None:
        from drumline.spec.validate import located as find

        error.problems = tuple(find(error.problems, job))
    return error
