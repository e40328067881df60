"""What ``drumline configure`` has written: ``defaults.json`` of the base home, for its owner alone."""

from __future__ import annotations

import os
from typing import Any

from drumline.contract.errors import UsageError
from drumline.contract.folder import base_home, check_workspace, private_folder, write_whole

_FILE = "defaults.json"


def path() -> str:
    return os.path.join(base_home(), _FILE)


def read() -> dict[str, str]:
    """By name. Raises UsageError for a file that was damaged."""
    import json

    try:
        with open(path(), encoding="utf-8") as file:
            data: Any = json.load(file)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise UsageError(
            f"{path()} is damaged", "remove it, and drumline configure --defaults workspace=NAME"
        )
    return data


def change(given: dict[str, str]) -> None:
    """An empty value is as if never set. Raises UsageError for what is no workspace's name, or no server; OSError."""
    import json

    check_workspace(given.get("workspace", ""))
    if given.get("tracking_uri"):
        from drumline.control import tracking

        tracking.check(given["tracking_uri"])
    known = {name: value for name, value in {**read(), **given}.items() if value}
    private_folder(base_home())
    write_whole(path(), json.dumps(known, indent=1) + "\n")
