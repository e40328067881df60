"""
The run of a job, in MLflow's file store or at a team's server, which exists before the ranks start.

A server gives the run its id, so it is asked when the job starts, by a process of its own that can be left alone:
``python -m drumline.tracking``. Where it does not answer, the metrics go to the file store, and the job says so:
a training must not fail because of what only watches it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from drumline.contract.mlflow import is_server, run_id_of, variables_of
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
        variables["MLFLOW_ALLOW_FILE_STORE"] = "true"
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
