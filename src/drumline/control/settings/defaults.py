"""The defaults of ``drumline configure``: ``defaults.json`` of the base home, for its owner alone."""

from __future__ import annotations

from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import check_workspace
from drumline.contract.mlflow_variables import is_server
from drumline.control.settings import base_files

_FILE = "defaults.json"
TRACKING = "tracking_uri"
_FORM = (
    "https://HOST:PORT; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, "
    "say who you are"
)


def path() -> str:
    return base_files.path_of(_FILE)


def read() -> dict[str, str]:
    """Read the defaults, by name. Raises UsageError for a damaged file."""
    example = "drumline configure --defaults workspace=NAME"
    return base_files.read(path(), lambda value: isinstance(value, str), example)


def change(given: dict[str, str]) -> None:
    """Change defaults; an empty value removes one. Raises UsageError for an invalid workspace or server; OSError."""
    check_workspace(given.get("workspace", ""))
    if given.get(TRACKING):
        _check_tracking(given[TRACKING])
    known = {name: value for name, value in {**read(), **given}.items() if value}
    base_files.write(path(), known)


def _check_tracking(uri: str) -> None:
    """Raise UsageError unless the address can be an MLflow server."""
    if not is_server(uri) or not uri.partition("://")[2].strip("/") or any(one <= " " for one in uri):
        raise UsageError(f"{TRACKING}: {uri!r} is no address of an MLflow server", _FORM)
    try:
        check_has_no_user(uri, TRACKING)
    except PlanError as error:
        raise UsageError(error.message, error.hint) from None


def check_has_no_user(uri: str, where: str) -> None:
    """Raise PlanError for an address with a user in it: run folders keep no secrets."""
    if "@" in uri.partition("://")[2].partition("/")[0]:
        raise PlanError(
            f"{where}: the address of the MLflow server has a user in it, and is kept with the job", _FORM
        )
