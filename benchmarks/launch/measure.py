"""
One start, or one stop, of a contender: started, watched to its end, verified, and cleaned up
after.
"""

import contextlib
import os
import resource
import select
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from contenders import Command
from environment import last_line
from processes import descendants_cpu_s, kill_descendants, kill_marked, marked_pids, reap_orphans

# What may go on for a while after the launch command has returned, and still counts as CPU time
# of the launch.
_SETTLE_S = 10.0
_QUIET_S = 0.3
_MARK = "BENCHMARK_MARK"


class MeasurementError(Exception):
    """
    The contender did not do what was asked; the message is its last line, or what was missing.
    """


@dataclass(frozen=True)
class Start:
    """
    wall_s: until every launch command has returned; cpu_s: of all that it started, also of what
    outlived the command.
    """

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Stop:
    """
    Seconds from the failure to the end of the last rank, and of the last process; None where they
    stayed.
    """

    ranks_gone_s: float | None
    all_gone_s: float | None
    left_count: int


@dataclass(frozen=True)
class Subject:
    """
    What is started in `folder`, with the variables of all contenders.

    before: a launch that comes first and is not measured; closing: ends what the launcher keeps for
    its next job, where it keeps something.
    """

    commands: list[Command]
    folder: Path
    variables: dict[str, str]
    rank_count: int
    before: list[Command] = field(default_factory=list)
    closing: Command | None = None


class Launch:
    """The processes of one launch, with a folder of their own whose path is also their mark."""

    def __init__(self, subject: Subject, *, before: bool = False) -> None:
        """With before=True it is the launch that comes first."""
        self.mark = str(subject.folder)
        self._subject = subject
        self._output = subject.folder / ("output-before" if before else "output")
        self._pidfds: dict[int, int] = {}
        with self._output.open("wb") as output:
            for command in subject.before if before else subject.commands:
                process = subprocess.Popen(
                    command.argv,
                    env={**subject.variables, **command.variables, _MARK: self.mark},
                    cwd=subject.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._pidfds[process.pid] = os.pidfd_open(process.pid)
                process.returncode = 0  # we wait for it ourselves

    def wait(self, timeout_s: float) -> None:
        """Wait for every launch command. Raises MeasurementError for a late or failed one."""
        if not wait_gone(self._pidfds.values(), timeout_s):
            raise MeasurementError(f"not done within {timeout_s:g} s; last line: {self.last_line()}")
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self._pidfds]
        if any(codes):
            raise MeasurementError(f"exit codes {codes}; last line: {self.last_line()}")

    def settle(self) -> tuple[int, float]:
        """
        Wait until all of it has ended, but for what is kept for the next job, and return how many
        processes those are, and the `spent_cpu_s` of then; after that, end them.

        Raises MeasurementError for what stays without being asked to.
        """
        if self._subject.closing is None:
            if not reap_orphans(_SETTLE_S):
                raise MeasurementError(f"processes left {_SETTLE_S:g} s after its end")
            return 0, spent_cpu_s()
        kept_count = wait_quiet(_SETTLE_S)
        cpu_s = spent_cpu_s()
        if kept_count:
            self._close_kept(self._subject.closing)
        return kept_count, cpu_s

    def _close_kept(self, closing: Command) -> None:
        done = subprocess.run(
            closing.argv,
            env={**self._subject.variables, **closing.variables, _MARK: self.mark},
            cwd=self._subject.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not reap_orphans(_SETTLE_S):
            said = last_line(done.stdout + done.stderr)
            raise MeasurementError(f"processes left after {' '.join(closing.argv[1:])}; last line: {said}")

    def is_over(self) -> bool:
        """Whether every launch command has ended."""
        return wait_gone(self._pidfds.values(), 0)

    def last_line(self) -> str:
        return last_line(self._output.read_text(errors="replace"))

    def close(self) -> None:
        """End whatever is left of it."""
        kill_marked(self.mark)
        kill_descendants()
        reap_orphans(1.0)
        for pidfd in self._pidfds.values():
            os.close(pidfd)


def measure_start(subject: Subject, timeout_s: float) -> Start:
    """One start of ranks that add a byte each to `folder`/ranks. Raises MeasurementError."""
    cpu_before_s = spent_cpu_s()
    ranks = subject.folder / "ranks"
    began = time.perf_counter()
    launch = Launch(subject)
    try:
        launch.wait(timeout_s)
        wall_s = time.perf_counter() - began
        _, cpu_s = launch.settle()
        ran_count = ranks.stat().st_size if ranks.exists() else 0
        if ran_count != subject.rank_count:
            missing = f"{ran_count} of {subject.rank_count} ranks ran"
            raise MeasurementError(f"{missing}; last line: {launch.last_line()}")
        return Start(wall_s, cpu_s - cpu_before_s)
    finally:
        launch.close()


def measure_stop(subject: Subject, timeout_s: float) -> Stop:
    """
    One failure of rank 3 of failing.py, and the end of all others within timeout_s.

    Ends are seen through pidfds, as they happen and without a poll that would take the CPU from
    the contender;
    processes that appear after the failure are looked for every millisecond once those are gone.
    Raises MeasurementError when the ranks do not start.
    """
    folder = subject.folder
    launch = Launch(subject)
    watched: dict[int, int] = {}
    try:
        wait_for(lambda: line_count(folder / "ranks") == subject.rank_count, 60.0, launch)
        ranks = {int(pid) for pid in (folder / "ranks").read_text().split()}
        watched = open_pidfds(ranks | marked_pids(launch.mark))
        if not ranks <= watched.keys():
            raise MeasurementError(f"a rank ended before its time; last line: {launch.last_line()}")
        (folder / "go").touch()
        wait_for(lambda: line_count(folder / "failed", complete=False) > 0, 10.0, launch)
        failed_s = int((folder / "failed").read_text()) / 1e9
        deadline = failed_s + timeout_s

        gone = wait_gone([watched[pid] for pid in ranks], deadline - time.monotonic())
        ranks_gone_s = time.monotonic() - failed_s if gone else None
        all_gone = gone and wait_gone(watched.values(), deadline - time.monotonic())
        while all_gone and marked_pids(launch.mark):
            reap_orphans(0.001)
            all_gone = time.monotonic() < deadline
        all_gone_s = time.monotonic() - failed_s if all_gone else None
        return Stop(ranks_gone_s, all_gone_s, len(marked_pids(launch.mark)))
    finally:
        launch.close()
        for pidfd in watched.values():
            os.close(pidfd)


def open_pidfds(pids: Iterable[int]) -> dict[int, int]:
    """A pidfd for each of these processes that is still there."""
    opened = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            opened[pid] = os.pidfd_open(pid)
    return opened


def wait_gone(pidfds: Iterable[int], timeout_s: float) -> bool:
    """Wait until each of these processes has ended; False after timeout_s."""
    deadline = time.monotonic() + timeout_s
    poller = select.poll()
    waiting = set(pidfds)
    for pidfd in waiting:
        poller.register(pidfd, select.POLLIN)
    while waiting:
        left_s = max(0.0, deadline - time.monotonic())
        ended = poller.poll(left_s * 1000)
        for pidfd, _ in ended:
            poller.unregister(pidfd)
            waiting.discard(pidfd)
        if not ended and left_s == 0:
            break
    return not waiting


def wait_for(
    condition: Callable[[], bool], timeout_s: float, launch: Launch, *, poll_s: float = 0.002
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if launch.is_over() and not condition():
            raise MeasurementError(f"it ended too early; last line: {launch.last_line()}")
        if time.monotonic() >= deadline:
            raise MeasurementError(f"not ready within {timeout_s:g} s; last line: {launch.last_line()}")
        time.sleep(poll_s)


def line_count(path: Path, *, complete: bool = True) -> int:
    """The lines of a file that may not be there yet; with complete=False its characters."""
    if not path.exists():
        return 0
    text = path.read_text()
    return text.count("\n") if complete else len(text)


def wait_quiet(timeout_s: float) -> int:
    """
    Wait until every process below us has ended, or uses no CPU time any more; return how many are
    left.

    Raises MeasurementError where they are still busy after timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    seen, quiet_since = {-1: 0.0}, time.monotonic()
    while not reap_orphans(0):
        now = descendants_cpu_s()
        if now != seen:
            seen, quiet_since = now, time.monotonic()
        elif time.monotonic() - quiet_since >= _QUIET_S:
            return len(now)
        if time.monotonic() >= deadline:
            raise MeasurementError(f"processes still busy {timeout_s:g} s after its end")
        time.sleep(0.02)
    return 0


def spent_cpu_s() -> float:
    """User and system time of all that was ever below us, what still runs included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + sum(descendants_cpu_s().values())
