"""The run that a process is part of: what a training script logs to."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from drumline.azure import NotSupportedError
from drumline.contract.errors import UsageError
from drumline.contract.folder import MARKER, RunFolder, private_folder, write_whole
from drumline.sdk.v1.runs.logging import RunLog, warn_once
from drumline.sdk.v1.runs.run import Run
from drumline.tracking import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.sdk.v1.workspace import Workspace


def open_context(*, allow_offline: bool = True) -> Any:
    """Return the run of this process. Raises UsageError outside a job unless ``allow_offline``."""
    if os.environ.get(MARKER) and os.environ.get("AZUREML_RUN_ID"):
        return RankRun(os.environ)
    if allow_offline:
        return OfflineRun()
    raise UsageError("this process is not a rank of a job", "get_context() prints what is logged instead")


class RanksExperiment:
    """``Experiment`` as a rank needs it; its workspace is made when it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def workspace(self) -> Workspace:
        # A rank that only logs does without the client that a workspace needs.
        from drumline.sdk.v1.workspace import Workspace

        return Workspace.of_rank()


class RankRun(Run):
    """The job whose rank this is. Metrics, tags and files go straight into its folders."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.id = environ["AZUREML_RUN_ID"]
        self.experiment: Any = RanksExperiment(environ.get("AZUREML_ARM_PROJECT_NAME", "Default"))

    @property
    def input_datasets(self) -> dict[str, str]:
        """Return the path of each named input."""
        return self._collect_paths("AZURE_ML_INPUT_")

    @property
    def output_datasets(self) -> dict[str, str]:
        return self._collect_paths("AZURE_ML_OUTPUT_")

    def tag(self, key: str, value: str | None = None) -> None:
        path = self._tag_path(key)
        if not path:
            warn_once("tags are not stored: the job tracks elsewhere")
            return
        try:
            private_folder(os.path.dirname(path))
            write_whole(path, str(value if value is not None else ""))
        except OSError as error:
            warn_once(f"tag {key!r} could not be set: {error}")

    def child_run(self, name: str | None = None, **kwargs: Any) -> ChildRun:
        """Return a run whose metrics, tags and files are the job's, below its name."""
        return ChildRun(self._environ, name or "child")

    def get_secret(self, name: str) -> str:
        """Raise NotSupportedError: a job gets secrets as environment variables."""
        raise NotSupportedError("get_secret")

    def _collect_paths(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): path for name, path in self._environ.items() if name.startswith(prefix)
        }

    def _here(self) -> Any:
        return nullcontext()

    def _folder(self) -> RunFolder:
        return RunFolder(self._environ[MARKER])

    def _metrics_folder(self) -> str:
        return metrics.run_dir_here(self._environ)


class ChildRun(RankRun):
    """What ``child_run`` returns, which a ``with`` may take: azureml has a run of its own for each."""

    def __init__(self, environ: Mapping[str, str], prefix: str) -> None:
        super().__init__(environ)
        self._prefix = prefix

    def __enter__(self) -> ChildRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.complete()

    def child_run(self, name: str | None = None, **kwargs: Any) -> ChildRun:
        return ChildRun(self._environ, f"{self._prefix}/{name or 'child'}")

    def tag(self, key: str, value: str | None = None) -> None:
        super().tag(f"{self._prefix}.{key}".replace("/", "."), value)

    def _metric(self, name: str, value: float, step: int | None) -> None:
        super()._metric(f"{self._prefix}/{name}", value, step)

    def _place(self, name: str) -> str:
        return super()._place(f"{self._prefix}/{name}")


class OfflineRun(RunLog):
    """A run outside a job: it prints what is logged, as azureml does, and has no experiment."""

    def __init__(self) -> None:
        text = os.urandom(16).hex()
        sizes = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        self.id = "OfflineRun_" + "-".join(sizes)
        self.name = self._run_id = self.id
        self.parent = None
        self.input_datasets: dict[str, str] = {}
        self.output_datasets: dict[str, str] = {}

    def log(self, name: str, value: Any, description: str = "", step: int | None = None) -> None:
        self._emit("scalar", name, value)

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        self._emit("list", name, value)

    def log_row(self, name: str, description: str | None = None, **kwargs: Any) -> None:
        self._emit("row", name, kwargs)

    def log_table(self, name: str, value: dict[str, Any], description: str = "") -> None:
        self._emit("table", name, value)

    def log_image(self, name: str, path: Any = None, plot: Any = None, description: str = "") -> None:
        self._emit("image", name, path or plot)

    def tag(self, key: str, value: str | None = None) -> None:
        print(f"Attempted to set tag {key}:\n{value}")

    def get_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}

    def get_tags(self) -> dict[str, str]:
        return {}

    def get_status(self) -> str:
        return "Running"

    def set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self.tag(key, value)

    def get_file_names(self) -> list[str]:
        return []

    def complete(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no job."""

    fail = complete

    def add_properties(self, properties: dict[str, str]) -> None:
        """Do nothing: there is no job."""

    def cancel(self) -> None:
        """Do nothing: there is no job."""

    def flush(self, timeout_seconds: float = 300) -> None:
        """Do nothing: what is logged is printed at once."""

    def _emit(self, kind: str, name: str, value: Any) -> None:
        print(f"Attempted to log {kind} metric {name}:\n{value}")

    def _artifacts_folder(self) -> str:
        return ""

    def _metrics_folder(self) -> str:
        return ""
