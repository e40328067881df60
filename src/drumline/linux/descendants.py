"""
Everything below a process, and its end.

The caller adopts orphans (``kernel.adopt_orphans``), so whatever its children start, daemons and new sessions
included, stays below it; numbers cannot be given to strangers meanwhile, since it has not reaped them yet.

What a fork server has forked (``node/warm/fork_server.py``) is below that: a process elsewhere that reaps for the
caller, and whose descendants count as the caller's. It is itself not one of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.linux import process_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Protocol

    class Reaper(Protocol):
        """A process whose children are ours to look after."""

        pid: int
        aside: int
        """A child of this process that is the other's own business, with all that is below it; 0: there is none."""

        def reap(self) -> list[EndedProcess]:
            """Return the children that have ended since the last call; does not block."""


_REAP_INTERVAL_S = 0.05
_SHELLS = ("bash", "dash", "sh", "zsh", "ksh", "ksh93", "mksh", "ash", "csh", "tcsh", "fish", "busybox")


def list_descendants(pid: int) -> list[int]:
    """Return every live or unreaped process below ``pid``, parents before children."""
    found = list_children(pid)
    for child in found:  # It grows meanwhile.
        found += list_children(child)
    return found


def list_all_below(other: Reaper | None = None) -> list[int]:
    """Return the descendants of this process and of the other."""
    found = list_own_children(other)
    return found + [pid for child in found for pid in list_descendants(child)]


def list_own_children(other: Reaper | None) -> list[int]:
    """Return the children of this process and of the other, ended ones too."""
    own = list_children(os.getpid())
    return [*(pid for pid in own if pid != other.aside), *list_children(other.pid)] if other else own


def signal_all(number: int, spared: Collection[int] = (), other: Reaper | None = None) -> int:
    """Signal everything below this process but ``spared`` and their descendants; return how many there were."""
    below = list_all_below(other)
    if spared:
        left_alone = {one for pid in spared for one in (pid, *list_descendants(pid))}
        below = [pid for pid in below if pid not in left_alone]
    for pid in below:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
    return len(below)


def ask_to_end(spared: Collection[int] = (), other: Reaper | None = None) -> set[int]:
    """
    Send SIGTERM once to everything below this process but ``spared`` and their descendants; return whom it was sent to.

    Who handles that signal decides for what it started: workers that load its data are there while it saves. What
    others have started is told too, and what a shell has: that heeds a trap only when the command that it runs has
    ended.
    """
    told: list[int] = []
    waiting = list_own_children(other)
    while waiting:
        pid = waiting.pop()
        if pid in spared:
            continue
        if not handles_sigterm(pid) or is_shell(pid):
            waiting += list_children(pid)
        told.append(pid)
    # All are known before the first is told: what a shell has started is elsewhere as soon as that has ended.
    for pid in told:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return set(told)


def is_shell(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS
    except OSError:
        return False


def handles_sigterm(pid: int) -> bool:
    """Return whether it handles SIGTERM; a process that blocks it takes it by sigwait or a descriptor."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            sets = [int(line.split()[1], 16) for line in file if line.startswith((b"SigCgt:", b"SigBlk:"))]
    except OSError:
        return False
    return any(signals >> (signal.SIGTERM - 1) & 1 for signals in sets)


class EndedProcess(NamedTuple):
    pid: int
    exit_code: int
    """The number of a signal that killed it is negative."""

    peak_bytes: int
    """The most memory that it, or the largest of what it waited for, had at a time."""

    cpu_s: float
    """Its own, and that of what it waited for."""


def reap_children(other: Reaper | None = None) -> list[EndedProcess]:
    """Reap the children that have ended, and return them; does not block."""
    ended = other.reap() if other else []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        cpu_s = usage.ru_utime + usage.ru_stime
        ended.append(EndedProcess(pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, cpu_s))


def has_children(other: Reaper | None = None) -> bool:
    """Return whether this process has a child, ended or not."""
    if other:
        return bool(list_own_children(other))
    try:
        # WNOWAIT leaves an ended child to be reaped by whoever wants its status.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_descendants(
    grace_s: float,
    limit_s: float = 5.0,
    *,
    told: Collection[int] = (),
    told_until: float | None = None,
    is_urgent: Callable[[], bool] = lambda: False,
    other: Reaper | None = None,
) -> tuple[list[EndedProcess], list[int]]:
    """
    Send SIGTERM to everything below this process and SIGKILL after ``grace_s``, until nothing is left.

    ``told``: who was sent SIGTERM before, and is not again; those have until ``told_until`` (monotonic seconds), or
    until ``is_urgent``.

    Returns (what ended; what even SIGKILL did not end within ``limit_s``). Blocks.
    """
    ended = reap_children(other)
    if not has_children(other):
        return ended, []
    deadline = time.monotonic() + grace_s
    if grace_s > 0:
        signal_all(signal.SIGTERM, told, other)
        ended += _reap_until(deadline, other)
        while told_until and time.monotonic() < told_until and not is_urgent():
            if not set(told).intersection(list_all_below(other)):
                break
            ended += _reap_until(min(told_until, time.monotonic() + _REAP_INTERVAL_S), other)
    deadline = time.monotonic() + limit_s
    while has_children(other) and time.monotonic() < deadline:
        # Again and again: a process may have forked between the look and the signal.
        signal_all(signal.SIGKILL, other=other)
        ended += _reap_until(min(deadline, time.monotonic() + _REAP_INTERVAL_S), other)
    return ended, list_all_below(other)


def _reap_until(deadline: float, other: Reaper | None) -> list[EndedProcess]:
    ended = reap_children(other)
    pause = 0.001
    while has_children(other) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
        ended += reap_children(other)
    return ended


def list_children(pid: int) -> list[int]:
    """Return the children of all its threads; empty when it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    below: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                below += [int(child) for child in file.read().split()]
        except FileNotFoundError:
            if not os.path.exists("/proc/self/task"):
                return []
            if not os.path.exists(f"/proc/{pid}"):
                return below
            # A kernel without CONFIG_PROC_CHILDREN.
            others = [int(name) for name in os.listdir("/proc") if name.isdigit()]
            return [one for one in others if (stat := process_usage.read_stat(one)) and stat.parent == pid]
        except OSError:
            continue
    return below
