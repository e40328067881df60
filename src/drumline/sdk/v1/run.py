"""
A run of v1: a job, and what it logged.

Ranks import this too, for ``Run.get_context()``: what only a submitter needs is imported where it is used.
Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.run.run
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import write_whole
from drumline.sdk.v1 import run_files
from drumline.sdk.v1.logging import Log
from drumline.sdk.v1.run_files import Files
from drumline.tracking import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.sdk.v1.experiment import Experiment


class Run(Log, Files):
    """
    The job ``run_id`` of an experiment.

    Raises NotFoundError, in the constructor too, for a job that is not there.
    """

    def __init__(self, experiment: Experiment, run_id: str, outputs: Any = None, **kwargs: Any) -> None:
        self.experiment = experiment
        self.id = run_id
        self._folder()

    @staticmethod
    def get_context(allow_offline: bool = True, **kwargs: Any) -> Run:
        """
        The run of this process: of the job whose rank it is; else one that prints what is logged.

        Raises UsageError outside a job unless ``allow_offline``.
        """
        from drumline.sdk.v1.context import context

        found: Run = context(allow_offline=allow_offline)
        return found

    @staticmethod
    def get(workspace: Any, run_id: str) -> Run:
        found: Run = workspace.get_run(run_id)
        return found

    # what it is

    @property
    def name(self) -> str:
        return self.id

    number = property(lambda self: 1)
    type = property(lambda self: "azureml.scriptrun")

    @property
    def display_name(self) -> str:
        return str(self._described()["display_name"])

    @display_name.setter
    def display_name(self, value: str) -> None:
        self._edit({"display_name": value})

    @property
    def status(self) -> str:
        return self.get_status()

    def get_status(self) -> str:
        """``Queued``, ``Running``, ``Completed``, ``Failed``, ``Canceled`` and the like."""
        return str(self._outcome().status)

    def get_portal_url(self) -> str:
        """The run folder, as ``file://``."""
        return f"file://{self._folder().path}"

    def get_details(self) -> dict[str, Any]:
        """With azureml's keys; times are RFC 3339 in UTC."""
        described = self._described()
        failed = described["status"] == "Failed"
        return {
            "runId": self.id,
            "target": described.get("compute") or "local",
            "status": described["status"],
            "startTimeUtc": described["started_at"],
            "endTimeUtc": described["ended_at"],
            "properties": dict(described.get("properties") or {}),
            "inputDatasets": [],
            "outputDatasets": [],
            "runDefinition": {
                key: described.get(key)
                for key in ("command", "environment", "distribution", "resources", "environment_variables")
            },
            "logFiles": self._logs(),
            **({"error": {"error": {"message": described["reason"]}}} if failed else {}),
        }

    def get_details_with_logs(self) -> dict[str, Any]:
        """The text of every log in the place of its path."""
        details = self.get_details()
        details["logFiles"] = {name: run_files.text(path) for name, path in details["logFiles"].items()}
        return details

    def get_properties(self) -> dict[str, str]:
        return dict(self._described().get("properties") or {})

    def get_tags(self) -> dict[str, str]:
        """Those of the job, and what its ranks tagged since."""
        return {**(self._described().get("tags") or {}), **self._tags_of_ranks()}

    tags = property(get_tags)
    properties = property(get_properties)

    def get_metrics(self, name: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """By name: a number that was logged once, a list of what was logged more often, in that order."""
        folder = self._metrics_folder()
        names = metrics.names(folder) if folder else []
        chosen = [one for one in names if name is None or one in (name, metrics.usable(name))]
        values = {one: [point.value for point in metrics.history(folder, one)] for one in chosen}
        return {one: many[0] if len(many) == 1 else many for one, many in values.items() if many}

    # its end

    def wait_for_completion(
        self,
        show_output: bool = False,
        wait_post_processing: bool = False,
        raise_on_error: bool = True,
    ) -> dict[str, Any]:
        """
        Block until it has ended; what ``get_details`` says then. ``show_output``: print the ranks' logs meanwhile.

        Raises JobFailedError with the one-sentence reason when it failed, unless ``raise_on_error`` is false.
        """
        from drumline.contract import status
        from drumline.contract.errors import JobFailedError

        outcome = self._stream() if show_output else self._wait()
        if raise_on_error and outcome.status == status.FAILED:
            raise JobFailedError(f"job {self.id} failed: {outcome.reason}", f"drumline job show -n {self.id}")
        return self.get_details()

    def cancel(self) -> None:
        """Ask for its end, and return."""
        from drumline.control.cancel import cancel

        with self._here():
            cancel(self.id)

    def complete(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a job ends as its ranks do."""

    def fail(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a job ends as its ranks do."""

    def flush(self, timeout_seconds: float = 300) -> None:
        """Nothing: what is logged is written at once."""

    def tag(self, key: str, value: str | None = None) -> None:
        text = str(value or "")
        self._edit({"tags": {**(self._described().get("tags") or {}), str(key): text}})
        path = self._tag_path(key)
        if str(key) in self._tags_of_ranks():
            write_whole(path, text)

    def set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self.tag(key, value)

    def add_properties(self, properties: dict[str, str]) -> None:
        known = self._described().get("properties") or {}
        self._edit({"properties": {**known, **{key: str(value) for key, value in properties.items()}}})

    # its family

    @property
    def parent(self) -> Run | None:
        name = self._described().get("parent_job_name")
        return Run(self.experiment, name) if name else None

    def get_children(self, **kwargs: Any) -> Iterator[Run]:
        """Newest first."""
        from drumline.control import jobs

        with self._here():
            names = jobs.names(archived=None, parent=self.id)
        return (Run(self.experiment, name) for name in names)

    # what the above is made of

    def _here(self) -> Any:
        """For the length of a ``with``, jobs are those of the run's workspace."""
        return self.experiment.workspace._here()

    def _folder(self) -> RunFolder:
        from drumline.control import jobs

        with self._here():
            return jobs.folder_of(self.id)

    def _described(self) -> dict[str, Any]:
        from drumline.control import jobs

        with self._here():
            return jobs.describe(self.id)

    def _outcome(self) -> Outcome:
        from drumline.control import jobs

        with self._here():
            return jobs.outcome_of(jobs.folder_of(self.id))

    def _edit(self, changes: dict[str, Any]) -> None:
        from drumline.control import jobs

        with self._here():
            jobs.edit(self.id, changes)

    def _metrics_folder(self) -> str:
        from drumline.control.follow import plan_of

        try:
            return metrics.run_dir_of(plan_of(self._folder()))
        except FileNotFoundError:  # A pipeline or a sweep has no plan.
            return ""

    def _artifacts_folder(self) -> str:
        return self._folder().path

    def _tag_path(self, key: Any) -> str:
        """Where a rank keeps a tag; empty when the job tracks elsewhere."""
        folder = self._metrics_folder()
        return folder and os.path.join(folder, "tags", metrics.usable(str(key).replace("/", "_")))

    def _tags_of_ranks(self) -> dict[str, str]:
        folder = os.path.join(self._metrics_folder() or os.devnull, "tags")
        try:
            names = os.listdir(folder)
        except OSError:
            return {}
        return {
            name: run_files.text(os.path.join(folder, name))
            for name in names
            if not name.startswith(("mlflow.", "drumline."))
        }

    def _wait(self) -> Outcome:
        from drumline.control.follow import wait_for_end

        with self._here():
            wait_for_end(self._folder())
            return self._outcome()

    def _stream(self) -> Outcome:
        from contextlib import suppress

        from drumline.contract.errors import JobFailedError

        with suppress(JobFailedError):
            self.experiment.workspace._client.jobs.stream(self.id)
        return self._outcome()

    def __repr__(self) -> str:
        return f"Run(Experiment: {self.experiment.name}, Id: {self.id})"
