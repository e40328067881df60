"""
The runs below a job's in the file store: those that its ranks created themselves, as Lightning's logger does.

A store may hold the runs of ten thousand jobs, and a list asks for the children of a hundred: what is known of an
experiment is shared by all of them, and only a folder that has changed is listed again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict

from drumline.contract.folder import open_plain
from drumline.contract.mlflow import PARENT_TAG
from drumline.contract.record import NamedTuple

_MOST_ENTRIES = 20_000
_MOST = 100
_LONGEST_TAG = 5000
_CLOCK_SLACK_S = 60.0
"""By which clocks of a file system and of this machine may differ."""

_NEW_S = 60.0
"""For so long after a run's folder has changed it may still get a parent, and after an experiment's a run."""

_AGAIN_S = 60.0
"""After so long all runs are looked at again."""

_MOST_EXPERIMENTS = 1000


class ChildRuns:
    """The runs created after ``since``, in seconds since 1970."""

    def __init__(self, run_dir: str, since: float) -> None:
        self._run_id = os.path.basename(run_dir)
        self._root = os.path.dirname(os.path.dirname(run_dir))
        self._since = since - _CLOCK_SLACK_S
        self.found: dict[str, str] = {}
        """Names by folder."""

    def look(self) -> None:
        """Find new runs. Never raises: unreadable runs are left out."""
        for experiment in _list_folders(self._root, _MOST_ENTRIES):
            for child in _find_experiment(experiment.path).list_children(self._run_id, self._since):
                if len(self.found) >= _MOST:
                    return
                if child.changed >= self._since:
                    self.found.setdefault(child.path, child.name)


class _Child(NamedTuple):
    """A run below another one. ``changed``: when its folder did, in seconds since 1970."""

    path: str
    name: str
    changed: float


class _Names:
    """Names that are only looked up, each as the 64 bits of its hash: a set of strings takes ten times as much."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def __contains__(self, name: str) -> bool:
        at = bisect_left(self._hashes, hash(name))
        return at < len(self._hashes) and self._hashes[at] == hash(name)

    def add(self, name: str) -> None:
        self._hashes.insert(bisect_left(self._hashes, hash(name)), hash(name))


class _Experiment:
    """The runs of an experiment that have a parent. For several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._changed = 0
        self._is_settled = False
        self._settled = _Names()
        self._others: dict[str, float] = {}
        """When the folders of runs changed of which no parent is known, such as those of before the jobs asked for."""
        self._children: dict[str, list[_Child]] = {}
        self._began = time.monotonic()

    def list_children(self, run_id: str, since: float) -> list[_Child]:
        """Return runs below another one; those that changed after ``since`` alone are opened."""
        with self._lock:
            if time.monotonic() - self._began > _AGAIN_S:
                self._forget()
            try:
                changed = os.stat(self._path).st_mtime_ns
            except OSError:
                return []
            if changed != self._changed or not self._is_settled:
                self._changed = changed
                self._is_settled = time.time() - changed / 1e9 > _NEW_S
                self._list()
            looked_at = [name for name, changed_s in self._others.items() if changed_s >= since]
            for name in looked_at:
                self._look_at(name)
            if looked_at:
                # One from which most names were taken is as large as before.
                self._others = dict(self._others)
            return list(self._children.get(run_id, ()))

    def _list(self) -> None:
        for entry in _list_folders(self._path, _MOST_ENTRIES):
            if entry.name not in self._settled and entry.name not in self._others:
                with contextlib.suppress(OSError):
                    self._others[entry.name] = entry.stat(follow_symlinks=False).st_mtime

    def _look_at(self, name: str) -> None:
        path = f"{self._path}/{name}"
        parent = _read_tag(path, PARENT_TAG)
        if parent:
            child = _Child(path, _read_tag(path, "mlflow.runName") or name, self._others[name])
            self._children.setdefault(parent, []).append(child)
        if parent or time.time() - self._others[name] > _NEW_S:
            del self._others[name]
            self._settled.add(name)


_experiments: OrderedDict[str, _Experiment] = OrderedDict()
_experiments_lock = threading.Lock()


def _find_experiment(path: str) -> _Experiment:
    with _experiments_lock:
        found = _experiments.pop(path, None) or _Experiment(path)
        _experiments[path] = found
        if len(_experiments) > _MOST_EXPERIMENTS:
            _experiments.popitem(last=False)
        return found


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
    path = f"{run_dir}/tags/{name}"
    # Nearly none of ten thousand runs has one: an error for each would take three times as long.
    if not os.access(path, os.F_OK):
        return ""
    try:
        with open_plain(path) as file:
            return file.read(_LONGEST_TAG).decode("utf-8", "replace").strip()
    except OSError:
        return ""
