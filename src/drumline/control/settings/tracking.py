"""The place where runs are tracked of jobs that name none: a team's server, or the file store of the home."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.folder import base_home
from drumline.contract.mlflow_variables import is_server
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MLFLOW_TRACKING_URI"


class ServerRules:
    """
    Which servers this process asks about a job, and with whose credentials. A job can write any address into its plan.
    """

    def __init__(self) -> None:
        self.asks_others = True
        """False: none but the user's own, as in a program that asks without a person who wants it."""

        self.trusts_plans = False
        """True where the credentials of this process are those that the job was given, as in a sweep's driver."""

    def may_ask(self, uri: str) -> bool:
        return self.asks_others or is_own_server(uri)

    def choose_variables(self, uri: str, of_plan: Mapping[str, str]) -> dict[str, str]:
        """Return what credentials for a server are looked up in: our own go to our own server alone."""
        shares = self.trusts_plans or is_own_server(uri)
        return {**os.environ, **of_plan} if shares else dict(of_plan)


rules = ServerRules()


def is_own_server(uri: str) -> bool:
    """Return whether the user has named that server: in MLFLOW_TRACKING_URI, or by ``drumline configure``."""
    own = (os.environ.get(VARIABLE, ""), read_configured_uri())
    return is_server(uri) and uri.rstrip("/") in [one.rstrip("/") for one in own if one]


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
