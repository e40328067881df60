"""
The metrics of a job's MLflow run, written and read as MLflow's file store has them: a file a metric, a line a value.

Without MLflow, which a script need not have, and which costs 1.3 s to import.
Source: https://mlflow.org/docs/latest/self-hosting/architecture/backend-store (file store), read from MLflow 3.17.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from drumline.contract.errors import UsageError
from drumline.contract.folder import private_folder
from drumline.contract.record import NamedTuple
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Plan
    from drumline.tracking.series import Series

_UNUSUAL = re.compile(r"[^/\w.\- :]")
_LONGEST_NAME = 250
_MOST_BYTES = 64 << 20
_MOST_ENTRIES = 20_000
_DEEPEST = 16
_CHUNK = 1 << 20
_TAIL = 4096


class Point(NamedTuple):
    """One value of a metric. ``timestamp_ms``: since 1970, in UTC."""

    step: int
    timestamp_ms: int
    value: float


def run_dir_of(plan: Plan) -> str:
    """The folder of the job's run; empty when the job tracks elsewhere."""
    return os.path.dirname(mlflow_files.metrics_of(plan))


def run_dir_here(environ: Mapping[str, str]) -> str:
    """The same, for a rank that asks about itself; empty when it tracks elsewhere, or is no rank."""
    job = environ.get("AZUREML_RUN_ID", "")
    return (job and mlflow_files.run_folder(job, environ)) or ""


def usable(name: str) -> str:
    """
    The name that MLflow would take: letters, digits and ``_-. :/`` alone, never outside the run.

    >>> usable("f1 (macro)")
    'f1 _macro_'
    >>> usable("../loss")
    '_./loss'
    """
    whole = "/".join(part for part in _UNUSUAL.sub("_", name).split("/") if part)[:_LONGEST_NAME].rstrip("/")
    # Cut first: what is left of a part may be "..".
    return "/".join("_" + part[1:] if part in (".", "..") else part for part in whole.split("/")) or "_"


def log(run_dir: str, name: str, value: float, step: int = 0, timestamp_ms: int | None = None) -> None:
    """
    Add a value. One write of one line, so that all ranks may log the same metric.

    Raises UsageError for a name that ``usable`` would change, OSError.
    """
    path = _path(run_dir, name)
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


def history(run_dir: str, name: str) -> list[Point]:
    """Every value in the order in which they were logged; empty for a metric that is not there. Raises UsageError."""
    return history_since(run_dir, name, 0)[0]


def history_since(run_dir: str, name: str, offset: int) -> tuple[list[Point], int]:
    """What was logged behind that offset of the file, and the offset to go on from. Raises UsageError."""
    try:
        data = _read(_path(run_dir, name), offset)
    except OSError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    points = (_point(line) for line in whole.decode("utf-8", "replace").split("\n")[:-1])
    return [point for point in points if point is not None], offset + len(whole)


def names(run_dir: str) -> list[str]:
    """Of the metrics that there are, in the order of the alphabet; of very many, some."""
    return listed(run_dir)[0]


def listed(run_dir: str) -> tuple[list[str], bool]:
    """As ``names``, and whether there may be more: a job can log any number of metrics. Links lead nowhere."""
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
                    elif entry.is_file(follow_symlinks=False) and usable(name) == name:
                        found.append(name)
        except OSError:
            continue
    return sorted(found), False


def latest(run_dir: str, name: str) -> Point | None:
    """By the end of its file alone: of the highest step there, and of several the last. Raises UsageError."""
    try:
        with opened(_path(run_dir, name)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            data = file.read(_TAIL)
    except OSError:
        return None
    lines = data.decode("utf-8", "replace").split("\n")[1 if size > _TAIL else 0 : -1]
    points = [point for point in map(_point, lines) if point is not None]
    return max(reversed(points), key=lambda point: point.step, default=None)


class Growing:
    """A metric whose file grows, read on from where the last look ended."""

    def __init__(self, run_dir: str, name: str, series: Series) -> None:
        """Raises UsageError for a name that cannot be."""
        self._path = _path(run_dir, name)
        self._offset = 0
        self.series = series

    def look(self, deadline: float) -> None:
        """Until its end, or that time on the monotonic clock. Never raises for a file that cannot be read."""
        self.series.is_cut = False
        try:
            with opened(self._path) as file:
                while self._take(file):
                    if time.monotonic() > deadline or self._offset >= _MOST_BYTES:
                        self.series.is_cut = True
                        return
        except OSError:
            return

    def _take(self, file: BinaryIO) -> bool:
        """One part of it; False at its end."""
        file.seek(self._offset)
        data = file.read(_CHUNK)
        whole = data.rfind(b"\n") + 1
        # What is longer than a chunk is no line of ours.
        taken = whole or (len(data) if len(data) == _CHUNK else 0)
        for line in data[:whole].split(b"\n"):
            parts = line.split(b" ")
            try:
                self.series.add(int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1]))
            except (ValueError, IndexError, OverflowError):
                continue
        self._offset += taken
        return len(data) == _CHUNK


def _path(run_dir: str, name: str) -> str:
    if not name or usable(name) != name:
        raise UsageError(
            f"a metric cannot have the name {name!r}", f"letters, digits and '_-. :/' can: {usable(name)!r}"
        )
    return os.path.join(run_dir, "metrics", name)


def _point(line: str) -> Point | None:
    """None for a line that was cut short. MLflow before 1.0 wrote no step, and a later one adds a data set's name."""
    parts = line.split(" ")
    try:
        step = int(parts[2]) if len(parts) > 2 else 0
        return Point(step, int(parts[0]), float(parts[1]))
    except (ValueError, IndexError):
        return None


def _read(path: str, offset: int) -> bytes:
    """Of a plain file and nothing else: a job can put a pipe or a link there. Raises OSError."""
    with opened(path) as file:
        file.seek(offset)
        return file.read(max(0, _MOST_BYTES - offset))


def opened(path: str) -> BinaryIO:
    """A plain file and nothing else. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return open(descriptor, "rb")
