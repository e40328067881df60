"""Memory and disks that ran out: kills by the kernel, by its counts and its log, and writes to a full disk."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from drumline.contract.record import compile_late
from drumline.contract.words import format_size
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drumline.contract.evidence import NotedException


_COUNT_INTERVAL_S = 1.0
_LOG_TIMEOUT_S = 0.2

_KILLED = compile_late(
    rb"[Oo]ut of memory[^\n]*: Killed process (\d{1,9}) (?:[^\n]{0,200}?\banon-rss:(\d{1,15})kB)?"
)
"""Source: the kernel's mm/oom_kill.c, __oom_kill_process, which counts first and then kills and logs."""

_WHOLE_MACHINE = "/proc/vmstat"
_SMALL_SHARE = 100
"""One of so many parts of the memory: the kernel kills what uses most of it."""

_INITIAL_PIDS = "pid:[4026531836]"
"""The namespace whose numbers the log has. Source: the kernel's proc_ns.h, PROC_PID_INIT_INO."""


class OomWatcher:
    """Tells whether the kernel ended a process for want of memory lately, on this node."""

    def __init__(self) -> None:
        self._files = _list_counters()
        self._log = _open_kernel_log()
        self._killed: dict[int, int] = {}
        """By its number, the memory of each process that the log names, in bytes."""

        self._latest = self._earlier = self._counts()
        self._next = time.monotonic() + _COUNT_INTERVAL_S

    def _counts(self) -> list[int]:
        return [_read_count(file) for file in self._files]

    def look(self) -> None:
        """Count the kills; to be called often: a count of a second or two ago is of another process's end."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _COUNT_INTERVAL_S
            self._earlier, self._latest = self._latest, self._counts()

    def ran_out(self, pids: Collection[int], peak_bytes: int) -> bool:
        """
        Return whether memory ran out. ``pids``: processes that have ended, which the kernel's log may name;
        ``peak_bytes``: what the largest of them and of those that they waited for has used.
        """
        self._read_log()
        if not self._killed.keys().isdisjoint(pids):
            return True
        rose = {file for file, now, before in zip(self._files, self._counts(), self._earlier) if now > before}
        if not rose:
            return False
        if self._log >= 0 and _has_initial_pids():
            deadline = time.monotonic() + _LOG_TIMEOUT_S
            while not self._killed and time.monotonic() < deadline:
                time.sleep(0.01)
                self._read_log()
            # Below a shell it has another number, and was never larger than the shell has seen.
            return (
                not self._killed.keys().isdisjoint(pids)
                or min(self._killed.values(), default=0) <= peak_bytes
            )
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return rose != {_WHOLE_MACHINE} or peak_bytes * _SMALL_SHARE >= machine_bytes

    def _read_log(self) -> None:
        while self._log >= 0:
            try:
                # A record at a time. Source: the kernel's Documentation/ABI/testing/dev-kmsg.
                record = os.read(self._log, 1 << 14)
            except BrokenPipeError:  # some were overwritten before they were read
                continue
            except OSError:
                return
            self._killed.update((int(pid), int(size or 0) << 10) for pid, size in _KILLED.findall(record))


def _open_kernel_log() -> int:
    """Open the kernel's log for what comes from now on; -1 where only others may read it."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        return -1
    return descriptor


def _list_counters() -> list[str]:
    """List the files that count: our own control group's where it counts all below it, else the whole machine's too."""
    files = [_WHOLE_MACHINE]
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            path = path.rstrip("/")
            if not controllers and _read_count(f"/sys/fs/cgroup{path}/memory.events") >= 0:
                return [f"/sys/fs/cgroup{path}/memory.events"]
            if "memory" in controllers.split(","):
                files.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    return files


def _has_initial_pids() -> bool:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid") == _INITIAL_PIDS
    return False


def _read_count(file: str) -> int:
    """Return the count of a file; -1 when it does not count."""
    try:
        with open(file) as opened:
            for line in opened:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return -1


# Files that could not be written because their disk was full, which not every library says.


_FAILED_WRITE = compile_late(
    r"No space left on device"
    # PyTorch's writer of archives, and what C++ says of a stream.
    r"|PytorchStreamWriter failed|inline_container\.cc|iostream error"
    # NumPy's tofile.
    r"|\d+ requested and \d+ written"
)
_SHARED_MEMORY_NAMES = compile_late(r"/dev/shm\b|</torch_\d")  # noqa: S108 - a word of messages
"""The second is PyTorch's name of a tensor there."""

_FULL_BYTES = 1 << 20
"""A write that fails may leave less than a block of it."""


def describe_full_disk(ones: Iterable[NotedException], cwd: str) -> str:
    """
    Return ``the disk of /ckpt has 0 B of 512 MiB free``; empty where the failures are others.

    The file is what PyTorch was saving to, else it may have been anything in the job's folder.
    """
    return next((said for failure in ones if (said := _describe_one(failure, cwd))), "")


def _describe_one(failure: NotedException, cwd: str) -> str:
    said = [failure["message"], *(one["message"] for one in failure.get("chain", []))]
    if not any(_FAILED_WRITE.search(message) for message in said):
        return ""
    folder = os.path.dirname(failure["saved_to"]) if failure.get("saved_to") else cwd
    try:
        found = os.statvfs(folder)
        free, size = (blocks * found.f_frsize for blocks in (found.f_bavail, found.f_blocks))
    except (OSError, ValueError):
        free = size = 0
    if size and free < _FULL_BYTES:
        return f"the disk of {failures.make_printable(folder, 300)} has {format_size(free)} of {format_size(size)} free"
    # An error of a write names no file, and what was in shared memory may be gone by now.
    is_of_shared = any(_SHARED_MEMORY_NAMES.search(message) for message in said)
    return failures.describe_shared_memory(full_only=not is_of_shared)
