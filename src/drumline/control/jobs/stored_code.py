"""
The code of a job that runs in the user's own folder: stored once the job is on its way, by a process of low priority.

``<run folder>/code.json`` tells the folder, the snapshot or why there is none, and what git says of the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

_MOST_ENTRIES = 5_000
_MOST_BYTES = 64 << 20
_MOST_FILE_BYTES = 1 << 20
"""A larger file is data; a rerun finds it in the folder itself."""

_LEFT_OUT = frozenset((".git", ".venv", "venv", "__pycache__", "node_modules", "outputs", "logs"))
_SECRET_FILES = (".env", "id_", ".netrc")
_NICE = 19
_GIT_LIMIT_S = 10.0


def store_code(folder: RunFolder, code: str) -> None:
    """Have the code in the folder ``code`` stored, and return at once. Not from a process with threads."""
    began = time.time()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            _leave_terminal()
            _store(folder, code, began)
    finally:
        os._exit(0)


def _leave_terminal() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # Whoever reads the output of the command waits for no other process.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.nice(_NICE)


def _store(folder: RunFolder, code: str, began: float) -> None:
    """Store what was there before the job began: the job may write to its folder meanwhile."""
    from drumline.staging.snapshot.code_files import CodeLimits
    from drumline.staging.snapshot.take import take_snapshot

    record: dict[str, Any] = {"folder": code, "began": began}
    try:
        limits = CodeLimits(_MOST_ENTRIES, _MOST_BYTES, _MOST_FILE_BYTES, _LEFT_OUT, _SECRET_FILES, began)
        taken = take_snapshot(code, folder.root, limits=limits)
        record |= {
            "snapshot": taken.digest,
            "file_count": taken.file_count,
            "size_bytes": taken.size_bytes,
            "left_out": list(taken.skipped[:100]),
        }
    except (PlanError, OSError) as error:
        record["not_stored"] = str(getattr(error, "message", error))
    record["git"] = _ask_git(code)
    with contextlib.suppress(OSError):  # As when the job was deleted meanwhile.
        folder.write(folder.stored_code, json.dumps(record, indent=1))


def _ask_git(code: str) -> dict[str, Any]:
    """Return the commit of the folder and how many tracked files differ from it; empty without git."""
    if not _is_in_repository(code):
        return {}
    import subprocess

    def ask(*words: str) -> str:
        # No lock of a repository that the user may be using.
        environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
        command = ["git", "-C", code, *words]
        done = subprocess.run(  # noqa: S603 - no words of others
            command,
            env=environ,
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout.decode("utf-8", "replace")

    try:
        commit = ask("rev-parse", "HEAD").strip()
        changed = ask("status", "--porcelain", "--untracked-files=no").splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "changed_count": len(changed)}


def _is_in_repository(path: str) -> bool:
    while not os.path.exists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


def read_record(folder: RunFolder) -> dict[str, Any]:
    """Return what was recorded of the code of a job that ran in the user's folder; empty for none."""
    return folder.read_json(folder.stored_code) or {}


def explain_absence(folder: RunFolder) -> str:
    """Return why the code of the job is not stored, and which commit it was."""
    record = read_record(folder)
    why = str(record.get("not_stored") or "")
    if not why:
        why = (
            "it was removed"
            if record or not has_run_elsewhere(folder)
            else "it was not stored when the job began"
        )
    commit = str((record.get("git") or {}).get("commit") or "")
    return f"{why}; git was at {commit[:7]}" if commit else why


def has_run_elsewhere(folder: RunFolder) -> bool:
    """Return whether the job ran in the user's own folder."""
    plan = folder.read_json(folder.plan) or {}
    return str(plan.get("cwd") or folder.code) != folder.code
