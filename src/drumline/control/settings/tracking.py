"""The place where runs are tracked of jobs that name none: a team's server, or the file store of the home."""

from __future__ import annotations

import os

from drumline.contract.folder import base_home
from drumline.contract.mlflow import is_server
from drumline.tracking import mlflow_files

VARIABLE = "MLFLOW_TRACKING_URI"


def choose_tracking_uri(root: str) -> str:
    """
    Choose the tracking server of a new job whose run folder is in that home.

    It is the one that MLFLOW_TRACKING_URI names, else the one that was configured, else the home's own file store.
    Raises PlanError for an address with a password in it.
    """
    named = os.environ.get(VARIABLE, "")
    if is_server(named):
        from drumline.control.settings import defaults

        defaults.check_has_no_user(named, VARIABLE)
        return named
    return read_configured_uri() or mlflow_files.uri_of(root)


def read_configured_uri() -> str:
    """Return the server that ``drumline configure`` has set; empty for none."""
    if not os.path.exists(os.path.join(base_home(), "defaults.json")):
        return ""
    from drumline.control.settings import defaults

    uri = defaults.read().get(defaults.TRACKING, "")
    return uri if is_server(uri) else ""
