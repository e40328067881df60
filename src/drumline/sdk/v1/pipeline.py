"""
Pipelines of v1 and their runs, and how jobs that older SDKs build in Python are checked and started.

Source: https://learn.microsoft.com/python/api/azureml-pipeline-core/azureml.pipeline.core.pipeline.pipeline
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.compat.pipeline_steps import PipelineParameter, identifier, to_pipeline
from drumline.compat.script_run_config import refuse_unknown
from drumline.contract.errors import SpecError, UsageError
from drumline.control.submission.planning import fill_component
from drumline.sdk.v1.experiment import Experiment
from drumline.sdk.v1.runs.run import Run
from drumline.sdk.v1.workspace import Workspace
from drumline.spec.jobs.validate import validate as check

if TYPE_CHECKING:
    from drumline.sdk.v1.scope import WorkspaceScope
    from drumline.spec.jobs.pipeline import PipelineJob
    from drumline.spec.jobs.validate import ValidationResult


class Pipeline:
    """A pipeline of ``steps``: the last ones are enough; those that they read from or run after come too."""

    def __init__(
        self,
        workspace: WorkspaceScope,
        steps: Any = None,
        description: str | None = None,
        default_datastore: Any = None,
        default_source_directory: str | None = None,
        resolve_closure: bool = True,
        **kwargs: Any,
    ) -> None:
        for_submit = next((name for name in kwargs if name.startswith("continue_on_")), None)
        if for_submit is not None:
            hint = "write pipeline.submit(name, continue_on_step_failure=True)"
            raise SpecError(f"unknown keyword {for_submit!r} in Pipeline", hint)
        refuse_unknown(kwargs, type(self))
        self.workspace: Any = workspace
        self.description = description
        self._steps = [steps] if not isinstance(steps, (list, tuple)) else list(steps)
        self._source_directory = default_source_directory
        self._job()  # Raises what is wrong already.

    def validate(self) -> list[Any]:
        """Return an empty list. Raises SpecError for a pipeline that cannot run."""
        validate(self._job(), raise_error=True)
        return []

    def submit(
        self,
        experiment_name: str,
        pipeline_parameters: dict[str, Any] | None = None,
        continue_on_step_failure: bool = False,
        regenerate_outputs: bool = False,
        **kwargs: Any,
    ) -> PipelineRun:
        """
        Start it and return at once. ``regenerate_outputs``: run every step again, never reuse results.

        Raises SpecError, PlanError; nothing was created then.
        """
        job = self._job()
        for name, value in (pipeline_parameters or {}).items():
            if identifier(name) not in job.inputs:
                known = ", ".join(map(repr, job.inputs)) or "none"
                raise SpecError(f"the pipeline has no parameter {name!r}", f"its parameters: {known}")
            job.inputs[identifier(name)] = PipelineParameter.to_today(value)
        job.settings.continue_on_step_failure = continue_on_step_failure
        job.settings.force_rerun = regenerate_outputs
        run = submit(
            job, self.workspace, experiment_name, description=self.description, tags=kwargs.get("tags")
        )
        return PipelineRun(run.experiment, run.id)

    def publish(self, *args: Any, **kwargs: Any) -> None:
        """Raise UsageError: pipelines are not published."""
        raise UsageError(
            "publishing pipelines is not supported", "Experiment(ws, name).submit(pipeline) runs one"
        )

    def _job(self) -> PipelineJob:
        return to_pipeline(self._steps, description=self.description, source_directory=self._source_directory)


class PipelineRun(Run):
    """The job of a pipeline; its steps are runs."""

    def get_steps(self) -> list[Run]:
        """Return the steps that have started, in the order of their starts."""
        return list(self.get_children())[::-1]

    def find_step_run(self, name: str) -> list[Run]:
        """Return the runs of the step of that name; none before it starts."""
        return [run for run in self.get_children() if run.display_name == name]

    publish_pipeline = Pipeline.publish

    def wait_for_completion(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Wait, as for a run; ``timeout_seconds`` has no effect."""
        kwargs.pop("timeout_seconds", None)
        return super().wait_for_completion(*args, **kwargs)


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
