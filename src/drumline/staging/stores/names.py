"""Which names of files that are elsewhere may become names here. Pure."""

from __future__ import annotations

import re

from drumline.contract.errors import NodeError

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_LONGEST = 255  # bytes: NAME_MAX of every file system of Linux
_LONGEST_PATH = 3500  # and PATH_MAX, less what stands before


def checked(path: str, url_shown: str) -> str:
    """The path itself. Raises NodeError for one that could lead out of a folder, or be no file's name."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise refused(path, url_shown, "leads out of its folder or has empty parts")
    if _CONTROL.search(path):
        raise refused(path, url_shown, "has control characters")
    if len(path.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST for part in parts):
        raise refused(path, url_shown, "is longer than a file's may be")
    return path


def refused(path: str, url_shown: str, why: str) -> NodeError:
    return NodeError(
        f"{url_shown} holds a file whose name {why}: {path[:200]!r}",
        "rename it there, or name a folder without it",
    )
