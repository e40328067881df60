"""
Reports that jobs were run for, which lie in the run folder of each of these jobs. A job can write its own copy too, so
readers take from it only what has the kind and size of a report's.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import RunFolder, home
from drumline.control.jobs.lookup import all_names, is_own
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_REPORTS = 100
_LONGEST_TEXT = 4096
_LARGEST = 1e12


def keep_report(file: str, values: Mapping[str, Any], jobs: Iterable[str]) -> None:
    """Write a report into the run folder of each of its jobs. An empty name stands for a job that was not run."""
    text = json.dumps(values)
    for job in filter(None, jobs):
        folder = RunFolder.for_job(job)
        if folder.exists():
            with contextlib.suppress(OSError):
                folder.write(os.path.join(folder.path, file), text)


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


def to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def to_text(value: Any) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def to_number(value: Any, least: float = -_LARGEST) -> float | None:
    """Return a number that can be drawn; None: it is none, or less than ``least``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and least <= value < _LARGEST else None
