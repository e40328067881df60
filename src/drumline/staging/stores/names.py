"""The names of remote files that are safe as local names; pure functions."""

from __future__ import annotations

import re

from drumline.contract.errors import NodeError

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_LONGEST = 255  # bytes: NAME_MAX of every file system of Linux
_LONGEST_PATH = 3500  # and PATH_MAX, less what stands before


def check_path(path: str, url_shown: str) -> str:
    """Return the path. Raises NodeError if it could lead out of a folder, or cannot name a file."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise name_error(path, url_shown, "leads out of its folder or has empty parts")
    if _CONTROL.search(path):
        raise name_error(path, url_shown, "has control characters")
    if len(path.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST for part in parts):
        raise name_error(path, url_shown, "is too long for a file")
    return path


def name_error(path: str, url_shown: str, why: str) -> NodeError:
    return NodeError(
        f"{url_shown} holds a file whose name {why}: {path[:200]!r}",
        "rename it there, or name a folder without it",
    )
