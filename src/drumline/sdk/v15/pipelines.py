"""
``Pipeline`` and ``@dsl.pipeline`` of v1.5.

Source: https://learn.microsoft.com/python/api/azure-ml-component/azure.ml.component.pipeline, 0.9.18.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError, UsageError
from drumline.sdk.v1.submission import submit, validate
from drumline.sdk.v15.components import StepNode, to_input
from drumline.sdk.v15.settings import compute_name
from drumline.spec import builder
from drumline.spec.dsl import pipeline as today
from drumline.spec.jobs.pipeline import PipelineJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.sdk.v1.runs.run import Run
    from drumline.sdk.v1.workspace import Workspace
    from drumline.spec.jobs.validate import ValidationResult


class Pipeline:
    """
    The result of calling a function under ``@dsl.pipeline``, with every attribute of today's ``PipelineJob``.
    """

    def __init__(self, job: PipelineJob, workspace: Workspace | None = None) -> None:
        if not isinstance(job, PipelineJob):
            raise UsageError(
                "Pipeline(nodes=...) is not supported", "put the calls in a function under @dsl.pipeline"
            )
        self._job = job
        self.workspace = workspace or next(_list_workspaces(job), None)

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
        Start it and return at once. ``regenerate_outputs``: run every step again, never reuse results.

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
            self._job.inputs[name] = to_input(value)
        workspace = kwargs.pop("workspace", None) or self.workspace
        return submit(self._job, workspace, experiment_name, description=description, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> ValidationResult:
        """Return every problem; raise SpecError with them when asked to."""
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
    Make a call of the decorated function return a ``Pipeline``; otherwise as today's ``drumline.dsl.pipeline``.

    default_compute_target: a compute or its name, for steps that have none.
    """
    if default_compute_target is not None:
        kwargs["default_compute_target"] = compute_name(default_compute_target)
    if default_datastore is not None:
        kwargs["default_datastore"] = getattr(default_datastore, "name", default_datastore)

    def decorate(function: Callable[..., Any]) -> Callable[..., Pipeline | PipelineJob]:
        build = today(name=name, description=description, **kwargs)(function)

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Pipeline | PipelineJob:
            given = {key: to_input(value) for key, value in named.items()}
            job: PipelineJob = build(*map(to_input, args), **given)
            # Within another pipeline it is a node of that.
            return Pipeline(job) if builder.current() is None else job

        return call

    return decorate(func) if func is not None else decorate


def _list_workspaces(job: PipelineJob) -> Iterator[Workspace]:
    """List the workspaces that the components of its nodes are from."""
    for node in job.jobs.values():
        if isinstance(node, StepNode) and node._home is not None:
            yield node._home
        elif isinstance(node, PipelineJob):
            yield from _list_workspaces(node)
