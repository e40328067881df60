"""
``MLClient.jobs``. Every method raises NotFoundError for a job that is not there.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations.joboperations
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract import folder, status
from drumline.contract.errors import DrumlineError, Problem, SpecError
from drumline.contract.record import describe_record
from drumline.contract.words import format_count
from drumline.control.facts import description, doubts
from drumline.control.facts.jobs import KnownJobs
from drumline.control.jobs import job_folders, lookup
from drumline.control.jobs.ending import cancel
from drumline.control.jobs.recovery import recover
from drumline.control.logs import printer, stream
from drumline.control.submission.run_folder import forget_stored_name, name_taken
from drumline.control.submission.submit import submit
from drumline.sdk.compute_operations import FinishedPoller
from drumline.sdk.job_views import JobViews, Poller, describe_interrupt, is_kernel, job_failed
from drumline.sdk.operations import Operations, fixed_part, from_description, print_warnings
from drumline.spec.jobs.validate import validate
from drumline.spec.paths import default_experiment_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.spec.jobs.command import Command
    from drumline.spec.jobs.validate import ValidationResult


class JobOperations(JobViews):
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
        if getattr(job, "_source", None) is None:
            hint = "call it, and pass what it returns" if callable(job) else "use command(...)"
            raise SpecError(f"a {type(job).__name__} is not a job", hint)
        given = {
            "description": description,
            "compute": compute,
            "tags": tags,
            "experiment_name": experiment_name,
        }
        for name, value in given.items():
            if value is not None:
                setattr(job, name, value)
        forget_stored_name(job)
        if job.name and job.name in lookup.all_names():
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
            job.experiment_name = default_experiment_name(os.getcwd())
        submitted = submit(job, check=not skip_validation)
        print_warnings(submitted.warnings)
        job._stored_as, job._stored_spec = submitted.name, fixed_part(job)
        return self.get(submitted.name)

    def _is_stored(self, job: Command) -> bool:
        """Return whether it came from the store, or went there, and differs only in fields that can be edited."""
        if not job.name or job._stored_as != job.name:
            return False
        stored = job._stored_spec
        return fixed_part(job) == (fixed_part(self.get(job.name)) if stored is None else stored)

    def get(self, name: str) -> Command:
        return from_description(description.show_job(name, is_whole=True))

    def list(
        self,
        *,
        parent_job_name: str | None = None,
        list_view_type: str = "ActiveOnly",
        **kwargs: Any,
    ) -> Iterator[Command]:
        """List jobs, newest first. In a notebook the list shows itself as a table."""
        archived = {"ActiveOnly": False, "ArchivedOnly": True}.get(
            str(getattr(list_view_type, "value", list_view_type))
        )
        names = job_folders.names(
            archived=archived, parent=parent_job_name or "", limit=kwargs.get("max_results")
        )
        return JobList(names)

    def stream(self, name: str) -> None:
        """
        Print the logs of all ranks until the job has ended; in a notebook, show its page. Blocks.

        Ctrl-C, or an interrupt of the kernel, leaves the job running; in a notebook ``stream`` then returns.
        Raises JobFailedError with the one-sentence reason when it failed.
        """
        folder = lookup.folder_of(name)
        in_notebook = is_kernel()
        try:
            outcome = _show_live(folder) if in_notebook else _print_logs(folder)
        except KeyboardInterrupt:
            out = sys.stdout if in_notebook else sys.stderr
            print(describe_interrupt(name), file=out)
            if in_notebook:
                return
            raise
        if outcome.status == status.FAILED:
            raise job_failed(name, outcome.reason)

    def download(
        self,
        name: str,
        *,
        download_path: str | os.PathLike[str] = ".",
        output_name: str | None = None,
        all: bool = False,
    ) -> None:
        """Copy to ``download_path``/artifacts and /named-outputs. Raises UsageError while the job has not ended."""
        from drumline.control.jobs.download import download

        recover(lookup.folder_of(name))
        download(name, os.fspath(download_path), output=output_name or "", everything=all)

    def rerun(
        self,
        name: str,
        *,
        params_override: Sequence[dict[str, Any]] = (),
        compute: str | None = None,
        code: str | None = None,
        new_name: str | None = None,
    ) -> Command:
        """
        Submit an earlier job again, from what was stored of it, and return the new job at once.

        ``params_override``: changes, as of ``load_job``: ``[{"inputs.lr": 0.01}]``. ``code``: "then", as it was stored,
        or "now"; None: then, or now if it was not stored. A failed pipeline continues where it failed.
        Raises NotFoundError, SpecError, PlanError, UsageError; nothing was created then.
        """
        from drumline.control.submission.rerun import prepare_rerun

        again = prepare_rerun(name, params_override, compute=compute, code=code, new_name=new_name)
        submitted = submit(again.job, again.run)
        print_warnings((*again.notes, *submitted.warnings))
        return self.get(submitted.name)

    def begin_cancel(self, name: str, **kwargs: Any) -> Poller:
        """Ask for the job's end, and return something whose ``result()`` waits for it."""
        cancel(name)
        return Poller(name)

    def cancel(self, name: str) -> None:
        """Ask for the job's end, and return; the name of ``begin_cancel`` in azure-ai-ml before 1.0."""
        self.begin_cancel(name)

    def delete(self, name: str) -> None:
        """
        Remove an ended job with its steps or trials, outputs, logs and metrics; print what others needed of it.

        Raises UsageError for a job that has not ended, or that a running one reads from.
        """
        from drumline.control.upkeep import pruning

        print_warnings(need.what for need in pruning.delete_jobs([name]).needs)

    def begin_delete(self, name: str, **kwargs: Any) -> FinishedPoller[None]:
        """Delete it, as ``delete``."""
        self.delete(name)
        return FinishedPoller(None)

    def archive(self, name: str) -> None:
        job_folders.set_archived(name, archived=True)

    def restore(self, name: str) -> None:
        job_folders.set_archived(name, archived=False)

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
        """Replace the fields that are given."""
        given = {
            "display_name": display_name,
            "experiment_name": experiment_name,
            "description": description,
            "tags": tags,
            "properties": properties,
        }
        job_folders.edit(name, {field: value for field, value in given.items() if value is not None})
        return self.get(name)

    def show_services(self, name: str, node_index: int = 0) -> dict[str, Any]:
        """Return services by name, with endpoint and status; TensorBoard is on node 0 alone. Raises NotFoundError."""
        described: dict[str, Any] = describe_record(description.show_services(name))
        return described

    def validate(self, job: Command, *, raise_on_failure: bool = False, **kwargs: Any) -> ValidationResult:
        """
        Return every problem: Azure's verdict, and where that is good, what ``create_or_update`` would refuse here.

        Raises SpecError with them when asked to.
        """
        result = validate(job)
        if result.passed:
            from drumline.control.submission import driven, planning

            result.warnings += map(str, planning.list_traps(job))
            try:
                if job.name and job.name in lookup.all_names() and not self._is_stored(job):
                    raise name_taken(job.name)
                driven.warnings_of(job)
            except DrumlineError as error:  # of what is not there, too
                result.problems += getattr(error, "problems", ()) or (
                    Problem(error.message, hint=error.hint),
                )
        if raise_on_failure and not result.passed:
            raise SpecError(list(result.problems))
        return result


def _show_live(folder: RunFolder) -> Outcome:
    from drumline.sdk.notebook import live_page

    return live_page.follow(folder)


def _print_logs(folder: RunFolder) -> Outcome:
    sys.stdout.write(stream.header(folder))
    shown = printer.LogView(sys.stdout, warn=doubts.list_warnings)
    outcome = stream.follow(folder, shown)
    sys.stdout.write(stream.summary(folder, outcome, shown))
    sys.stdout.flush()
    return outcome


_MOST_ROWS = 30


class JobList(Operations):
    """Jobs, read one by one as they are asked for; in a notebook a table of the first ones."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._jobs: Iterator[Command] = map(from_description, description.show_jobs(names))

    def __iter__(self) -> Iterator[Command]:
        return self

    def __next__(self) -> Command:
        with folder.workspace(self._workspace):
            return next(self._jobs)

    def __repr__(self) -> str:
        return f"<{format_count(len(self._names), 'job')}: iterate over them, or list() them>"

    def _repr_html_(self) -> str:
        from drumline.sdk.notebook.notebook_page import render_jobs

        with folder.workspace(self._workspace):
            known = KnownJobs()
            rows = list(known.overviews(self._names[:_MOST_ROWS], with_metric=True))
            known.keep()
        return render_jobs(rows, len(self._names))
