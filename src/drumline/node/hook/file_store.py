"""
Whole files for MLflow's file store: its own ``write_to`` and ``write_yaml`` empty a file before they fill it, and of
several ranks that log the same parameter at once one finds it empty and fails.

Put into ``mlflow.store.tracking.file_store`` by ``sitecustomize`` when a rank imports that. As careful as that: the
standard library alone, and where anything is otherwise than it was in MLflow 1 to 3, MLflow's own way.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def put_into(module: ModuleType) -> None:
    for name, make in (("write_to", _writer), ("write_yaml", _yaml_writer)):
        own = getattr(module, name, None)
        if callable(own):
            setattr(module, name, make(own))


def _writer(own: Any) -> Any:
    def write_to(filename: Any, data: Any) -> Any:
        try:
            _write(os.fspath(filename), data.encode("utf-8"))
        except Exception:
            return own(filename, data)
        return None

    return write_to


def _write(path: str, content: bytes) -> None:
    """Write a file so that it appears with its content, and is never empty. Modes are those of MLflow itself."""
    if not os.path.exists(path):
        try:
            descriptor = os.open(
                os.path.dirname(path) or ".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666
            )
            try:
                if os.write(descriptor, content) == len(content):
                    # With a folder, whichever: else the link would be to the link in /proc.
                    os.link("/proc/self/fd/%d" % descriptor, path, src_dir_fd=0, follow_symlinks=True)
                    return
            finally:
                os.close(descriptor)
        except (OSError, AttributeError):
            pass  # Another rank was faster, or the file system has no such files.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError("not all was written")
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _yaml_writer(own: Any) -> Any:
    def write_yaml(root: Any, file_name: Any, data: Any, overwrite: Any = False, **rest: Any) -> Any:
        partial = ""
        if overwrite and str(file_name).endswith(".yaml"):
            try:
                name = ".%d.%s.yaml" % (os.getpid(), os.urandom(4).hex())
                partial = os.path.join(root, name)
                own(root, name, data, overwrite=True, **rest)
                os.replace(partial, os.path.join(root, file_name))
                return None
            except Exception:
                try:
                    os.unlink(partial)
                except OSError:
                    pass
        return own(root, file_name, data, overwrite=overwrite, **rest)

    return write_yaml
