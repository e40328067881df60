"""
The metrics of a job's MLflow run, written and read as MLflow's file store has them: a file a metric, a line a value.

Without MLflow, which a script need not have, and which costs 1.3 s to import.
Source: https://mlflow.org/docs/latest/self-hosting/architecture/backend-store (file store), read from MLflow 3.17.
"""

from __future__ import annotations

import errno
import os
import re
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.folder import open_plain, private_folder
from drumline.contract.record import NamedTuple
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Plan

_UNUSUAL = re.compile(r"[^/\w.\- :]")
_LONGEST_NAME = 250
MOST_BYTES = 64 << 20

_MOST_ENTRIES = 20_000
_DEEPEST = 16
_TAIL = 4096


class Point(NamedTuple):
    """One value of a metric. ``timestamp_ms``: since 1970, in UTC."""

    step: int
    timestamp_ms: int
    value: float


def run_dir_of(plan: Plan) -> str:
    """Return the folder of the job's run; empty if the job tracks elsewhere."""
    return os.path.dirname(mlflow_files.metrics_of(plan))


def run_dir_here(environ: Mapping[str, str]) -> str:
    """Return the same for the rank that calls; empty if it tracks elsewhere, or is not a rank."""
    job = environ.get("AZUREML_RUN_ID", "")
    return (job and mlflow_files.run_folder(job, environ)) or ""


def clean_name(name: str) -> str:
    """
    Return the name as MLflow would take it: letters, digits and ``_-. :/`` alone, never outside the run.

    >>> clean_name("f1 (macro)")
    'f1 _macro_'
    >>> clean_name("../loss")
    '_./loss'
    """
    whole = "/".join(part for part in _UNUSUAL.sub("_", name).split("/") if part)[:_LONGEST_NAME].rstrip("/")
    # Cut first: what is left of a part may be "..".
    return "/".join("_" + part[1:] if part in (".", "..") else part for part in whole.split("/")) or "_"


def log_value(run_dir: str, name: str, value: float, step: int = 0, timestamp_ms: int | None = None) -> None:
    """
    Append a value by one write of one line, so that all ranks may log the same metric.

    Raises UsageError for a name that ``clean_name`` would change, OSError.
    """
    path = metric_path(run_dir, name)
    at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    line = f"{at} {float(value)} {int(step)}\n".encode()
    private_folder(os.path.dirname(path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            # A disk that is full but for a few bytes. The torn line is ended, so that the next one is whole.
            os.write(descriptor, b"\n")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(descriptor)


def read_history(run_dir: str, name: str) -> list[Point]:
    """Return all values in the order in which they were logged; none for an unknown metric. Raises UsageError."""
    try:
        with open_plain(metric_path(run_dir, name)) as file:
            data = file.read(MOST_BYTES)
    except OSError:
        return []
    # The last line is still being written, or empty.
    lines = data.decode("utf-8", "replace").split("\n")[:-1]
    return [point for point in map(_parse_point, lines) if point is not None]


def list_names(run_dir: str) -> list[str]:
    """Return the sorted names of the metrics; of very many, some."""
    return list_some_names(run_dir)[0]


def list_some_names(run_dir: str) -> tuple[list[str], bool]:
    """Return the names, and whether there may be more: a job can log any number of metrics. Links are not followed."""
    found: list[str] = []
    left = _MOST_ENTRIES
    folders = [] if os.path.islink(os.path.join(run_dir, "metrics")) else [""]
    while folders:
        inside = folders.pop()
        try:
            with os.scandir(os.path.join(run_dir, "metrics", inside)) as entries:
                for entry in entries:
                    if left == 0:
                        return sorted(found), True
                    left -= 1
                    name = os.path.join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        folders += [name] if name.count("/") < _DEEPEST else []
                    elif entry.is_file(follow_symlinks=False) and clean_name(name) == name:
                        found.append(name)
        except OSError:
            continue
    return sorted(found), False


def read_latest(run_dir: str, name: str) -> Point | None:
    """Return the value of the highest step at the end of its file, the last of several. Raises UsageError."""
    return max(reversed(read_tail(run_dir, name)), key=lambda point: point.step, default=None)


def read_tail(run_dir: str, name: str) -> list[Point]:
    """Return the values at the end of its file, about a hundred. Raises UsageError."""
    try:
        with open_plain(metric_path(run_dir, name)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            data = file.read(_TAIL)
    except OSError:
        return []
    lines = data.decode("utf-8", "replace").split("\n")[1 if size > _TAIL else 0 : -1]
    return [point for point in map(_parse_point, lines) if point is not None]


def metric_path(run_dir: str, name: str) -> str:
    if not name or clean_name(name) != name:
        raise UsageError(
            f"a metric cannot have the name {name!r}",
            f"letters, digits and '_-. :/' can: {clean_name(name)!r}",
        )
    return os.path.join(run_dir, "metrics", name)


def _parse_point(line: str) -> Point | None:
    """Parse a line; None if it was cut short. MLflow before 1.0 wrote no step, a later one adds a data set's name."""
    parts = line.split(" ")
    try:
        step = int(parts[2]) if len(parts) > 2 else 0
        return Point(step, int(parts[0]), float(parts[1]))
    except (ValueError, IndexError):
        return None
