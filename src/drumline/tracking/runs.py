"""
The run of a job, in MLflow's file store or at a team's server, which exists before the ranks start.

A server gives the run its id, so it is asked when the job starts, by a process of its own that can be left alone:
``python -m drumline.tracking``. Where it does not answer, the metrics go to the file store, and the job says so:
a training must not fail because of what only watches it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from drumline.contract.folder import open_plain
from drumline.contract.mlflow_variables import ALLOW, PARENT_TAG, is_server, run_id_of, variables_of
from drumline.contract.record import NamedTuple
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


_SERVER_LIMIT_S = 10
"""Of all that is asked of a server when a job starts, or ends."""


NAME = "Tracking"
"""Of the service, as Azure calls it."""


class RunLocation(NamedTuple):
    """The location of a run. All empty: at a place of MLflow's own, which is not read here."""

    run_dir: str = ""
    """In the file store."""

    server: str = ""
    """Its address, else."""

    run_id: str = ""
    warning: str = ""
    """Why it is not where it was to be."""


def note_path(folder: RunFolder) -> str:
    """Return the file that holds a server's answer."""
    return os.path.join(folder.path, "tracking.json")


def find_run(folder: RunFolder, plan: Plan) -> RunLocation:
    """Return where the run is. ``plan``: as it was submitted."""
    note = folder.read_json(note_path(folder)) or {}
    variables = _effective_variables(folder, plan, note)
    uri, run_id = variables.get("MLFLOW_TRACKING_URI", ""), variables.get("MLFLOW_RUN_ID", "")
    warning = str(note.get("warning") or "")
    run_dir = mlflow_files.run_folder(plan.job, variables)
    if run_dir:
        return RunLocation(run_dir=run_dir, run_id=run_id, warning=warning)
    return RunLocation(server=uri, run_id=run_id) if is_server(uri) and run_id else RunLocation()


def is_asked_for(plan: Plan) -> bool:
    """Return whether a server has to create the run: not if the user has named one."""
    return is_server(plan.user_env.get("MLFLOW_TRACKING_URI", "")) and not plan.user_env.get("MLFLOW_RUN_ID")


def begin(folder: RunFolder, plan: Plan, user: str, warn: Callable[[str], None]) -> Plan:
    """
    Return the plan with the run's variables. Blocks for up to 10 s if a server is asked; ``warn`` gets its failure.

    Raises OSError.
    """
    if is_asked_for(plan):
        if not os.path.exists(note_path(folder)):
            answer = _ask("begin", folder.path)
            if not answer.get("run_id"):
                place = mlflow_files.uri_of(folder.root)
                answer = {"warning": f"metrics go to {place}: {answer.get('warning') or 'there is no run'}"}
            folder.write(note_path(folder), json.dumps(answer))
            if answer.get("warning"):
                warn(str(answer["warning"]))
        note = folder.read_json(note_path(folder)) or {}
        plan = plan._replace(user_env=_effective_variables(folder, plan, note))
    mlflow_files.begin(plan, user)
    return plan


def end(folder: RunFolder, plan: Plan, job_status: str, warn: Callable[[str], None]) -> None:
    """End the run. ``plan``: as ``begin`` returned it. Blocks for as long. Raises OSError."""
    if (folder.read_json(note_path(folder)) or {}).get("run_id"):
        answer = _ask("end", folder.path, job_status)
        if answer.get("warning"):
            warn(str(answer["warning"]))
    else:
        mlflow_files.end(plan, job_status)


def _effective_variables(folder: RunFolder, plan: Plan, note: Mapping[str, object]) -> dict[str, str]:
    variables = dict(plan.user_env)
    if not note or not is_asked_for(plan):
        return variables
    run_id = str(note.get("run_id") or "")
    if not run_id:
        run_id = run_id_of(plan.job)
        variables["MLFLOW_TRACKING_URI"] = mlflow_files.uri_of(folder.root)
        variables[ALLOW] = "true"
    return {**variables, **variables_of(run_id, plan.job)}


def _ask(*words: str) -> dict[str, str]:
    """Return the answer of the process, or a ``warning`` if it takes too long. Raises OSError."""
    import subprocess
    import sys

    try:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "drumline.tracking", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_SERVER_LIMIT_S,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"warning": f"the MLflow server did not answer in {_SERVER_LIMIT_S} s"}
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, dict) else {"warning": "the MLflow server could not be asked"}


# The runs below a job's in the file store: those that its ranks created themselves, as Lightning's logger does.


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


class _Experiment:
    """The runs of an experiment that have a parent. For several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._changed = 0
        self._is_settled = False
        self._settled: set[str] = set()
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
