"""Metrics, tags and files that a run of v1 logs. A problem with one is a warning: training continues."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from drumline.contract.errors import UsageError
from drumline.contract.folder import private_folder
from drumline.tracking import metrics


class RunLog:
    """The methods of a run that log, to ``_metrics_folder`` and ``_artifacts_folder``; empty: elsewhere."""

    def _metrics_folder(self) -> str:
        raise NotImplementedError

    def _artifacts_folder(self) -> str:
        raise NotImplementedError

    def log(self, name: str, value: Any, description: str = "", step: int | None = None) -> None:
        """
        Log a number as a metric, a list of numbers as several values of one, and text as a tag.

        step: None: how often this process has logged it.
        """
        number = _to_number(value)
        if number is not None:
            self._metric(name, number, step)
        elif isinstance(value, (list, tuple)):
            self.log_list(name, value)
        else:
            self.tag(name, str(value))

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        for item in value:
            self.log(name, item)

    def log_row(self, name: str, description: str | None = None, **kwargs: Any) -> None:
        """Log each column as a metric, ``name/column``."""
        for column, value in kwargs.items():
            self.log(f"{name}/{column}", value)

    def log_table(self, name: str, value: dict[str, Any], description: str = "") -> None:
        """Log as ``log_row``; each column may be a list."""
        for column, values in value.items():
            self.log(f"{name}/{column}", values)

    def log_image(self, name: str, path: Any = None, plot: Any = None, description: str = "") -> None:
        """Copy the file, or matplotlib's ``plot`` as PNG, to the job's outputs. Raises UsageError for neither."""
        if path is not None:
            end = os.path.splitext(os.fspath(path))[1] or ".png"
            self.upload_file(name if name.endswith(end) else name + end, path)
        elif plot is not None:
            target = self._place(name if name.endswith(".png") else f"{name}.png")
            if target:
                plot.savefig(target)
        else:
            raise UsageError("log_image needs a path or a plot")

    def log_confusion_matrix(self, name: str, value: Any, description: str = "") -> None:
        """Write it as JSON to the job's outputs; so are the other records of Azure's charts."""
        import json

        target = self._place(f"{name}.json")
        if target:
            with open(target, "w", encoding="utf-8") as file:
                file.write(value if isinstance(value, str) else json.dumps(value, default=str))

    log_accuracy_table = log_predictions = log_residuals = log_confusion_matrix

    def upload_file(
        self, name: str, path_or_stream: Any = None, datastore_name: str | None = None, **kwargs: Any
    ) -> None:
        """
        Copy a file to the job's outputs as ``name``; ``outputs/...`` and ``logs/...`` are those folders.

        Raises UsageError for a name that leads out of them, OSError for a file that cannot be read.
        """
        import shutil

        target = self._place(name)
        source: Any = path_or_stream if path_or_stream is not None else kwargs.get("path")
        if not target:
            return
        if not hasattr(source, "read") and os.path.exists(target) and os.path.samefile(source, target):
            return
        # Several ranks may bring the same file.
        partial = f"{target}.{os.urandom(4).hex()}.partial"
        try:
            if hasattr(source, "read"):
                data = source.read()
                with open(partial, "wb") as file:
                    file.write(data.encode() if isinstance(data, str) else data)
            else:
                shutil.copyfile(source, partial)
            os.replace(partial, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise

    def upload_files(self, names: list[str], paths: list[Any], **kwargs: Any) -> None:
        if len(names) != len(paths):
            raise UsageError("upload_files needs a path for each name")
        for name, path in zip(names, paths):
            self.upload_file(name, path)

    def upload_folder(self, name: str, path: Any, datastore_name: str | None = None) -> None:
        """Copy every plain file below ``path``."""
        for parent, _, files in os.walk(path):
            for file in files:
                source = os.path.join(parent, file)
                if os.path.isfile(source):
                    self.upload_file(os.path.join(name, os.path.relpath(source, path)), source)

    def tag(self, key: str, value: str | None = None) -> None:
        raise NotImplementedError

    def _metric(self, name: str, value: float, step: int | None) -> None:
        folder, usable = self._metrics_folder(), metrics.clean_name(str(name))
        if step is None:
            step = _logged.get((folder, usable), 0)
            _logged[folder, usable] = step + 1
        if usable != name:
            warn_once(f"metric {name!r} is stored as {usable!r}: MLflow does not allow its name")
        try:
            if folder:
                metrics.log_value(folder, usable, value, int(step))
            else:
                _log_to_server(usable, value, int(step))
        except (OSError, ValueError, OverflowError) as error:
            warn_once(f"metric {name!r} could not be logged: {error}")

    def _place(self, name: str) -> str:
        """Return the path for a file of that name, its folder made; empty where artifacts are not stored."""
        root = self._artifacts_folder()
        if not root:
            return ""
        inside = os.path.normpath(name)
        if os.path.isabs(inside) or inside == ".." or inside.startswith("../") or "\0" in name:
            raise UsageError(f"a file cannot have the name {name!r}", "use a path inside the job's outputs")
        if inside.split("/")[0] not in ("outputs", "logs"):
            inside = os.path.join("outputs", inside)
        target = os.path.join(root, inside)
        private_folder(os.path.dirname(target))
        return target


def _log_to_server(name: str, value: float, step: int) -> None:
    """Log to the MLflow server that the job has chosen."""
    try:
        mlflow = import_module("mlflow")
    except ImportError:
        warn_once("metrics are not stored: the job tracks elsewhere, and mlflow is not installed")
        return
    try:
        mlflow.log_metric(name, value, step=step)
    except Exception as error:  # noqa: BLE001 - training continues with any answer of the server
        warn_once(f"metric {name!r} could not be logged: {error}")


def _to_number(value: Any) -> float | None:
    """Convert a number, or a scalar of NumPy or PyTorch; None for anything else."""
    if isinstance(value, (str, bytes, list, tuple, dict)) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


_logged: dict[tuple[str, str], int] = {}
"""How often this process has logged a metric without a step: scripts may ask for the context anew each time."""

_warned: set[str] = set()


def warn_once(what: str) -> None:
    if what not in _warned:
        _warned.add(what)
        print(f"warning: {what}", file=sys.stderr)
