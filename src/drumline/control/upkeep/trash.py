"""
Removal of folders: out of sight by one rename first, then for good. No link is followed.

``<root>/.removed/<id>`` holds what one removal took from a home. ``jobs.json`` in it names the jobs that are to go, and
where their metrics are, so that the next removal completes one that was killed. Where a folder of the home is a link to
another file system, as ``mlruns`` may be, what was in it goes to ``<folder>/.removed.trash/<id>``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from typing import TYPE_CHECKING

from drumline.contract.errors import NO_ROOM, DrumlineError
from drumline.contract.folder import RunFolder, home, private_folder, write_whole
from drumline.contract.mlflow_variables import run_id_of
from drumline.contract.outcome import fold
from drumline.control.jobs.job_outputs import read_variables
from drumline.linux import mounts
from drumline.store.index import Index
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TRASH = ".removed"
_TRASH_ELSEWHERE = ".removed.trash"
"""In a folder that is a link to another file system. MLflow takes no folder of such a name for an experiment."""

_FOLDERS_ELSEWHERE = ("jobs", "mlruns", "snapshots", "environments")
_JOURNAL = "jobs.json"
_ID = re.compile(r"[0-9a-f]{16}")


class TrashRemoval:
    """
    The content that one removal takes from a home and from the folders of its computes.

    Its methods are called while the caller holds the lock of the home, but for ``empty``. Each raises OSError. Where a
    disk has no room for the folder, content is removed at once, and a removal that is killed begins again.
    """

    def __init__(self, root: str) -> None:
        self._home = root
        self._id = os.urandom(8).hex()
        self._bins: dict[str, str] = {}

    def take_jobs(self, jobs: Iterable[RunFolder]) -> None:
        """Take run folders with the metrics of their jobs; a kill in between does not leave half of them."""
        chosen = list(jobs)
        if not chosen:
            return
        plan = [
            {
                "name": folder.name,
                "created": fold(folder.read_events()).created,
                "metrics": find_mlflow_run(folder),
            }
            for folder in chosen
        ]
        try:
            write_whole(os.path.join(self._bin(self._home), _JOURNAL), json.dumps({"jobs": plan}))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        for folder, entry in zip(chosen, plan, strict=True):
            self._take_job(folder, str(entry["metrics"]))
        Index(self._home).forget([folder.name for folder in chosen])

    def _take_job(self, folder: RunFolder, metrics: str) -> None:
        mounts.unmount_below(folder.path)
        link = os.path.join(self._home, "jobs", folder.name)
        self.take(folder.path, folder.root, "job")
        if os.path.islink(link):
            os.unlink(link)
        if metrics:
            self.take(metrics, folder.root, "metrics")

    def take(self, path: str, root: str, kind: str) -> None:
        """Take one file or folder of that root."""
        name = f"{kind}.{os.urandom(4).hex()}.{os.path.basename(path)[:80]}"
        try:
            os.rename(path, os.path.join(self._bin(root), name))
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in NO_ROOM:
                _remove(path)
            elif error.errno == errno.EXDEV:
                self._take_elsewhere(path, root, name)
            else:
                raise

    def _take_elsewhere(self, path: str, root: str, name: str) -> None:
        """Take what is on another file system than its home."""
        top = os.path.relpath(path, root).partition(os.sep)[0]
        if top in _FOLDERS_ELSEWHERE:
            with contextlib.suppress(OSError):
                os.rename(path, os.path.join(self._bin(os.path.join(root, top), _TRASH_ELSEWHERE), name))
                return
        # Below another link.
        _remove(path)

    def empty(self) -> list[OSError]:
        """Remove for good what was taken. Return what could not be removed; the next removal tries again."""
        return empty_bins(self._bins.values())

    @property
    def bins(self) -> list[str]:
        return list(self._bins.values())

    def _bin(self, root: str, folder: str = TRASH) -> str:
        if root not in self._bins:
            path = os.path.join(root, folder, self._id)
            private_folder(path)
            self._bins[root] = path
        return self._bins[root]


def complete_interrupted(where: str, roots: Collection[str]) -> list[str]:
    """
    Take the jobs that a killed removal had begun to take, and return the bins that are to be emptied.

    The caller holds the lock of the home. Raises OSError.
    """
    bins = []
    for root in roots:
        bins += _list_bins(root)
        for name in _FOLDERS_ELSEWHERE:
            bins += _list_bins(os.path.join(root, name), _TRASH_ELSEWHERE)
    journals = [RunFolder(path).read_json(os.path.join(path, _JOURNAL)) or {} for path in _list_bins(where)]
    lists = [jobs for journal in journals if isinstance(jobs := journal.get("jobs"), list)]
    for entry in [entry for jobs in lists for entry in jobs]:
        if not isinstance(entry, dict):
            continue
        name, created, metrics = str(entry.get("name")), entry.get("created"), str(entry.get("metrics") or "")
        if "/" in name or name in ("", ".", ".."):
            continue
        folder = RunFolder.for_job(name, where)
        again = TrashRemoval(where)
        if folder.exists() and fold(folder.read_events()).created == created:
            again.take_jobs([folder])
        elif not os.path.lexists(folder.path) and _is_metrics(metrics, name, roots):
            again.take(metrics, os.path.dirname(os.path.dirname(os.path.dirname(metrics))), "metrics")
        link = os.path.join(where, "jobs", name)
        if os.path.islink(link) and not os.path.exists(link):
            os.unlink(link)
        bins += again.bins
    return bins


def _is_metrics(path: str, name: str, roots: Collection[str]) -> bool:
    """Return whether a journal's path is that of the metrics of a job: it could have been edited."""
    experiment, run = os.path.split(path)
    above = os.path.dirname(experiment)
    is_below = any(above == os.path.join(root, "mlruns") for root in roots)
    is_plain = os.path.normpath(path) == path and not os.path.islink(experiment) and not os.path.islink(path)
    return is_below and is_plain and run == run_id_of(name)


def report_leftovers(problems: Sequence[OSError]) -> None:
    """Raise DrumlineError for files that could not be removed; what they were part of is gone all the same."""
    if problems:
        first = problems[0]
        what = f"not all files could be removed: {first.strerror}: {first.filename}"
        raise DrumlineError(what, f"what is left is in {os.path.join(home(), TRASH)}")


def empty_bins(bins: Iterable[str]) -> list[OSError]:
    """Remove bins, and return what could not be removed; another process may remove the same."""
    problems = []
    for path in bins:
        try:
            remove_tree(path)
        except OSError as error:
            problems.append(error)
        if os.path.basename(os.path.dirname(path)) == _TRASH_ELSEWHERE:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
    return problems


def _list_bins(root: str, folder: str = TRASH) -> list[str]:
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            return [
                one.path for one in entries if _ID.fullmatch(one.name) and one.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def find_mlflow_run(folder: RunFolder) -> str:
    """Return the folder of the job's metrics in its own home; empty if they are elsewhere."""
    run = mlflow_files.run_folder(folder.name, read_variables(folder))
    above = os.path.join(folder.root, "mlruns")
    is_ours = run is not None and os.path.dirname(os.path.dirname(run)) == above
    return run if run and is_ours and os.path.isdir(run) and not os.path.islink(run) else ""


def _remove(path: str) -> None:
    """Remove a file, or a folder as ``remove_tree``. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def remove_tree(path: str) -> None:
    """
    Remove a folder with all that is in it, folders that a job has made read-only too. Raises OSError.

    Every folder is opened below the one that holds it, and never through a link. Folders are moved up to the top one
    by one, so that no depth is too deep. Several processes may remove the same.
    """
    with contextlib.suppress(FileNotFoundError):
        while not _remove_once(path):
            pass


def _remove_once(path: str) -> bool:
    """Remove a folder; return False if another process has put something into it meanwhile."""
    top = _open_folder(path, None)
    try:
        while folders := _remove_files(top):
            for name in folders:
                _lift(name, top)
    finally:
        os.close(top)
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _open_folder(name: str, above: int | None) -> int:
    """Open a folder for its owner to change it. Raises OSError for a link."""
    known = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(known).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{known}", 0o700)
        return os.open(f"/proc/self/fd/{known}/.", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(known)


def _remove_files(folder: int) -> list[str]:
    """Remove everything in it but folders, whose names are returned."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders


def _lift(name: str, top: int) -> None:
    """Move the folders in ``name`` up to ``top``, and remove it. Raises OSError for a mount: it cannot be renamed."""
    with contextlib.suppress(FileNotFoundError):
        new = _move(name, top, top)
        folder = _open_folder(new, top)
        try:
            for inside in _remove_files(folder):
                with contextlib.suppress(FileNotFoundError):
                    _move(inside, folder, top)
        finally:
            os.close(folder)
        os.rmdir(new, dir_fd=top)


def _move(name: str, source: int, top: int) -> str:
    """Move a folder, which has to be writable for that, and return its new name."""
    os.close(_open_folder(name, source))
    new = os.urandom(8).hex()
    os.rename(name, new, src_dir_fd=source, dst_dir_fd=top)
    return new
