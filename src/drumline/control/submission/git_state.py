"""
The commit that a folder of code is at, from git's own files.

No process of git: it would take milliseconds, and run what a repository's settings say (``core.fsmonitor``). Whether
files were changed since the commit is not known; the snapshot has them as they were.
Source: https://git-scm.com/docs/gitrepository-layout
"""

from __future__ import annotations

import os
import re

_MOST_PARENTS = 40
_MOST_BYTES = 1 << 22
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_head(folder: str) -> dict[str, str]:
    """
    Return the commit and the branch as properties of a job, in Azure ML's spelling; empty where there is no repository.
    """
    git = _find_git(folder)
    head = _read(os.path.join(git, "HEAD")) if git else ""
    if not head:
        return {}
    if not head.startswith("ref: "):
        return {"azureml.git.commit": head} if _COMMIT.fullmatch(head) else {}
    ref = head.removeprefix("ref: ")
    if not ref.startswith("refs/") or ".." in ref.split("/"):
        return {}
    commit = _read_ref(git, ref)
    if not _COMMIT.fullmatch(commit):
        return {}
    return {"azureml.git.commit": commit, "azureml.git.branch": ref.removeprefix("refs/heads/")}


def _find_git(folder: str) -> str:
    """Return the folder of git for a working folder, or the nearest above it; empty for none."""
    for _ in range(_MOST_PARENTS):
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        if os.path.isfile(path):
            # A worktree or a submodule.
            text = _read(path)
            return os.path.join(folder, text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else ""
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return ""


def _read_ref(git: str, ref: str) -> str:
    common = _read(os.path.join(git, "commondir"))
    places = [git, os.path.join(git, common)] if common else [git]
    for place in places:
        found = _read(os.path.join(place, ref))
        if found:
            return found
    for place in places:
        for line in _read(os.path.join(place, "packed-refs")).splitlines():
            if line.endswith(f" {ref}"):
                return line.split(" ", 1)[0]
    return ""


def _read(path: str) -> str:
    """Return the text of a small file; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""
