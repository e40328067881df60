"""The runs below a job's in the file store: those that its ranks created themselves, as Lightning's logger does."""

from __future__ import annotations

import os

from drumline.contract.mlflow import PARENT_TAG
from drumline.tracking.metrics import open_plain_file

_MOST_ENTRIES = 20_000
_MOST = 100
_LONGEST_TAG = 5000
_CLOCK_SLACK_S = 60.0
"""By which clocks of a file system and of this machine may differ."""


class ChildRuns:
    """The runs created after ``since``, in seconds since 1970. Each ``look`` opens only new ones."""

    def __init__(self, run_dir: str, since: float) -> None:
        self._run_id = os.path.basename(run_dir)
        self._root = os.path.dirname(os.path.dirname(run_dir))
        self._since = since - _CLOCK_SLACK_S
        self._looked_at: set[str] = set()
        self.found: dict[str, str] = {}
        """Names by folder."""

    def look(self) -> None:
        """Find new runs. Never raises: unreadable runs are left out."""
        left = _MOST_ENTRIES
        for experiment in _list_folders(self._root, left):
            for entry in _list_folders(experiment.path, left):
                left -= 1
                if left < 0 or len(self.found) >= _MOST:
                    return
                if entry.path not in self._looked_at and entry.name != self._run_id:
                    self._look_at(entry)

    def _look_at(self, entry: os.DirEntry[str]) -> None:
        try:
            if entry.stat(follow_symlinks=False).st_mtime < self._since:
                self._looked_at.add(entry.path)
                return
        except OSError:
            return
        parent = _read_tag(entry.path, PARENT_TAG)
        if parent:
            self._looked_at.add(entry.path)
        if parent == self._run_id:
            self.found[entry.path] = _read_tag(entry.path, "mlflow.runName") or entry.name


def _list_folders(path: str, most: int) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if len(found) >= most:
                    break
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    found.append(entry)
    except OSError:
        pass
    return found


def _read_tag(run_dir: str, name: str) -> str:
    """Return a tag of a run; empty if it has none. Reads plain files alone."""
    try:
        with open_plain_file(os.path.join(run_dir, "tags", name)) as file:
            return file.read(_LONGEST_TAG).decode("utf-8", "replace").strip()
    except OSError:
        return ""
