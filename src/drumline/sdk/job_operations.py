"""
``MLClient.jobs``. Every method raises NotFoundError for a job that is not there.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations.joboperations
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import JobFailedError, SpecError
from drumline.control import jobs
from drumline.sdk.operations import Operations
from drumline.sdk.poller import Poller
from drumline.sdk.stored import fixed_part, from_description
from drumline.spec.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.command import Command
    from drumline.spec.validate import ValidationResult


class JobOperations(Operations):
    def create_or_update(
        self,
        job: Command,
        *,
        description: str | None = None,
        compute: str | None = None,
        tags: dict[str, str] | None = None,
        experiment_name: str | None = None,
        skip_validation: bool = False,
        **kwargs: Any,
    ) -> Command:
        """
        Submit a job and return at once. A job that was fetched, or submitted before, is edited instead: its display
        name, experiment, description, tags and properties; nothing else of a submitted job can change.

        Raises SpecError, PlanError; nothing was created or edited then.
        """
        from drumline.control.submit import name_taken, submit
        from drumline.control.terminal import clean

        given = {
            "description": description,
            "compute": compute,
            "tags": tags,
            "experiment_name": experiment_name,
        }
        for name, value in given.items():
            if value is not None:
                setattr(job, name, value)
        if job.name and job.name in jobs.all_names():
            if not self._is_stored(job):
                raise name_taken(job.name)
            return self.update(
                job.name,
                display_name=job.display_name,
                experiment_name=job.experiment_name,
                description=job.description,
                tags=job.tags or None,
                properties=job.properties or None,
            )
        if job.experiment_name is None:
            from drumline.spec.names import default_experiment_name

            job.experiment_name = default_experiment_name(os.getcwd())
        submitted = submit(job, check=not skip_validation)
        for warning in submitted.warnings:
            print(f"warning: {clean(warning)}", file=sys.stderr)
        job._stored_as, job._stored_spec = submitted.name, fixed_part(job)
        return self.get(submitted.name)

    def _is_stored(self, job: Command) -> bool:
        """Whether it came from the store, or went there, and says the same but for what can be edited."""
        if not job.name or job._stored_as != job.name:
            return False
        stored = job._stored_spec
        return fixed_part(job) == (fixed_part(self.get(job.name)) if stored is None else stored)

    def get(self, name: str) -> Command:
        return from_description(jobs.describe(name))

    def list(
        self,
        *,
        parent_job_name: str | None = None,
        list_view_type: str = "ActiveOnly",
        **kwargs: Any,
    ) -> Iterator[Command]:
        """Newest first."""
        archived = {"ActiveOnly": False, "ArchivedOnly": True}.get(
            str(getattr(list_view_type, "value", list_view_type))
        )
        names = jobs.names(archived=archived, parent=parent_job_name or "", limit=kwargs.get("max_results"))
        return (from_description(described) for described in jobs.described(names))

    def stream(self, name: str) -> None:
        """
        Print the logs of all ranks until the job has ended. Blocks. Ctrl-C leaves the job running.

        Raises JobFailedError with the one-sentence reason when it failed.
        """
        from drumline.control import stream

        folder = jobs.folder_of(name)
        sys.stdout.write(stream.header(folder))
        show = stream.Show()
        outcome = stream.follow(folder, sys.stdout, show)
        sys.stdout.write(stream.summary(folder, outcome, show))
        sys.stdout.flush()
        if outcome.status == status.FAILED:
            raise JobFailedError(f"job {name} failed: {outcome.reason}", f"drumline job show -n {name}")

    def download(
        self,
        name: str,
        *,
        download_path: str | os.PathLike[str] = ".",
        output_name: str | None = None,
        all: bool = False,
    ) -> None:
        """To ``download_path``/artifacts and /named-outputs. Raises UsageError while the job has not ended."""
        from drumline.control.download import download

        download(name, os.fspath(download_path), output=output_name or "", everything=all)

    def begin_cancel(self, name: str, **kwargs: Any) -> Poller:
        """Ask for the job's end, and return something whose ``result()`` waits for it."""
        from drumline.control.cancel import cancel

        cancel(name)
        return Poller(name)

    def cancel(self, name: str) -> None:
        """Ask for the job's end, and return; the name of ``begin_cancel`` in azure-ai-ml before 1.0."""
        self.begin_cancel(name)

    def archive(self, name: str) -> None:
        jobs.archive(name)

    def restore(self, name: str) -> None:
        jobs.restore(name)

    def update(
        self,
        name: str,
        *,
        display_name: str | None = None,
        experiment_name: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
    ) -> Command:
        """Those given replace what was there."""
        given = {
            "display_name": display_name,
            "experiment_name": experiment_name,
            "description": description,
            "tags": tags,
            "properties": properties,
        }
        jobs.edit(name, {field: value for field, value in given.items() if value is not None})
        return self.get(name)

    def show_services(self, name: str, node_index: int = 0) -> dict[str, Any]:
        """By name, with endpoint and status; there is TensorBoard beside node 0 alone. Raises NotFoundError."""
        return jobs.services(name)

    def validate(self, job: Command, *, raise_on_failure: bool = False, **kwargs: Any) -> ValidationResult:
        """Raises SpecError with every problem, when asked to."""
        result = validate(job)
        if raise_on_failure and not result.passed:
            raise SpecError(list(result.problems))
        return result
