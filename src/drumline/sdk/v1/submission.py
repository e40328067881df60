"""Jobs that older SDKs build in Python, such as pipelines: how they are checked and started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.control.submission.fields import fill_component
from drumline.sdk.v1.experiment import Experiment
from drumline.sdk.v1.runs.run import Run
from drumline.sdk.v1.workspace import Workspace
from drumline.spec.jobs.validate import validate as check

if TYPE_CHECKING:
    from drumline.spec.jobs.validate import ValidationResult


def submit(
    job: Any,
    workspace: Workspace | None,
    experiment_name: str | None,
    *,
    description: str | None = None,
    tags: dict[str, str] | None = None,
) -> Run:
    """Start a job that was built in Python, and return its run. Raises SpecError, PlanError."""
    home = workspace or Workspace()
    for name, node in getattr(job, "jobs", {}).items():
        job._warnings += [f"jobs.{name}: {warning}" for warning in node._warnings]
    if tags:
        job.tags.update({str(key): str(value) for key, value in tags.items()})
    returned = home._client.jobs.create_or_update(
        job, experiment_name=experiment_name, description=description
    )
    experiment = str(returned.experiment_name or experiment_name or "Default")
    return Run(Experiment(home, experiment), str(returned.name))


def validate(job: Any, *, raise_error: bool) -> ValidationResult:
    """Return every problem of the job as a whole; raise SpecError with them when asked to."""
    result = check(fill_component(job))
    if raise_error and not result.passed:
        raise SpecError(list(result.problems))
    return result
