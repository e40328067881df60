"""
The job queue of this machine: running and waiting jobs, in order, in one small file that every supervisor may change.

An entry whose supervisor is gone counts for nothing, and the next reader drops it: no daemon is needed and nothing
leaks. Cores are counted, not named: a rank may use all cores of its node (``resources.split``).
GPUs are named, because two jobs that share a GPU run out of its memory. ``LocalAllocation`` is what one job has of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.folder import RunFolder, base_home, open_text, private_folder, write_whole
from drumline.contract.ownership import lock_file
from drumline.contract.record import NamedTuple
from drumline.engines.base import Allocation, NextAttempt, Preemption, SignalMeaning
from drumline.engines.local import resources
from drumline.node import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.events import EndKind
    from drumline.contract.plan import Plan


_LOCK_TIMEOUT_S = 1.0
_TRIES = 10
"""To leave the queue: another process holds the lock for milliseconds, or is stopped."""

_KINDS: dict[str, type | tuple[type, ...]] = {
    "job": str,
    "who": dict,
    "cores": int,
    "gpu_count": int,
    "gpus": (list, tuple),
    "running": bool,
    "folder": str,
    "top": str,
}
_NEEDED = {"job", "who", "cores", "gpu_count", "gpus", "running"}
_LEGIBLE = re.compile(r'"(job|folder|pid|started|boot|space)":\s*(?:(\d{1,18})|"([^"\\]*)")')
"""What a line that is not JSON any more still says of a job and its supervisor."""


class QueueEntry:
    """One job in the queue. ``who``: the identity of its supervisor. ``folder``: its run folder; names may repeat."""

    def __init__(
        self,
        job: str,
        who: dict[str, Any],
        cores: int,
        gpu_count: int,
        gpus: tuple[str, ...] = (),
        running: bool = False,
        folder: str = "",
        rest: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.job = job
        self.who = who
        self.cores = cores
        self.gpu_count = gpu_count
        self.gpus = tuple(gpus)
        self.running = running
        self.folder = folder
        self.top = ""
        """The pipeline or sweep that it is part of; empty for none."""

        self._rest = rest
        """Keys that another version of Drumline has written."""

        self.is_damaged = False
        """Its supervisor lives, but its position or its resources cannot be read."""

    def as_data(self) -> dict[str, Any]:
        return {**self._rest, **{name: getattr(self, name) for name in _KINDS}}


class Blocked(NamedTuple):
    """The reason why a job waits, the supervisors whose end may change that, and the number of jobs ahead of it."""

    reason: str
    holders: tuple[dict[str, Any], ...]
    ahead: int = 0


class JobQueue:
    """The queue file of one machine. ``cores``, ``gpus``: of the whole machine."""

    def __init__(self, folder: str, cores: int, gpus: tuple[str, ...]) -> None:
        # The names of every version that may run at the same time.
        self._path = os.path.join(folder, "line.json")
        self._lock = os.path.join(folder, "line.lock")
        self._cores = cores
        self._gpus = gpus
        self.dropped: list[QueueEntry] = []
        """Entries of killed supervisors that this process has removed; it has to clean up after them."""

        private_folder(folder)

    def advance(self, entry: QueueEntry) -> Blocked | None:
        """Join the queue if not in it, and start if it is this job's turn: None, and ``entry.gpus`` is filled in."""
        try:
            return self._advance(entry)
        except BlockingIOError:
            return Blocked("waiting for the queue lock", ())

    def _advance(self, entry: QueueEntry) -> Blocked | None:
        with self._entries() as entries:
            mine = next((other for other in entries if _is_of(other, entry.who)), None)
            if mine is None:
                mine = entry
                entries.append(mine)
            elif mine.is_damaged:
                entries[entries.index(mine)] = mine = entry
            if mine.running:
                entry.gpus = mine.gpus
                return None
            ahead = [other for other in entries[: entries.index(mine)] if not other.running]
            running = [other for other in entries if other.running]
            blocked = self._find_blocker(mine, ahead, running)
            if blocked is None:
                taken = {gpu for other in running for gpu in other.gpus}
                free = [gpu for gpu in self._gpus if gpu not in taken]
                mine.running, mine.gpus = True, tuple(free[: mine.gpu_count])
                entry.running, entry.gpus = True, mine.gpus
                self._wake_first(entries)
            return blocked

    def leave(self, who: dict[str, Any]) -> None:
        """Remove that supervisor's entry, and free its resources. No error when there is none."""
        for _ in range(_TRIES):
            try:
                with self._entries() as entries:
                    entries[:] = [entry for entry in entries if not _is_of(entry, who)]
                    self._wake_first(entries)
            except BlockingIOError:
                continue
            except OSError:
                # The entry counts for nothing as soon as this process has ended.
                return
            return

    def list_entries(self) -> list[QueueEntry]:
        """Return the live entries in order, without the lock: nothing is changed."""
        try:
            return [entry for entry in self._read() if process_identity.is_alive(entry.who)]
        except OSError:
            return []

    def explain(self, entry: QueueEntry, entries: list[QueueEntry]) -> Blocked | None:
        """Return why one of these entries waits; None if it could start."""
        ahead = [other for other in entries[: entries.index(entry)] if not other.running]
        return self._find_blocker(entry, ahead, [other for other in entries if other.running])

    @staticmethod
    def _wake_first(entries: list[QueueEntry]) -> None:
        """Wake the first waiting supervisor; no job behind it can start."""
        first = next((entry for entry in entries if not entry.running), None)
        pidfd = process_identity.open_pidfd(first.who) if first else None
        if pidfd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
            os.close(pidfd)

    def _find_blocker(
        self, mine: QueueEntry, ahead: list[QueueEntry], running: list[QueueEntry]
    ) -> Blocked | None:
        cores = [(_describe_job(one, mine), one.cores) for one in running]
        gpus = [(_describe_job(one, mine), len(one.gpus)) for one in running]
        for what, want, have, held in (
            ("cores", mine.cores, self._cores, cores),
            ("GPUs", mine.gpu_count, len(self._gpus), gpus),
        ):
            free = have - sum(count for _, count in held)
            if want > free:
                names = " and ".join(f"job {job}" for job, count in held if count)
                reason = f"waiting for {min(want, want - free)} of {want} {what} held by {names}"
                if ahead:
                    reason += f"; {len(ahead)} ahead in the queue"
                holders = (ahead[-1].who,) if ahead else tuple(entry.who for entry in running)
                return Blocked(reason, holders, len(ahead))
        if ahead:
            first = ahead[0]
            reason = f"waiting behind job {_describe_job(first, mine)} in the queue"
            return Blocked(reason, (ahead[-1].who,), len(ahead))
        return None

    @contextlib.contextmanager
    def _entries(self) -> Iterator[list[QueueEntry]]:
        """Yield the live entries in order, under the lock, and write them back."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(lock, self._lock)
            entries: list[QueueEntry] = []
            before = self._read()
            written = _as_text(before)
            for entry in before:
                (entries if process_identity.is_alive(entry.who) else self.dropped).append(entry)
            yield entries
            text = _as_text(entries)
            if text != written:
                write_whole(self._path, text)
        finally:
            os.close(lock)

    def _read(self) -> list[QueueEntry]:
        try:
            with open_text(self._path, "replace") as file:
                text = file.read()
        except FileNotFoundError:
            return []
        return [entry for data in _parse_file(text) if (entry := self._parse_entry(data)) is not None]

    def _parse_entry(self, data: object) -> QueueEntry | None:
        """
        Return one entry, or None where it does not name its supervisor.

        Keys of another version are kept. A live entry whose resources cannot be read counts as running on the whole
        machine: granting its GPUs to a second job is worse than letting that one wait.
        """
        who = data.get("who") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(who, dict) or type(who.get("pid")) is not int:
            return None
        known: dict[str, Any] = {
            name: data[name] for name, kind in _KINDS.items() if isinstance(data.get(name), kind)
        }
        rest = {name: value for name, value in data.items() if name not in _KINDS}
        if _is_possible(known):
            top = known.pop("top", "")
            entry = QueueEntry(**known, rest=rest)
            entry.top = top
            return entry
        job, folder = (known.get(name, "") for name in ("job", "folder"))
        damaged = QueueEntry(
            job or f"of process {who['pid']}", who, self._cores, 0, self._gpus, True, folder, rest
        )
        damaged.is_damaged = True
        return damaged


def _is_of(entry: QueueEntry, who: dict[str, Any]) -> bool:
    """Return whether the entry is of that supervisor, as far as a damaged one still names it."""
    return entry.who.items() <= who.items()


def _is_possible(known: Mapping[str, Any]) -> bool:
    """Return whether these are values that a supervisor writes: none missing, and none that holds less than nothing."""
    if not known.keys() >= _NEEDED or not all(isinstance(gpu, str) for gpu in known["gpus"]):
        return False
    has_its_gpus = not known["running"] or len(known["gpus"]) == known["gpu_count"]
    return min(known["cores"], known["gpu_count"]) >= 0 and has_its_gpus


def _parse_file(text: str) -> list[object]:
    """Parse the file. Each entry has a line of its own, so the other lines of a damaged file still count."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [_parse_line(line.strip().strip("[],")) for line in text.splitlines()]
    return whole if isinstance(whole, list) else []


def _parse_line(line: str) -> object:
    """Parse one line of a damaged file; of one that cannot be parsed, return its job and its supervisor alone."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        legible = {name: int(number) if number else text for name, number, text in _LEGIBLE.findall(line)}
        return {**{name: legible.pop(name) for name in ("job", "folder") if name in legible}, "who": legible}


def _describe_job(entry: QueueEntry, seen_by: QueueEntry) -> str:
    """Return the job's name, the pipeline or sweep that it is of, and its workspace where that is another one."""
    folder, mine = RunFolder(entry.folder), RunFolder(seen_by.folder)
    name = f"{entry.job} of job {entry.top}" if entry.top else entry.job
    if not entry.folder or folder.root == mine.root:
        return name
    return f"{name} of workspace {folder.workspace}" if folder.workspace else f"{name} of no workspace"


def _as_text(entries: list[QueueEntry]) -> str:
    """Format a JSON list with a line for each entry."""
    return "[" + ",\n".join(json.dumps(entry.as_data()) for entry in entries) + "]"


def _lock(descriptor: int, path: str) -> None:
    """
    Take the lock. Raises BlockingIOError when it is still held after a second: its holder may be stopped; EngineError
    where there are no locks.
    """
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return lock_file(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


# Cores and GPUs of this machine for one job, from the machine's queue.


_QUEUE_POLL_S = 0.5
"""
For the first job in the queue: the end of a running job wakes it at once, this is for everything else. Jobs behind it
check less often, so that a thousand of them cost next to nothing; the one that starts wakes the next.
"""

_LONGEST_QUEUE_POLL_S = 120.0
_CANCEL_POLL_S = 2.0
"""A cancel from this machine wakes the supervisor at once."""


class LocalAllocation(Allocation):
    """A job's place in the queue, and the cores and GPUs that it gets there."""

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan = plan
        self._folder = folder
        self._who = process_identity.identify_process(os.getpid()) or {}
        self._gpus = resources.gpus()
        self._queue = JobQueue(
            os.path.join(base_home(), "engines", "local", process_identity.name_machine()),
            len(resources.cores()),
            self._gpus,
        )
        self.gpus: tuple[str, ...] = ()
        """Those that the queue has granted."""

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        wanted_gpus = min(sum(node.gpu_count for node in self._plan.nodes), len(self._gpus))
        cores = min(self._plan.cores_wanted, len(resources.cores()))
        entry = QueueEntry(self._plan.job, self._who, cores, wanted_gpus, folder=self._folder.path)
        top = self._plan.user_env.get("AZUREML_ROOT_RUN_ID", "")
        entry.top = "" if top == self._plan.job else top
        told = ""
        while (blocked := self._queue.advance(entry)) is not None:
            if blocked.reason != told:
                told = blocked.reason
                on_wait(told)
            self._clear_dropped()
            pause_s = min(_LONGEST_QUEUE_POLL_S, _QUEUE_POLL_S * (1 + blocked.ahead) ** 1.5)
            again = time.monotonic() + pause_s
            while not _wait_for_any(blocked.holders, wake, again) and not canceled():
                pass
            if canceled():
                self._queue.leave(self._who)
                return False
        self._clear_dropped()
        self.gpus = entry.gpus
        return True

    def _clear_dropped(self) -> None:
        for entry in self._queue.dropped:
            leftovers.clear_leftovers(
                RunFolder(entry.folder) if entry.folder else RunFolder.for_job(entry.job, base_home())
            )
        self._queue.dropped.clear()

    def decide_next(self, end_kind: EndKind, *, progressed: bool) -> NextAttempt:
        # A job that lost one of its nodes keeps the others, and the resources of that one for a new one.
        return NextAttempt("queue" if end_kind == "preemption" else "same nodes")

    def release(self) -> None:
        self._queue.leave(self._who)


class LocalPreemption(Preemption):
    """A signal to the supervisor ends the job, one to an agent takes its node away."""

    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        return SignalMeaning("cancel" if node is None else "node preemption", by)


def _wait_for_any(holders: tuple[dict[str, object], ...], wake: int, deadline: float) -> bool:
    """
    Wait until one of them ends, or ``wake`` is readable, or the deadline (monotonic seconds); False after a moment in
    which none of that happened.
    """
    pidfds = [pidfd for holder in holders if (pidfd := process_identity.open_pidfd(holder)) is not None]
    try:
        if len(pidfds) < len(holders):
            return True
        poller = select.poll()
        for descriptor in (wake, *pidfds):
            poller.register(descriptor, select.POLLIN)
        left_s = max(0.0, deadline - time.monotonic())
        ready = [descriptor for descriptor, _ in poller.poll(min(left_s, _CANCEL_POLL_S) * 1000)]
        if wake in ready:
            os.read(wake, 512)
        return bool(ready) or left_s <= _CANCEL_POLL_S
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
