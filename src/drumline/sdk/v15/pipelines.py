"""
``Pipeline`` and ``@dsl.pipeline`` of v1.5.

Source: https://learn.microsoft.com/python/api/azure-ml-component/azure.ml.component.pipeline, 0.9.18.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError, UsageError
from drumline.sdk.v15.components import Node, plain
from drumline.sdk.v15.settings import compute_name
from drumline.spec import builder
from drumline.spec.pipeline import PipelineJob
from drumline.spec.pipeline_function import pipeline as today

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.sdk.v1.run import Run
    from drumline.sdk.v1.workspace import Workspace
    from drumline.spec.validate import ValidationResult


class Pipeline:
    """
    What a call of a function under ``@dsl.pipeline`` gives. Whatever today's ``PipelineJob`` has, it has too.
    """

    def __init__(self, job: PipelineJob, workspace: Workspace | None = None) -> None:
        if not isinstance(job, PipelineJob):
            raise UsageError(
                "Pipeline(nodes=...) is not supported", "put the calls in a function under @dsl.pipeline"
            )
        self._job = job
        self.workspace = workspace or next(_homes(job), None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._job, name)

    @property
    def nodes(self) -> dict[str, Any]:
        return self._job.jobs

    def submit(
        self,
        experiment_name: str | None = None,
        default_compute_target: Any = None,
        description: str | None = None,
        pipeline_parameters: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
        **kwargs: Any,
    ) -> Run:
        """
        Start it and return at once. ``regenerate_outputs``: run every step, whatever an earlier run has.

        Raises SpecError, PlanError; nothing was created then.
        """
        settings = self._job.settings
        if default_compute_target is not None:
            settings.default_compute = compute_name(default_compute_target)
        if continue_on_step_failure is not None:
            settings.continue_on_step_failure = continue_on_step_failure
        if regenerate_outputs is not None:
            settings.force_rerun = regenerate_outputs
        for name, value in (pipeline_parameters or {}).items():
            if name not in self._job.inputs:
                known = ", ".join(map(repr, self._job.inputs)) or "none"
                raise SpecError(f"the pipeline has no parameter {name!r}", f"valid keywords: {known}")
            self._job.inputs[name] = plain(value)
        workspace = kwargs.pop("workspace", None) or self.workspace
        return submit(self._job, workspace, experiment_name, description=description, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> ValidationResult:
        """Raises SpecError with every problem, when asked to."""
        return validate(self._job, raise_error=raise_error)

    def __repr__(self) -> str:
        return f"Pipeline({self._job.display_name!r}, nodes={list(self._job.jobs)})"


def pipeline(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    default_compute_target: Any = None,
    default_datastore: Any = None,
    **kwargs: Any,
) -> Any:
    """
    Under a function: a call of it gives a ``Pipeline``. ``default_compute_target``: a compute or its name, for steps
    that have none. As today's ``drumline.dsl.pipeline`` otherwise.
    """
    if default_compute_target is not None:
        kwargs["default_compute_target"] = compute_name(default_compute_target)
    if default_datastore is not None:
        kwargs["default_datastore"] = getattr(default_datastore, "name", default_datastore)

    def decorate(function: Callable[..., Any]) -> Callable[..., Pipeline | PipelineJob]:
        build = today(name=name, description=description, **kwargs)(function)

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Pipeline | PipelineJob:
            given = {key: plain(value) for key, value in named.items()}
            job: PipelineJob = build(*map(plain, args), **given)
            # Within another pipeline it is a node of that.
            return Pipeline(job) if builder.current() is None else job

        return call

    return decorate(func) if func is not None else decorate


def submit(
    job: Any,
    workspace: Workspace | None,
    experiment_name: str | None,
    *,
    description: str | None = None,
    tags: dict[str, str] | None = None,
) -> Run:
    """Raises SpecError, PlanError."""
    from drumline.sdk.v1.experiment import Experiment
    from drumline.sdk.v1.run import Run
    from drumline.sdk.v1.workspace import Workspace

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
    """Raises SpecError with every problem, when asked to."""
    from drumline.control.submit import whole
    from drumline.spec.validate import validate as check

    result = check(whole(job))
    if raise_error and not result.passed:
        raise SpecError(list(result.problems))
    return result


def _homes(job: PipelineJob) -> Iterator[Workspace]:
    """The workspaces that the components of its nodes are of."""
    for node in job.jobs.values():
        if isinstance(node, Node) and node._home is not None:
            yield node._home
        elif isinstance(node, PipelineJob):
            yield from _homes(node)
