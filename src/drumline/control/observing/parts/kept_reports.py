"""Reports that jobs were run for, which lie in the run folder of each of these jobs."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import RunFolder, home
from drumline.control.jobs.lookup import all_names, is_own
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_REPORTS = 100


def list_reports(
    file: str, read: Callable[[RunFolder], tuple[dict[str, Any], list[str]]]
) -> list[dict[str, Any]]:
    """
    List the newest reports, each once, at the first of its jobs that is still there. ``read``: returns what is listed
    of a report, and its jobs.

    A job can write one that names other jobs, which hides its own.
    """
    made: dict[str, float] = {}
    place = os.path.join(home(), "jobs")
    for name in all_names():
        with contextlib.suppress(OSError):
            made[name] = os.stat(f"{place}/{name}/{file}", follow_symlinks=False).st_mtime
    found: list[dict[str, Any]] = []
    for name, at in sorted(made.items(), key=lambda one: -one[1]):
        folder = RunFolder.for_job(name)
        if len(found) >= _MOST_REPORTS:
            break
        if not is_own(folder):
            continue
        listed, jobs = read(folder)
        if next((job for job in jobs if job in made), "") == name:
            found.append({"job": name, **listed, "title": listed["title"] or name, "made": utc(at)})
    return found
