"""
Processes found by a mark that they carry in their environment or command line, wherever they
went.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def enter_scratch() -> Iterator[Path]:
    """
    A folder of its own, in which jobs are kept; what was started there is killed at the end.

    A RuntimeError or a command that failed ends the benchmark with its sentence.
    """
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        folder = Path(scratch).resolve()
        os.environ["DRUMLINE_HOME"] = str(folder / "home")
        try:
            yield folder
        except (RuntimeError, subprocess.CalledProcessError) as error:
            sys.exit(str(error))
        finally:
            kill_marked(str(folder))
            assert not marked_pids(str(folder))


def become_subreaper() -> None:
    """
    Have orphans below us handed to us, so that their CPU time counts and their end is seen. Linux
    only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def marked_pids(mark: str) -> set[int]:
    """
    The living processes, without this one, that have the mark; zombies have neither and are not
    found.
    """
    wanted = mark.encode()
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            folder = Path("/proc", name)
            if wanted in (folder / "environ").read_bytes() or wanted in (folder / "cmdline").read_bytes():
                found.add(int(name))
    return found


def reap_orphans(timeout_s: float) -> bool:
    """
    Wait for every child of ours, adopted ones too; False where some are alive after timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)


def kill_marked(mark: str, timeout_s: float = 10.0) -> None:
    """Kill every process that has the mark, until there is none or timeout_s has passed."""
    _kill(lambda: marked_pids(mark), timeout_s)


def kill_descendants(timeout_s: float = 10.0) -> None:
    """
    Kill every process below this one, until there is none or timeout_s has passed.

    Finds what has no mark any more; for one who has become the subreaper.
    """
    _kill(lambda: set(descendants_cpu_s()), timeout_s)


def descendants_cpu_s() -> dict[int, float]:
    """
    By process below this one: its user and system time, with that of the children that it has
    waited for.
    """
    children: dict[int, list[int]] = {}
    cpu_s: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may have blanks: state, ppid, ..., utime is the 12th.
                fields = Path("/proc", name, "stat").read_text().rpartition(") ")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
                cpu_s[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found: dict[int, float] = {}
    waiting = children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        found[pid] = cpu_s[pid]
        waiting += children.get(pid, [])
    return found


def _kill(find: Callable[[], set[int]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while (pids := find()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap_orphans(0.05)
