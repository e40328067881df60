"""A process by more than its number, which the kernel gives again: boot, number and start time."""

from __future__ import annotations

import os
from typing import Any


def of(pid: int) -> dict[str, Any] | None:
    """The identity of a live process, as JSON can hold it; None when there is no such process."""
    started = _started(pid)
    return None if started is None else {"pid": pid, "started": started, "boot": boot(), "space": _space()}


def is_ours_to_judge(identity: dict[str, Any]) -> bool:
    """False for a process of another machine or container: whether that is alive cannot be seen from here."""
    return identity.get("space", "") in ("", _space())


def is_alive(identity: dict[str, Any] | None) -> bool:
    """Whether that very process still runs; a zombie does not. One that cannot be seen from here is taken to."""
    if not identity:
        return False
    if not is_ours_to_judge(identity):
        return True
    if identity.get("boot") != boot():
        return False
    pid = identity.get("pid")
    started = _started(pid) if isinstance(pid, int) else None
    # Of one that a damaged file tells of, without a start, nobody knows that it lives.
    return started is not None and started == identity.get("started")


def is_stopped(identity: dict[str, Any] | None) -> bool:
    """Whether that very process lives and was stopped, as by SIGSTOP or a debugger, so that it does nothing."""
    if not identity or not is_ours_to_judge(identity) or not is_alive(identity):
        return False
    return _fields(int(identity["pid"]))[:1] in ([b"T"], [b"t"])


def open_pidfd(identity: dict[str, Any] | None) -> int | None:
    """A descriptor that becomes readable when that process ends; None when it is gone already. The caller closes it."""
    if not identity:
        return None
    if not is_ours_to_judge(identity):
        return None
    try:
        pidfd = os.pidfd_open(int(identity["pid"]))
    except (OSError, OverflowError):
        return None
    # Looked at after the descriptor was opened: from here on the number cannot pass to another process unseen.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def _started(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None for none, or a zombie."""
    fields = _fields(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def _fields(pid: int) -> list[bytes]:
    """Of ``/proc/PID/stat``, those behind the name; empty where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in brackets and may itself contain brackets and blanks.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def host() -> str:
    """A name for this machine and PID namespace that can be a folder's."""
    return "".join(character if character.isalnum() else "-" for character in _space())


def _space() -> str:
    """This machine and PID namespace: in another, the same number is another process."""
    try:
        with open("/etc/machine-id") as file:
            machine = file.read().strip()
    except OSError:
        machine = os.uname().nodename
    try:
        return f"{machine}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return machine


def boot() -> str:
    """Which start of this machine it is that runs; empty where that cannot be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
