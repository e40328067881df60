"""
An experiment of v1: a name that jobs have in common.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.experiment.experiment
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.compat.hyperdrive import HyperDriveConfig, to_sweep
from drumline.compat.script_run_config import ScriptRunConfig, to_command
from drumline.contract.errors import SpecError, UsageError
from drumline.control.facts import description
from drumline.control.jobs import job_folders
from drumline.sdk.v1.runs.run import HyperDriveRun, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.sdk.v1.scope import WorkspaceScope


class Experiment:
    """A name for jobs. It exists as soon as a job has it."""

    def __init__(self, workspace: WorkspaceScope, name: str, **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"an experiment's name must be text, got {name!r}", "Experiment(ws, 'name')")
        self.workspace: Any = workspace
        self.name = name

    @property
    def id(self) -> str:
        return self.name

    def submit(self, config: Any, tags: dict[str, str] | None = None, **kwargs: Any) -> Run:
        """
        Start the job and return at once.

        Raises SpecError, PlanError; nothing was created then.
        """
        if hasattr(config, "submit"):
            run: Run = config.submit(self.name, tags=tags, **kwargs)
            return run
        search = config if isinstance(config, HyperDriveConfig) else None
        config = config.run_config if search else config
        if not isinstance(config, ScriptRunConfig):
            raise SpecError(f"{type(config).__name__} cannot be submitted", "use ScriptRunConfig(...)")
        if not isinstance(tags or {}, dict):
            raise SpecError(f"tags must be a dict, got {type(tags).__name__}", "tags={'name': 'value'}")
        job: Any = to_sweep(search) if search else to_command(config)
        _check_script(config)
        job.experiment_name = self.name
        job.tags = {str(key): str(value) for key, value in (tags or {}).items()}
        returned = self.workspace._client.jobs.create_or_update(job)
        return (HyperDriveRun if search else Run)(self, str(returned.name))

    def get_runs(
        self, type: str | None = None, tags: Any = None, include_children: bool = False, **kwargs: Any
    ) -> Iterator[Run]:
        """List its runs, newest first. ``tags``: a name, or names with values, that a run must have."""
        with self.workspace._here():
            found = [
                described["name"]
                for described in description.show_jobs(job_folders.names(archived=None))
                if described["experiment_name"] == self.name
                and (include_children or not described.get("parent_job_name"))
                and _has_tags(described.get("tags") or {}, tags)
            ]
        return (Run(self, name) for name in found)

    def start_logging(self, *args: Any, **kwargs: Any) -> Run:
        """Raise UsageError: a run is a job here."""
        raise UsageError(
            "interactive runs are not supported", "submit a script, and log with Run.get_context() in it"
        )

    def delete(self, *args: Any, **kwargs: Any) -> None:
        """Raise UsageError: jobs are archived, one by one."""
        raise UsageError("an experiment cannot be deleted", "drumline job archive hides a job")

    def get_docs_url(self) -> str:
        return ""

    def __repr__(self) -> str:
        return f"Experiment(Name: {self.name}, Workspace: {self.workspace.name})"


def _has_tags(tags: dict[str, Any], wanted: Any) -> bool:
    if not wanted:
        return True
    if isinstance(wanted, str):
        return wanted in tags
    return all(tags.get(key) == value for key, value in dict(wanted).items())


def _check_script(config: ScriptRunConfig) -> None:
    """Raise SpecError for a script that is not in the source directory."""
    if not config.script or config.command:
        return
    path = os.path.join(config.source_directory, config.script)
    if not os.path.isfile(path):
        raise SpecError(
            f"script: there is no {config.script} in {os.path.abspath(config.source_directory)}",
            "script is a path in source_directory",
        )
