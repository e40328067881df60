"""The pages of MLflow that show what a job has logged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.mlflow import is_server
from drumline.contract.plan import Plan
from drumline.control.settings.tracking import VARIABLE
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


def pages_of(folder: RunFolder) -> str:
    """Return how to see in MLflow what a job has logged: a command, or an address."""
    import shlex

    where, experiment = endpoint_of(folder)
    if is_server(where):
        return f"mlflow: {where}{experiment}"
    return f"mlflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shlex.quote(where)}"


def endpoint_of(folder: RunFolder) -> tuple[str, str]:
    """Return the address of the store without its password, and the page of the run at a server."""
    local = mlflow_files.uri_of(folder.root)
    if os.path.exists(folder.graph):
        return local, ""
    from drumline.tracking import runs

    try:
        plan = Plan.read(folder.plan)
    except (OSError, ValueError, TypeError, KeyError):
        return local, ""
    where = runs.find_run(folder, plan)
    if where.server:
        experiment = str((folder.read_json(runs.note_path(folder)) or {}).get("experiment_id") or "")
        page = f"/#/experiments/{experiment}/runs/{where.run_id}" if experiment else ""
        return _without_password(where.server).rstrip("/"), page
    if where.run_dir:
        return mlflow_files.uri_of_folder(os.path.dirname(os.path.dirname(where.run_dir))), ""
    own = plan.user_env.get(VARIABLE, "")
    return (_without_password(own) if own else local), ""


def _without_password(uri: str) -> str:
    from drumline.contract.hiding import hide_secrets

    return hide_secrets(uri)
