"""
Words for a job on the command line: its name, a unique beginning of it, ``@last``, ``-``, ``PIPELINE/STEP``.

``<home>/last-job`` holds the name of the job that the last command was about. Submitting a job writes nothing there, so
that it costs nothing: a job that is newer than the file is the one of the last command.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import MARKER, RunFolder, home, open_text, write_whole
from drumline.contract.outcome import fold
from drumline.control.jobs import job_folders, lookup

if TYPE_CHECKING:
    from drumline.contract.outcome import StepOutcome

NEWEST = "@last"
PREVIOUS = "-"
SHORT = (NEWEST, PREVIOUS)
_MOST_LISTED = 8


def find_name(word: str) -> str:
    """
    Return the name of the job that the word stands for; the word itself where it stands for none.

    Raises UsageError for the beginning of several names, NotFoundError.
    """
    return _follow(word)[0]


def explain_reused(word: str) -> str:
    """Return that ``PIPELINE/STEP`` was reused, and whose job it is then; empty for any other word. Raises as above."""
    return _follow(word)[1] if "/" in word else ""


def _follow(word: str) -> tuple[str, str]:
    """Return the name of the job that the word stands for, and which step on the way to it was reused, if one was."""
    first, *steps = word.split("/")
    name, reused = _find_whole(first), ""
    for step in steps if _is_there(name) else ():
        started = _find_step(name, step)
        if started.detail.get("reused"):
            reused = f"step {step!r} of job {name} did not run: its outputs are those of job {started.job}"
        name = str(started.job)
    return name if not steps or _is_there(name) else word, reused


def remember(name: str) -> None:
    """Note that a command of the user's was about this job."""
    if MARKER in os.environ:
        return  # A rank's commands are not the user's.
    if _is_there(name):
        with contextlib.suppress(OSError):
            write_whole(_last_path(), name)


def _find_whole(word: str) -> str:
    if word == NEWEST:
        return _find_newest() or _raise_none()
    if word == PREVIOUS:
        return _find_previous()
    if not word or word in (".", "..") or _is_there(word) or lookup.hint_elsewhere(word):
        return word
    return _complete(word)


def _is_there(name: str) -> bool:
    return "/" not in name and name not in ("", ".", "..") and RunFolder.for_job(name).exists()


def _find_newest() -> str:
    """Return the first of ``drumline job list``; empty for none."""
    return next(iter(job_folders.names(parent="", limit=1)), "")


def _raise_none() -> str:
    raise NotFoundError("there are no jobs yet", "drumline run -- PROGRAM, or drumline job create -f FILE")


def _find_previous() -> str:
    newest = _find_newest()
    try:
        used_at = os.stat(_last_path()).st_mtime
        with open_text(_last_path()) as file:
            last = file.read(1000)
    except (OSError, ValueError):
        return newest or _raise_none()
    began = fold(RunFolder.for_job(newest).read_events()).created if newest else None
    if began is not None and began > used_at:
        return newest
    if not _is_there(last):
        raise NotFoundError(
            f"job {last!r}, which your last command was about, is gone", f"{NEWEST} is the newest job"
        )
    return last


def _last_path() -> str:
    return os.path.join(home(), "last-job")


def _complete(beginning: str) -> str:
    """Return the one name that begins so; steps and trials count only where no other job's name does."""
    found = [name for name in job_folders.names(archived=None, parent="") if name.startswith(beginning)]
    found = found or sorted(name for name in lookup.all_names() if name.startswith(beginning))
    if len(found) > 1:
        listed = ", ".join(found[:_MOST_LISTED])
        more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
        raise UsageError(
            f"{beginning!r} is the beginning of {len(found)} names of jobs: {listed}{more}", "add letters"
        )
    return found[0] if found else beginning


def _find_step(name: str, step: str) -> StepOutcome:
    """Return a pipeline's step or a sweep's trial that has a job. Raises NotFoundError."""
    folder = RunFolder.for_job(name)
    started = fold(folder.read_events()).steps
    outcome = started.get(step) or started.get(f"trial_{step}")
    if outcome is not None and outcome.job:
        return outcome
    planned = [str(one.get("name")) for one in (folder.read_json(folder.graph) or {}).get("steps") or ()]
    if step in planned:
        raise NotFoundError(
            f"step {step!r} of job {name} has no job yet", f"drumline job show {lookup.as_arguments(name)}"
        )
    known = ", ".join(planned or started)
    raise NotFoundError(f"job {name} has no step {step!r}", f"its steps: {known}" if known else "")
