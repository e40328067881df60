"""
A run of v1: a job, and what it logged.

Ranks import this too, for ``Run.get_context()``: what only a submitter needs is imported where it is used.
Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.run.run
"""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import JobFailedError, NotFoundError
from drumline.contract.folder import open_plain, write_whole
from drumline.sdk import v1
from drumline.sdk.v1.runs.logging import RunLog
from drumline.tracking import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome


_FOLDERS = ("outputs", "logs", "user_logs", "system_logs")
_MAX_READ_BYTES = 64 << 20


def list_files(root: str) -> dict[str, str]:
    """Return paths by name, in alphabetical order. ``root``: the run folder."""
    found = {}
    for part in _FOLDERS:
        for parent, _, names in os.walk(os.path.join(root, part)):
            for name in names:
                path = os.path.join(parent, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    found[os.path.relpath(path, root)] = path
    return dict(sorted(found.items()))


def find_path(root: str, name: str) -> str:
    """Return the path of a file or folder by its name, or one below ``outputs``; empty when there is none."""
    inside = os.path.normpath(name)
    if os.path.isabs(inside) or inside.split("/")[0] == "..":
        return ""
    tried = (
        (inside, os.path.join("outputs", inside))
        if inside.split("/")[0] in _FOLDERS
        else ("outputs/" + inside,)
    )
    return next((path for one in tried if os.path.exists(path := os.path.join(root, one))), "")


def copy_file(source: str, name: str, target: str) -> None:
    """Copy to ``target``: a path, or a folder, with a "/" at its end if it does not exist yet. Raises OSError."""
    if os.path.isdir(target) or target.endswith("/"):
        target = os.path.join(target, os.path.basename(name))
    from drumline.control.jobs.download import copy, copy_link

    (copy_link if os.path.islink(source) else copy)(source, os.path.abspath(target))


def strip_folders(name: str, prefix: str) -> str:
    """
    Return the name without the folders of a prefix, which may end in the middle of a name.

    >>> strip_folders("outputs/a/model.pt", "outputs"), strip_folders("outputs/a/model.pt", "outputs/a/mod")
    ('a/model.pt', 'model.pt')
    """
    whole = prefix.rstrip("/")
    folder = whole if name.startswith(f"{whole}/") else os.path.dirname(prefix)
    return os.path.relpath(name, folder or ".")


def read_text(path: str) -> str:
    """Return the text of a plain file; empty for anything else."""
    try:
        with io.TextIOWrapper(open_plain(path), encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_READ_BYTES)
    except OSError:
        return ""


class RunFiles:
    """The methods of a run that are about files."""

    id: str
    experiment: Any

    def _folder(self) -> RunFolder:
        raise NotImplementedError

    def _here(self) -> Any:
        raise NotImplementedError

    def get_file_names(self) -> list[str]:
        """List the files in ``outputs``, ``logs``, ``user_logs`` and ``system_logs``, in alphabetical order."""
        return list(self._files())

    def download_file(self, name: str, output_file_path: str | None = None, **kwargs: Any) -> None:
        """Copy a file to ``output_file_path``, which may be a folder; default: its own name. Raises NotFoundError."""
        files = self._files()
        source = files.get(name) or files.get(f"outputs/{name}")
        if source is None:
            raise NotFoundError(f"job {self.id} has no file {name!r}", "get_file_names() lists its files")
        copy_file(source, name, os.fspath(output_file_path or os.path.basename(name)))

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: list[str] | None = None,
        batch_size: int = 100,
        append_prefix: bool | None = True,
        **kwargs: Any,
    ) -> None:
        """Copy files whose name begins with ``prefix``; ``append_prefix``: below folders of their names."""
        for name in self.get_file_names():
            if name.startswith(prefix or ""):
                inside = name if append_prefix else strip_folders(name, prefix or "")
                self.download_file(name, os.path.join(output_directory or ".", inside))

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        """Copy the logs and return their paths."""
        target = destination or os.path.join("logs", self.id)
        for name in self._logs():
            self.download_file(name, os.path.join(target, name))
        return [os.path.join(target, name) for name in self._logs()]

    def register_model(
        self, model_name: str, model_path: str | None = None, tags: Any = None, **kwargs: Any
    ) -> Any:
        """
        Register a file or folder of the job as the next version of a model; it stays where it is.

        ``model_path``: as ``outputs/model.pt``; None: ``model_name``, which may be below ``outputs`` too.
        Raises NotFoundError for one that is not there.
        """
        from drumline.sdk.v1.assets.model import Model

        path = find_path(self._folder().path, model_path or model_name)
        if not path:
            raise NotFoundError(f"job {self.id} has no file {model_path or model_name!r}")
        return Model.register(self.experiment.workspace, path, model_name, tags, **kwargs)

    def _logs(self) -> dict[str, str]:
        return {name: path for name, path in self._files().items() if name.startswith("user_logs/")}

    def _files(self) -> dict[str, str]:
        return list_files(self._folder().path)


class Run(RunLog, RunFiles):
    """
    The job ``run_id`` of an experiment.

    Raises NotFoundError, in the constructor too, for a job that is not there.
    """

    def __init__(self, experiment: Any, run_id: str, outputs: Any = None, **kwargs: Any) -> None:
        self.experiment = experiment
        self.id = run_id
        self._folder()

    @staticmethod
    def get_context(allow_offline: bool = True, **kwargs: Any) -> Run:
        """
        Return the run of this process: the job whose rank it is, else one that prints what is logged.

        Raises UsageError outside a job unless ``allow_offline``.
        """
        found: Run = v1.open_context(allow_offline=allow_offline)
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
        return str(self._describe()["display_name"])

    @display_name.setter
    def display_name(self, value: str) -> None:
        self._edit({"display_name": value})

    @property
    def status(self) -> str:
        return self.get_status()

    def get_status(self) -> str:
        """Return ``Queued``, ``Running``, ``Completed``, ``Failed``, ``Canceled`` and the like."""
        return str(self._outcome().status)

    def get_portal_url(self) -> str:
        """Return the run folder, as ``file://``."""
        return f"file://{self._folder().path}"

    def get_details(self) -> dict[str, Any]:
        """Describe the run with azureml's keys; times are RFC 3339 in UTC."""
        described = self._describe()
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
        """Describe the run with the text of every log in place of its path."""
        details = self.get_details()
        details["logFiles"] = {name: read_text(path) for name, path in details["logFiles"].items()}
        return details

    def get_properties(self) -> dict[str, str]:
        return dict(self._describe().get("properties") or {})

    def get_tags(self) -> dict[str, str]:
        """Return the tags of the job, and those that its ranks have set since."""
        return {**(self._describe().get("tags") or {}), **self._tags_of_ranks()}

    tags = property(get_tags)
    properties = property(get_properties)

    def get_metrics(self, name: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return by name a number that was logged once, or the list of numbers in the order they were logged."""
        folder = self._metrics_folder()
        names = metrics.list_names(folder) if folder else []
        chosen = [one for one in names if name is None or one in (name, metrics.clean_name(name))]
        values = {one: [point.value for point in metrics.read_history(folder, one)] for one in chosen}
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
        outcome = self._stream() if show_output else self._wait()
        if raise_on_error and outcome.status == status.FAILED:
            raise JobFailedError(f"job {self.id} failed: {outcome.reason}", f"drumline job show -n {self.id}")
        return self.get_details()

    def cancel(self) -> None:
        """Ask for its end, and return."""
        from drumline.control.jobs.ending import cancel

        with self._here():
            cancel(self.id)

    def complete(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a job ends as its ranks do."""

    fail = complete

    def flush(self, timeout_seconds: float = 300) -> None:
        """Do nothing: what is logged is written at once."""

    def tag(self, key: str, value: str | None = None) -> None:
        text = str(value or "")
        self._edit({"tags": {**(self._describe().get("tags") or {}), str(key): text}})
        path = self._tag_path(key)
        if str(key) in self._tags_of_ranks():
            write_whole(path, text)

    def set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self.tag(key, value)

    def add_properties(self, properties: dict[str, str]) -> None:
        known = self._describe().get("properties") or {}
        self._edit({"properties": {**known, **{key: str(value) for key, value in properties.items()}}})

    # its family

    @property
    def parent(self) -> Run | None:
        name = self._describe().get("parent_job_name")
        return Run(self.experiment, name) if name else None

    def get_children(self, **kwargs: Any) -> Iterator[Run]:
        """List the jobs that this one has started, newest first."""
        from drumline.control.jobs import job_folders

        with self._here():
            names = job_folders.names(archived=None, parent=self.id)
        return (Run(self.experiment, name) for name in names)

    # what the above is made of

    def _here(self) -> Any:
        """Look for jobs in the run's workspace, for the length of a ``with``."""
        return self.experiment.workspace._here()

    def _folder(self) -> RunFolder:
        from drumline.control.jobs import lookup

        with self._here():
            return lookup.folder_of(self.id)

    def _describe(self) -> dict[str, Any]:
        from drumline.control.facts import description

        with self._here():
            return description.show_job(self.id, is_whole=True)

    def _outcome(self) -> Outcome:
        from drumline.control.jobs import lookup, recovery

        with self._here():
            return recovery.recover(lookup.folder_of(self.id))

    def _edit(self, changes: dict[str, Any]) -> None:
        from drumline.control.jobs import job_folders

        with self._here():
            job_folders.edit(self.id, changes)

    def _metrics_folder(self) -> str:
        from drumline.contract.plan import Plan

        try:
            return metrics.run_dir_of(Plan.read(self._folder().plan))
        except FileNotFoundError:  # A pipeline or a sweep has no plan.
            return ""

    def _artifacts_folder(self) -> str:
        return self._folder().path

    def _tag_path(self, key: Any) -> str:
        """Return the file in which a rank keeps a tag; empty when the job logs to a server."""
        folder = self._metrics_folder()
        return folder and os.path.join(folder, "tags", metrics.clean_name(str(key).replace("/", "_")))

    def _tags_of_ranks(self) -> dict[str, str]:
        folder = os.path.join(self._metrics_folder() or os.devnull, "tags")
        try:
            names = os.listdir(folder)
        except OSError:
            return {}
        return {
            name: read_text(os.path.join(folder, name))
            for name in names
            if not name.startswith(("mlflow.", "drumline."))
        }

    def _wait(self) -> Outcome:
        from drumline.control.jobs.ending import wait_for_end

        with self._here():
            wait_for_end(self._folder())
            return self._outcome()

    def _stream(self) -> Outcome:
        with suppress(JobFailedError):
            self.experiment.workspace._client.jobs.stream(self.id)
        return self._outcome()

    def __repr__(self) -> str:
        return f"Run(Experiment: {self.experiment.name}, Id: {self.id})"


# The run of a hyperparameter search of v1.
#
# Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.hyperdrive.hyperdriverun


class HyperDriveRun(Run):
    """The job of a search; its trials are runs."""

    def get_best_run_by_primary_metric(self, **kwargs: Any) -> Run | None:
        """Return the best trial; None while no trial has a value of the metric."""
        best = self._describe().get("best_trial") or {}
        return Run(self.experiment, str(best["trial"])) if best.get("trial") else None

    def get_children_sorted_by_primary_metric(
        self, top: int = 0, reverse: bool = False, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """List trials, the best first, or last; ``top``: how many, 0: all."""
        ranked = sorted(self._trials(), key=lambda trial: (trial.get("rank") is None, trial.get("rank") or 0))
        chosen = (ranked[::-1] if reverse else ranked)[: top or None]
        return [
            {
                "run_id": trial.get("trial"),
                "hyperparameters": json.dumps(trial.get("params") or {}),
                "best_primary_metric": trial.get("metric"),
                "status": trial.get("status"),
            }
            for trial in chosen
        ]

    def get_hyperparameters(self) -> dict[str, str]:
        """Return the parameters by trial, as JSON."""
        return {str(one.get("trial")): json.dumps(one.get("params") or {}) for one in self._trials()}

    def get_metrics(self, name: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return by trial what it has logged."""
        return {run.id: run.get_metrics(name) for run in self.get_children()}

    def _trials(self) -> list[dict[str, Any]]:
        return [one for one in self._describe().get("trials") or () if one.get("trial")]
