"""Where the runs of jobs are made that say nothing of it themselves: the file store of the home, or a team's server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import base_home
from drumline.contract.mlflow import is_server
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

VARIABLE = "MLFLOW_TRACKING_URI"
SETTING = "tracking_uri"
_FORM = (
    "https://HOST:PORT; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, "
    "say who you are"
)


def uri_for(root: str) -> str:
    """
    Of a new job whose run folder is in that home: the server that MLFLOW_TRACKING_URI names, else the one that was
    configured, else the home's own file store. Raises PlanError for an address with a password in it.
    """
    named = os.environ.get(VARIABLE, "")
    if is_server(named):
        _check(named, VARIABLE)
        return named
    return configured() or mlflow_files.uri_of(root)


def pages_of(folder: RunFolder) -> str:
    """How to see in MLflow what a job has logged: a command, or an address."""
    import shlex

    where, experiment = endpoint_of(folder)
    if is_server(where):
        return f"mlflow: {where}{experiment}"
    return f"mlflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shlex.quote(where)}"


def endpoint_of(folder: RunFolder) -> tuple[str, str]:
    """The address of the store that has the run, without a password, and the page of the run where that is a server."""
    local = mlflow_files.uri_of(folder.root)
    if os.path.exists(folder.graph):
        return local, ""
    from drumline.control.follow import plan_of
    from drumline.tracking import runs

    try:
        plan = plan_of(folder)
    except (OSError, ValueError, TypeError, KeyError):
        return local, ""
    where = runs.of(folder, plan)
    if where.server:
        experiment = str((folder.read_json(runs.note_of(folder)) or {}).get("experiment_id") or "")
        page = f"/#/experiments/{experiment}/runs/{where.run_id}" if experiment else ""
        return _shown(where.server).rstrip("/"), page
    if where.run_dir:
        return mlflow_files.uri_of_folder(os.path.dirname(os.path.dirname(where.run_dir))), ""
    own = plan.user_env.get(VARIABLE, "")
    return (_shown(own) if own else local), ""


def _shown(uri: str) -> str:
    from drumline.contract import uris

    return uris.shown(uri)


def configured() -> str:
    """By ``drumline configure``; empty: none."""
    if not os.path.exists(os.path.join(base_home(), "defaults.json")):
        return ""
    from drumline.control import defaults

    uri = defaults.read().get(SETTING, "")
    return uri if is_server(uri) else ""


def check(uri: str) -> None:
    """Raises UsageError for what no server of MLflow's can be."""
    if not is_server(uri) or not uri.partition("://")[2].strip("/") or any(one <= " " for one in uri):
        raise UsageError(f"{SETTING}: {uri!r} is no address of an MLflow server", _FORM)
    try:
        _check(uri, SETTING)
    except PlanError as error:
        raise UsageError(error.message, error.hint) from None


def _check(uri: str, where: str) -> None:
    """It becomes part of the run folder, which keeps no secrets."""
    if "@" in uri.partition("://")[2].partition("/")[0]:
        raise PlanError(
            f"{where}: the address of the MLflow server has a user in it, and is kept with the job", _FORM
        )
