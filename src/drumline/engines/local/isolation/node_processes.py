"""The processes of an isolated node: those in its network."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_KILL_TIMEOUT_S = 5.0
_KILL_INTERVAL_S = 0.005


def list_processes(network: int) -> list[int]:
    """List the processes in a network, given by a descriptor. One that is stopped counts, a zombie does not."""
    wanted = os.fstat(network).st_ino
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_in(int(name), wanted)]


def kill_all(network: int) -> None:
    """Kill all processes of a node. Blocks until none is left, for some seconds at most."""
    wanted = os.fstat(network).st_ino
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while (found := list_processes(network)) and time.monotonic() < deadline:
        for pid in found:
            _kill(pid, wanted)
        time.sleep(_KILL_INTERVAL_S)


def _kill(pid: int, network: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    with contextlib.suppress(OSError):
        # Looked at again with the descriptor open: the number may be another's by now.
        if _is_in(pid, network):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)


def _is_in(pid: int, network: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == network
    except OSError:
        return False
