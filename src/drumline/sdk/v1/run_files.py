"""What a job left behind, by names such as ``outputs/model.pt``. Plain files alone: a job can leave links and pipes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

_FOLDERS = ("outputs", "logs", "user_logs", "system_logs")
_MOST_BYTES = 64 << 20


def of(root: str) -> dict[str, str]:
    """Name to path, in the order of the alphabet. ``root``: the run folder."""
    found = {}
    for part in _FOLDERS:
        for parent, _, names in os.walk(os.path.join(root, part)):
            for name in names:
                path = os.path.join(parent, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    found[os.path.relpath(path, root)] = path
    return dict(sorted(found.items()))


def place(root: str, name: str) -> str:
    """The path of a file or folder by such a name, or one below ``outputs``; empty when there is none."""
    inside = os.path.normpath(name)
    if os.path.isabs(inside) or inside.split("/")[0] == "..":
        return ""
    tried = (
        (inside, os.path.join("outputs", inside))
        if inside.split("/")[0] in _FOLDERS
        else ("outputs/" + inside,)
    )
    return next((path for one in tried if os.path.exists(path := os.path.join(root, one))), "")


def copy(source: str, name: str, target: str) -> None:
    """``target``: a path, or a folder, which has a "/" at its end where it is not there yet. Raises OSError."""
    if os.path.isdir(target) or target.endswith("/"):
        target = os.path.join(target, os.path.basename(name))
    import shutil

    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)


def without(name: str, prefix: str) -> str:
    """
    The name without the folders of a prefix, which may end in the middle of a name.

    >>> without("outputs/a/model.pt", "outputs"), without("outputs/a/model.pt", "outputs/a/mod")
    ('a/model.pt', 'model.pt')
    """
    whole = prefix.rstrip("/")
    folder = whole if name.startswith(f"{whole}/") else os.path.dirname(prefix)
    return os.path.relpath(name, folder or ".")


def text(path: str) -> str:
    """Empty for what is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""


class Files:
    """What a run has to do with files."""

    id: str
    experiment: Any

    def _folder(self) -> RunFolder:
        raise NotImplementedError

    def _here(self) -> Any:
        raise NotImplementedError

    def get_file_names(self) -> list[str]:
        """Of ``outputs``, ``logs``, ``user_logs`` and ``system_logs``, in the order of the alphabet."""
        return list(self._files())

    def download_file(self, name: str, output_file_path: str | None = None, **kwargs: Any) -> None:
        """To ``output_file_path``, which may be a folder, or to the file's own name here. Raises NotFoundError."""
        from drumline.contract.errors import NotFoundError

        files = self._files()
        source = files.get(name) or files.get(f"outputs/{name}")
        if source is None:
            raise NotFoundError(f"job {self.id} has no file {name!r}", "get_file_names() has those it has")
        copy(source, name, os.fspath(output_file_path or os.path.basename(name)))

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: list[str] | None = None,
        batch_size: int = 100,
        append_prefix: bool | None = True,
        **kwargs: Any,
    ) -> None:
        """Those whose name begins with ``prefix``; ``append_prefix``: below folders of their names."""
        for name in self.get_file_names():
            if name.startswith(prefix or ""):
                inside = name if append_prefix else without(name, prefix or "")
                self.download_file(name, os.path.join(output_directory or ".", inside))

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        """Copies of the logs; their paths."""
        target = destination or os.path.join("logs", self.id)
        for name in self._logs():
            self.download_file(name, os.path.join(target, name))
        return [os.path.join(target, name) for name in self._logs()]

    def register_model(
        self, model_name: str, model_path: str | None = None, tags: Any = None, **kwargs: Any
    ) -> Any:
        """
        A file or folder of the job under a name, as the next version; it stays where it is.

        ``model_path``: as ``outputs/model.pt``; None: ``model_name``, which may be below ``outputs`` too.
        Raises NotFoundError for one that is not there.
        """
        from drumline.contract.errors import NotFoundError
        from drumline.sdk.v1.model import Model

        path = place(self._folder().path, model_path or model_name)
        if not path:
            raise NotFoundError(f"job {self.id} has no file {model_path or model_name!r}")
        return Model.register(self.experiment.workspace, path, model_name, tags, **kwargs)

    def _logs(self) -> dict[str, str]:
        return {name: path for name, path in self._files().items() if name.startswith("user_logs/")}

    def _files(self) -> dict[str, str]:
        return of(self._folder().path)
