"""
The metrics of a job's MLflow run, and the series of their values.

They are written and read as MLflow's file store has them: a file a metric, a line a value.

Without MLflow, which a script need not have, and which costs 1.3 s to import.
Source: https://mlflow.org/docs/latest/self-hosting/architecture/backend-store (file store), read from MLflow 3.17.
"""

from __future__ import annotations

import errno
import json
import math
import operator
import os
import re
import time
from array import array
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from drumline.contract.errors import UsageError
from drumline.contract.folder import open_plain, private_folder
from drumline.contract.record import NamedTuple
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drumline.contract.plan import Plan


class Figures(NamedTuple):
    """A summary. ``lowest`` and ``highest`` are of the finite values; None if there are none."""

    value_count: int
    last: Point | None
    """Of the highest step, and of several the one that was logged last."""

    lowest: float | None
    highest: float | None
    odd_count: int
    """How many are nan or inf."""

    steps: tuple[int, int]
    """The first and the last."""


class Series:
    """The values in the order in which they were logged."""

    def __init__(self, name: str, source: str, run: str = "") -> None:
        self.name = name
        self.source = source
        """``mlflow`` or ``tensorboard``."""

        self.run = run
        """Where it is not the job's own: the name of the run, or the step or trial."""

        self.is_cut = False
        """Whether there are more values than were read."""

        self._steps, self._times, self._values = array("q"), array("q"), array("d")
        self._has_repeats = False
        self._ordered_count = 0
        """So many values from the first are known to have rising steps; -1: not all have."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Point]:
        return map(Point, self._steps, self._times, self._values)

    def add(self, step: int, timestamp_ms: int, value: float) -> None:
        """Add a value. Raises OverflowError, and adds nothing, for a step or a time beyond 64 bits."""
        self._steps.append(step)
        try:
            self._times.append(timestamp_ms)
        except OverflowError:
            self._steps.pop()
            raise
        self._values.append(value)

    def extend(self, points: Iterable[Point]) -> None:
        """Add the points that can be kept, and leave out the others."""
        for point in points:
            try:
                self.add(*point)
            except (OverflowError, TypeError, ValueError):
                continue

    def add_many(self, steps: array[int], timestamps_ms: array[int], values: array[float]) -> None:
        """Add as many values as there are steps and times."""
        self._steps.extend(steps)
        self._times.extend(timestamps_ms)
        self._values.extend(values)

    def arrays(self) -> tuple[array[int], array[int], array[float]]:
        """Return steps, times in ms since 1970 and values, which are not to be changed."""
        return self._steps, self._times, self._values

    def between(self, first: int | None, last: int | None) -> Series:
        """Return the values of steps from ``first`` to ``last``, both included; None: without that bound."""
        if first is None and last is None:
            return self
        found = Series(self.name, self.source, self.run)
        found.is_cut = self.is_cut
        low = -math.inf if first is None else first
        high = math.inf if last is None else last
        found.extend(point for point in self if low <= point.step <= high)
        return found

    def figures(self) -> Figures:
        if not self._values:
            return Figures(0, None, None, None, 0, (0, 0))
        finite = array("d", filter(math.isfinite, self._values))
        top = max(self._steps)
        index = len(self._steps) - 1
        while self._steps[index] != top:
            index -= 1
        return Figures(
            len(self),
            Point(top, self._times[index], self._values[index]),
            min(finite) if finite else None,
            max(finite) if finite else None,
            len(self) - len(finite),
            (min(self._steps), top),
        )

    @property
    def has_repeats(self) -> bool:
        """
        Return whether some step has several values, where steps count at all: without any, all values have one step.
        """
        new = self._steps[max(0, self._ordered_count - 1) :]
        if self._ordered_count >= 0 and all(map(operator.lt, new, islice(new, 1, None))):
            self._ordered_count = len(self)
            return False
        self._ordered_count = -1
        if not self._has_repeats and min(self._steps) < max(self._steps):
            self._has_repeats = len(set(self._steps)) < len(self)
        return self._has_repeats

    def columns(self, count: int) -> list[float | None]:
        """
        Return the mean of the finite values in each of ``count`` even parts of the steps; None for an empty part.

        Values that all have one step are divided by the order in which they came.
        """
        sums, counts = [0.0] * count, [0] * count
        low, high = (min(self._steps), max(self._steps)) if self._steps else (0, 0)
        in_order = low == high
        width = len(self) - 1 if in_order else high - low
        for index, value in enumerate(self._values):
            if math.isfinite(value):
                at = index if in_order else self._steps[index] - low
                column = at * (count - 1) // width if width else 0
                sums[column] += value
                counts[column] += 1
        return [total / many if many else None for total, many in zip(sums, counts, strict=True)]


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


_CHUNK = 1 << 18
_PLAIN = b"0123456789.eE+- \n"
_COMMAS = bytes.maketrans(b" \n", b",,")


class MetricFile:
    """A metric's file that grows; each call of ``read_more`` goes on where the last one ended."""

    def __init__(self, run_dir: str, name: str, series: Series) -> None:
        """Open the file of a metric. Raises UsageError for a name that cannot be."""
        self._path = metric_path(run_dir, name)
        self._offset = 0
        self.series = series

    def read_more(self, deadline: float) -> None:
        """Read to its end, or until that time on the monotonic clock. Never raises for a file that cannot be read."""
        self.series.is_cut = False
        try:
            with open_plain(self._path) as file:
                while self._take(file):
                    if time.monotonic() > deadline or self._offset >= MOST_BYTES:
                        self.series.is_cut = True
                        return
        except OSError:
            return

    def _take(self, file: BinaryIO) -> bool:
        """Read one part; return False at the end."""
        file.seek(self._offset)
        data = file.read(_CHUNK)
        whole = data.rfind(b"\n") + 1
        # What is longer than a chunk is no line of ours.
        taken = whole or (len(data) if len(data) == _CHUNK else 0)
        if not self._take_at_once(data[:whole]):
            self._take_lines(data[:whole])
        self._offset += taken
        return len(data) == _CHUNK

    def _take_at_once(self, lines: bytes) -> bool:
        """
        Add lines that all have time, value and step, as plain numbers; return False for others.

        JSON's reader makes numbers of text faster than anything else here, and makes no object of each word.
        """
        count = lines.count(b"\n")
        if lines.count(b" ") != 2 * count or lines.translate(None, _PLAIN):
            return False
        try:
            numbers = json.loads(b"[%b0]" % lines.translate(_COMMAS))
            steps, times = array("q", numbers[2::3]), array("q", numbers[:-1:3])
            values = array("d", numbers[1::3])
        except (ValueError, TypeError, OverflowError):
            return False
        if len(numbers) != 3 * count + 1:
            return False
        self.series.add_many(steps, times, values)
        return True

    def _take_lines(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            parts = line.split(b" ")
            try:
                self.series.add(int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1]))
            except (ValueError, IndexError, OverflowError):
                continue
