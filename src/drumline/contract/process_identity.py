"""A process by more than its number, which the kernel gives again: boot, number and start time; and the user."""

from __future__ import annotations

import os
from functools import cache
from typing import Any


def identify_process(pid: int) -> dict[str, Any] | None:
    """Return the identity of a live process, as JSON can hold it; None when there is no such process."""
    started = _read_start(pid)
    return (
        None
        if started is None
        else {"pid": pid, "started": started, "boot": read_boot_id(), "space": _space()}
    )


def is_ours_to_judge(identity: dict[str, Any]) -> bool:
    """Return False for a process of another machine or container, whose state cannot be seen from here."""
    return identity.get("space", "") in ("", _space())


def is_alive(identity: dict[str, Any] | None) -> bool:
    """
    Return whether that very process still runs; a zombie does not. One that cannot be seen from here counts as alive.
    """
    if not identity:
        return False
    if not is_ours_to_judge(identity):
        return True
    if identity.get("boot") != read_boot_id():
        return False
    pid = identity.get("pid")
    started = _read_start(pid) if isinstance(pid, int) else None
    # Of one that a damaged file tells of, without a start, nobody knows that it lives.
    return started is not None and started == identity.get("started")


def is_stopped(identity: dict[str, Any] | None) -> bool:
    """Return whether that very process lives but was stopped, as by SIGSTOP or a debugger, so that it does nothing."""
    if not identity or not is_ours_to_judge(identity) or not is_alive(identity):
        return False
    return _fields(int(identity["pid"]))[:1] in ([b"T"], [b"t"])


def open_pidfd(identity: dict[str, Any] | None) -> int | None:
    """Return a descriptor, for the caller to close, that is readable when that process has ended; None: it is gone."""
    if not identity:
        return None
    if not is_ours_to_judge(identity):
        return None
    try:
        pidfd = os.pidfd_open(int(identity["pid"]))
    except (OSError, OverflowError, AttributeError):  # Only Linux has them.
        return None
    # Looked at after the descriptor was opened: from here on the number cannot pass to another process unseen.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def _read_start(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of a process; None for none, or a zombie."""
    fields = _fields(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def _fields(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` behind the name; empty where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in brackets and may itself contain brackets and blanks.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def name_machine() -> str:
    """Return a name for this machine and PID namespace that can be a folder's."""
    return "".join(character if character.isalnum() else "-" for character in _space())


def name_network() -> str:
    """Return a name that this machine and its network have alone, or this network namespace; empty: not known."""
    try:
        return f"{read_boot_id()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def _space() -> str:
    """Name this machine and PID namespace: in another, the same number is another process."""
    try:
        machine = _read_fixed("/etc/machine-id")
    except OSError:
        machine = os.uname().nodename
    try:
        return f"{machine}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return machine


def read_boot_id() -> str:
    """Return which boot of this machine is running; empty where that cannot be known."""
    try:
        return _read_fixed("/proc/sys/kernel/random/boot_id")
    except OSError:
        return ""


@cache
def _read_fixed(path: str) -> str:
    """Return what a file says for as long as this process lives. Raises OSError, and then tries again next time."""
    with open(path) as file:
        return file.read().strip()


def user() -> str:
    """Return the login name, else the user's number."""
    for variable in ("LOGNAME", "USER"):
        if os.environ.get(variable):
            return os.environ[variable]
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
