"""
Ranks of first.py up to their first sum: after the start, and once more after one of them is
killed.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Launch, MeasurementError, Subject, line_count, spent_cpu_s, wait_for

_KILLED_RANK = 3  # which waits outside the sum that the others wait in
_UNDER_WAY_S = 0.5  # for the others to be in that sum


@dataclass(frozen=True)
class Joined:
    """
    Seconds from the start, or from the kill, to the last rank's first sum, and until every launch
    command has returned; cpu_s: of all from then on; kept_count: processes for the next job.
    """

    joined_s: float
    returned_s: float
    cpu_s: float
    kept_count: int


@dataclass(frozen=True)
class Sum:
    """That a rank has its first sum, at a moment in nanoseconds of CLOCK_MONOTONIC."""

    rank: int
    pid: int
    moment_ns: int


def measure_join(subject: Subject, timeout_s: float) -> Joined:
    """One start to the last rank's first sum. Raises MeasurementError."""
    run_before(subject, timeout_s)
    cpu_before_s, began_ns = spent_cpu_s(), time.monotonic_ns()
    launch = Launch(subject)
    try:
        launch.wait(timeout_s)
        return joined_since(began_ns, cpu_before_s, launch, subject)
    finally:
        launch.close()


def measure_restart(subject: Subject, timeout_s: float) -> Joined:
    """
    One kill of a rank once all have their first sum, to the last one's of the next attempt.

    Raises MeasurementError.
    """
    run_before(subject, timeout_s)
    sums, hold = subject.folder / "ranks", subject.folder / "hold"
    hold.touch()
    launch = Launch(subject)
    try:
        wait_for(lambda: line_count(sums) == subject.rank_count, timeout_s, launch, poll_s=0.02)
        time.sleep(_UNDER_WAY_S)
        hold.unlink()
        victim = next(each.pid for each in read_sums(sums) if each.rank == _KILLED_RANK)
        cpu_before_s, killed_ns = spent_cpu_s(), time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        launch.wait(timeout_s)
        return joined_since(killed_ns, cpu_before_s, launch, subject)
    finally:
        launch.close()


def run_before(subject: Subject, timeout_s: float) -> None:
    """The launch that comes first, whose sums count for nothing; what it keeps stays."""
    if not subject.before:
        return
    launch = Launch(subject, before=True)
    try:
        launch.wait(timeout_s)
    except MeasurementError:
        launch.close()
        raise
    (subject.folder / "ranks").unlink(missing_ok=True)


def joined_since(began_ns: int, cpu_before_s: float, launch: Launch, subject: Subject) -> Joined:
    """What a launch that has just returned did since; every rank has to have its sum since then."""
    returned_s = (time.monotonic_ns() - began_ns) / 1e9
    kept_count, cpu_s = launch.settle()
    sums = [each for each in read_sums(subject.folder / "ranks") if each.moment_ns > began_ns]
    if (joined := {each.rank for each in sums}) != set(range(subject.rank_count)):
        missing = f"{len(joined)} of {subject.rank_count} ranks joined"
        raise MeasurementError(f"{missing}; last line: {launch.last_line()}")
    joined_s = (max(each.moment_ns for each in sums) - began_ns) / 1e9
    return Joined(joined_s, returned_s, cpu_s - cpu_before_s, kept_count)


def read_sums(path: Path) -> list[Sum]:
    if not path.exists():
        return []
    return [Sum(*map(int, line.split())) for line in path.read_text().splitlines()]
