"""Snapshots of code, with the files and folders that a component includes."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError, describe_os_error
from drumline.contract.folder import home
from drumline.contract.words import format_count, format_size
from drumline.spec import paths
from drumline.staging.snapshot.partial_folder import copy_snapshot, snapshot_path
from drumline.staging.snapshot.take import LARGE_BYTES, Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def take(path: str, includes: Sequence[str] = (), is_slow: Callable[[int], None] | None = None) -> Snapshot:
    """
    Return a snapshot of the folder or file ``path``, empty for none, with those next to it. Raises PlanError.

    ``is_slow``: as of ``take_snapshot``.
    """
    return _take_with(path, includes) if includes else take_snapshot(path, home(), is_slow)


def _take_with(root: str, includes: Sequence[str]) -> Snapshot:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="drumline-code-") as above:
        merged = os.path.join(above, "code")
        try:
            if root:
                copy_snapshot(home(), take_snapshot(root, home()).digest, merged)
            else:
                os.mkdir(merged)
            for path in includes:
                _include(path, merged)
        except OSError as error:
            what = f"additional_includes: {describe_os_error(error)}"
            raise PlanError(what, path="additional_includes") from error
        return take_snapshot(merged, home(), known_as="\0".join((root, *includes)))


def _include(path: str, merged: str) -> None:
    """Lay a file or folder next to the code under its own name, as Azure's additional_includes do."""
    if paths.is_remote(path) or not os.path.exists(path):
        raise PlanError(f"additional_includes: there is no {path}", path="additional_includes")
    target = os.path.join(merged, os.path.basename(path.rstrip("/")))
    if os.path.lexists(target):
        what = f"additional_includes: {os.path.basename(target)!r} is in the code already"
        raise PlanError(what, path="additional_includes")
    if os.path.isdir(path):
        # As of code: links are followed within it alone, and what an ignore file names is left out.
        copy_snapshot(home(), take_snapshot(path, home()).digest, target)
    else:
        shutil.copy2(path, target)


def warnings_of(taken: Snapshot, root: str) -> list[str]:
    """Return what to tell the user about the code that was taken. ``root``: the home that has the snapshot."""
    warnings = [f"code: left out {path}" for path in taken.skipped]
    if taken.size_bytes > LARGE_BYTES:
        warnings.append(
            f"code: {format_size(taken.size_bytes)} in {format_count(taken.file_count, 'file')}; "
            "a .amlignore file says what to leave out"
        )
    stored = snapshot_path(root, taken.digest)
    kept = [f"{name}/" for name in ("outputs", "logs") if _has_files(os.path.join(stored, name))]
    if kept:
        what = f"code: the files in {' and '.join(kept)} become artifacts of the job, as on Azure"
        warnings.append(f"{what}; a .amlignore file can leave them out")
    return warnings


def _has_files(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False
