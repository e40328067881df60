"""Waiting for the end of jobs, and asking for it: cancel, and preempt, which takes nodes away with notice."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity, status
from drumline.contract.errors import EngineError, NotFoundError, UsageError
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover, recover_kind
from drumline.engines.engine_table import engine, is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drumline.contract.folder import RunFolder


_LONGEST_PAUSE_S = 0.1

REMOVED = "Removed"
REMOVED_CODE = 3

_SHORTEST_SLEEP_S = 0.05
_LONGEST_POLL_S = 1.0
"""Between two looks at the size of the events of a job whose supervisor is no process of this machine."""

_FULL_LOOK_S = 10.0
"""Between two full looks at a job, whatever its supervisor and its events say."""

_LONGEST_SLEEP_S = 60.0
_FREE_DESCRIPTORS = 32


def wait_for_end(folder: RunFolder, deadline: float | None = None, *, of_attempt: int | None = None) -> bool:
    """
    Block until the job has ended, or that attempt of it; False when ``deadline`` (monotonic seconds) came first.
    """
    while not (outcome := recover(folder)).is_final:
        if of_attempt is not None and len(outcome.attempts) > of_attempt:
            return True
        longest = 1.0 if of_attempt is None else _LONGEST_PAUSE_S
        left = longest if deadline is None else min(longest, deadline - time.monotonic())
        if left <= 0:
            return False
        supervisor = process_identity.open_pidfd(folder.read_json(folder.supervisor))
        if supervisor is None:
            time.sleep(min(left, _LONGEST_PAUSE_S))
            continue
        wait_until_readable((supervisor,), left)
        os.close(supervisor)
    return True


class JobEnd(NamedTuple):
    """The end of a job. ``status`` is Removed for one whose run folder was removed before it had ended."""

    name: str
    status: str
    exit_code: int
    reason: str = ""


def wait_for_jobs(folders: Iterable[RunFolder], deadline: float | None = None) -> Iterator[JobEnd]:
    """
    Return how each job ended, when it does, until ``deadline`` (monotonic seconds). Blocks, without polling for jobs
    whose supervisor is on this machine.
    """
    room = _count_descriptors() // 2
    awaited = [_AwaitedJob(folder, may_hold=at < room) for at, folder in enumerate(folders)]
    try:
        while awaited:
            for one in list(awaited):
                end = one.look()
                if end is not None:
                    awaited.remove(one)
                    one.close()
                    yield end
            left = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
            if left <= 0 or not awaited:
                return
            pause = min([left, *(one.pause_s for one in awaited)])
            wait_until_readable((one.pidfd for one in awaited), pause)
    finally:
        for one in awaited:
            one.close()


class _AwaitedJob:
    """
    A job whose events are held open: its end is known even if it was removed right after.

    ``may_hold``: whether there are descriptors for that, and for its supervisor; without them it is polled.
    """

    def __init__(self, folder: RunFolder, *, may_hold: bool) -> None:
        self._folder = folder
        self._events = (
            os.open(folder.events, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if may_hold else None
        )
        self._seen: tuple[int, int] | None = None
        self._next_look = 0.0
        self.pidfd: int | None = None
        """Of its supervisor or driver, if that is a process of this machine."""

        self.pause_s = _SHORTEST_SLEEP_S
        """How long it may be left alone."""

    def look(self) -> JobEnd | None:
        """Return how it ended; None while it goes on. Reads no events that were read before."""
        is_gone = self.pidfd is not None and wait_until_readable((self.pidfd,), 0.0)
        if self.pidfd is not None and not is_gone and time.monotonic() < self._next_look:
            return None
        try:
            facts = os.stat(self._folder.events)
            seen = (facts.st_size, facts.st_ino)
        except OSError:
            seen = None
        if self.pidfd is None and seen == self._seen and time.monotonic() < self._next_look:
            self.pause_s = min(self.pause_s * 1.5, _LONGEST_POLL_S)
            return None
        self._seen = seen
        self._next_look = time.monotonic() + _FULL_LOOK_S
        end = self._examine()
        if end is None:
            self._find_supervisor()
        return end

    def _examine(self) -> JobEnd | None:
        try:
            outcome = recover(self._folder)
        except (NotFoundError, FileNotFoundError):
            outcome = fold(())
        if not self._folder.exists():
            if self._events is not None:
                with open(os.dup(self._events), "rb") as file:
                    file.seek(0)
                    outcome = fold(event for line in file if (event := e.from_line(line)) is not None)
            if not outcome.is_final:
                return JobEnd(
                    self._folder.name, REMOVED, REMOVED_CODE, "it was removed while it was under way"
                )
        if not outcome.is_final:
            return None
        code = outcome.exit_code
        if code is None:
            code = 0 if outcome.status == status.COMPLETED else 1
        return JobEnd(self._folder.name, outcome.status, code, outcome.reason)

    def _find_supervisor(self) -> None:
        self._close_pidfd()
        if self._events is not None:
            self.pidfd = process_identity.open_pidfd(self._folder.read_json(self._folder.supervisor))
        self.pause_s = _SHORTEST_SLEEP_S if self.pidfd is None else _FULL_LOOK_S

    def _close_pidfd(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def close(self) -> None:
        self._close_pidfd()
        if self._events is not None:
            os.close(self._events)
            self._events = None


def _count_descriptors() -> int:
    """Return how many more files this process may hold open, with some left for reading others."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, most - len(os.listdir("/proc/self/fd")) - _FREE_DESCRIPTORS)


def wait_until_readable(descriptors: Iterable[int | None], seconds: float) -> bool:
    """Wait until one is readable or the time is over, and return which it was. None stands for no descriptor."""
    # By poll, which takes descriptors above 1023 too.
    poller = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))


# cancel


def cancel(name: str, *, at_once: bool = False, by: str = "") -> bool:
    """
    Ask for the job's end and return; ``at_once`` is without the grace period. False when it has ended already.

    ``by``: who asks, for the reason; default the user. May be called again. Raises NotFoundError.
    """
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.is_final:
        return False
    request(folder, at_once=at_once, by=by)
    wake(folder)
    if is_elsewhere(outcome.engine):
        # One that waits has no supervisor that would see the request. Where nobody answers, whoever looks tries again.
        with contextlib.suppress(EngineError):
            engine(outcome.engine).withdraw(folder)
    return True


def request(folder: RunFolder, *, at_once: bool = False, by: str = "") -> None:
    """Leave the request for the process that looks after the job, now or when it begins. Raises OSError."""
    folder.write(folder.cancel, json.dumps({"by": by or user(), "at_once": at_once}))


def wake(folder: RunFolder) -> None:
    """Have its supervisor look for requests now; it does so every second or two anyway."""
    pidfd = process_identity.open_pidfd(folder.read_json(folder.supervisor))
    if pidfd is not None:
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            pass
        finally:
            os.close(pidfd)


# preempt


def preempt(name: str, node: int | None = None) -> int:
    """
    Ask for it and return the number of the attempt that ends so. ``node``: None takes all nodes away.

    Raises NotFoundError; UsageError for a job whose ranks do not run, and for a node that it has not.
    """
    folder, outcome = recover_kind(name, "command", "it has jobs, and those have ranks")
    if outcome.is_final or not outcome.ranks:
        raise UsageError(f"job {name} is {outcome.status}: it has no ranks that run")
    nodes = len(Plan.read(folder.plan).nodes)
    if node is not None and not 0 <= node < nodes:
        has = "node 0" if nodes == 1 else f"nodes 0 to {nodes - 1}"
        raise UsageError(f"--node: there is no node {node}", f"job {name} has {has}")
    attempt = len(outcome.attempts)
    folder.write(folder.preempt, json.dumps({"by": user(), "node": node, "attempt": attempt}))
    wake(folder)
    return attempt
