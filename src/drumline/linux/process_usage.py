"""
The use of a process or a thread, from ``/proc``: processor time, memory and bytes read and written.

Files are read whole and parsed by hand, for some ten microseconds each. A process that cannot be read, or is gone,
has no statistics. Source: proc_pid_stat(5), proc_pid_statm(5), proc_pid_io(5).
"""

from __future__ import annotations

import os
from typing import Optional

from drumline.contract.record import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_BYTES = 4096
_PF_EXITING = 0x4
"""Source: linux/sched.h."""


class ProcessStat(NamedTuple):
    """CPU times are clock ticks; ``waited``: of children that have ended and were waited for."""

    state: str
    parent: int
    session: int
    own: int
    waited: int
    threads: int
    start: int


def read_stat(pid: int) -> Optional[ProcessStat]:
    """Return the statistics of a process; None where it is gone, or must not be seen."""
    return parse_stat(read_bytes(f"/proc/{pid}/stat", _MAX_BYTES))


def read_thread_stat(pid: int, thread: int) -> Optional[ProcessStat]:
    """Return those of one of its threads."""
    return parse_stat(read_bytes(f"/proc/{pid}/task/{thread}/stat", _MAX_BYTES))


def parse_stat(text: bytes) -> Optional[ProcessStat]:
    """Return what the text of a ``stat`` says; None where it is not one."""
    # The name is between parentheses, and may have some itself, and blanks and line ends.
    fields = text[text.rfind(b")") + 1 :].split(None, 20)
    try:
        return ProcessStat(
            fields[0].decode(),
            int(fields[1]),
            int(fields[3]),
            int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]),
            int(fields[17]),
            int(fields[19]),
        )
    except (IndexError, ValueError):
        return None


def is_exiting(pid: int) -> bool:
    """Return whether a process is about to end: it has no memory any more, or soon, and still its children."""
    fields = read_bytes(f"/proc/{pid}/stat", _MAX_BYTES).rpartition(b")")[2].split(None, 8)
    return len(fields) > 7 and fields[0] != b"Z" and bool(int(fields[6]) & _PF_EXITING)


def is_running(pid: int) -> bool:
    """Return whether there is such a process that has not ended."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"


def read_memory(pid: int) -> tuple[int, int]:
    """Return the bytes that are resident, and those among them of files and shared memory."""
    fields = read_bytes(f"/proc/{pid}/statm", _MAX_BYTES).split(None, 3)
    try:
        return int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES
    except (IndexError, ValueError):
        return 0, 0


def read_io(pid: int) -> Optional[tuple[int, int, int, int]]:
    """Return rchar, wchar, read_bytes, write_bytes; None where they may not be read."""
    words = read_bytes(f"/proc/{pid}/io", _MAX_BYTES).split()
    try:
        return int(words[1]), int(words[3]), int(words[9]), int(words[11])
    except (IndexError, ValueError):
        return None


def read_bytes(path: str, count: int) -> bytes:
    """Return the first bytes of a file; none where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, count)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
