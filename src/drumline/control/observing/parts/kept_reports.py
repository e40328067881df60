"""Reports that jobs were run for, which lie in the run folder of each of these jobs."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DAMAGED, DamagedError, NotFoundError
from drumline.contract.folder import RunFolder, home
from drumline.control.jobs.lookup import all_names, folder_of, is_own
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_REPORTS = 100


def keep_report(file: str, values: Mapping[str, Any], jobs: Iterable[str]) -> None:
    """Write a report into the run folder of each of its jobs. An empty name stands for a job that was not run."""
    text = json.dumps(values)
    for job in filter(None, jobs):
        folder = RunFolder.for_job(job)
        if folder.exists():
            with contextlib.suppress(OSError):
                folder.write(os.path.join(folder.path, file), text)


def read_report(
    name: str, file: str, describe: Callable[[dict[str, Any]], dict[str, Any]], missing: NotFoundError
) -> dict[str, Any]:
    """Return what is shown of the report that a job was run for. Raises ``missing`` without one, DamagedError."""
    folder = folder_of(name)
    data = folder.read_json(os.path.join(folder.path, file))
    if data is None:
        raise missing
    try:
        return describe(data)
    except DAMAGED as error:
        raise DamagedError(f"{file} of job {name} is damaged: {type(error).__name__}") from error


def list_reports(
    file: str, summarize: Callable[[dict[str, Any]], tuple[dict[str, Any], list[str]]]
) -> list[dict[str, Any]]:
    """
    List the newest reports, each once, at the first of its jobs that is still there. ``summarize``: returns what is
    listed of a report, and its jobs.
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
        with contextlib.suppress(*DAMAGED):
            listed, jobs = summarize(folder.read_json(os.path.join(folder.path, file)) or {})
            if next((job for job in jobs if job in made), "") == name:
                found.append({"job": name, **listed, "title": listed["title"] or name, "made": utc(at)})
    return found
