"""Files of a job, by names such as ``outputs/model.pt``. Plain files alone: a job can leave links and pipes."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.contract.folder import open_plain

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

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
