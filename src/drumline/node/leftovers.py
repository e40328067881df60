"""The remains of a run whose supervisor and agents are gone: processes, found by their marker, and scratch folders."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity
from drumline.contract.events import AgentJoined
from drumline.contract.folder import MARKER
from drumline.linux import cgroups, descendants, mounts, process_usage
from drumline.node import scratch

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

_KILL_TIMEOUT_S = 5.0
_ORPHAN_TIMEOUT_S = 1.0
_AGENT_TIMEOUT_S = 4.0
"""For an agent to end by itself: it gives its ranks a second."""


def clear_leftovers(folder: RunFolder) -> int:
    """
    End what is left of a run, and remove its scratch folders; how many processes had to be killed. Blocks, for seconds
    at most.
    """
    paths = _read_scratch_paths(folder)
    count = _end_agents(folder) + _end_marked(folder.path)
    mounts.unmount_below(folder.path)
    for path in paths:
        if cgroups.is_group(path):
            count += cgroups.kill_group(path)
        elif not cgroups.remove_old_group(path):
            scratch.remove_scratch(path)
    return count


def list_leftovers(folder: RunFolder) -> list[str]:
    """List what is left of a run that has ended: processes, and folders of its nodes. Ends and removes nothing."""
    marker = f"{MARKER}={folder.path}".encode("utf-8", "surrogateescape") + b"\0"
    left = [f"process {pid}" for pid in _list_marked(marker)]
    return [*left, *(path for path in _read_scratch_paths(folder) if os.path.exists(path))]


def end_orphans(path: str) -> None:
    """
    End what the ranks of a dead agent had started, which this process has adopted: it has the node's scratch folder in
    its variables. A process without them stays until the job ends, or its control group does. Blocks, for a second at
    most.
    """
    marker = path.encode("utf-8", "surrogateescape") + b"/"
    deadline = time.monotonic() + _ORPHAN_TIMEOUT_S
    was_clear = False
    while time.monotonic() < deadline:
        children = descendants.list_children(os.getpid())
        # Such a rank has lost its variables with its memory, and what it started is below it for a while longer.
        exiting = [pid for pid in children if process_usage.is_exiting(pid)]
        below_them = [below for pid in exiting for below in descendants.list_descendants(pid)]
        found = [pid for pid in (*children, *below_them) if _has_marker(pid, marker)]
        is_clear = not found and not exiting
        if is_clear and was_clear:  # One may have ended, and left us its children, after they were listed.
            return
        was_clear = is_clear
        for pid in found:
            # What is below it may have dropped its variables.
            for below in descendants.list_descendants(pid):
                with contextlib.suppress(OSError):
                    os.kill(below, signal.SIGKILL)
            _kill_marked(pid, marker)
        time.sleep(0.005)


def _end_agents(folder: RunFolder) -> int:
    """
    End the agents of a run whose supervisor is gone; return how many had to be killed.

    An agent that sees that its supervisor is gone ends by itself, with all that it knows of; one that was stopped is
    helped to see it.
    """
    agents = [event.who for event in folder.read_events() if isinstance(event, AgentJoined)]
    pidfds = [pidfd for who in agents if (pidfd := process_identity.open_pidfd(who)) is not None]
    for pidfd in pidfds:
        _send_signal(pidfd, signal.SIGCONT)
    deadline = time.monotonic() + _AGENT_TIMEOUT_S
    late = [pidfd for pidfd in pidfds if not _wait_for_end(pidfd, deadline)]
    for pidfd in late:
        _send_signal(pidfd, signal.SIGKILL)
    for pidfd in pidfds:
        os.close(pidfd)
    return len(late)


def _send_signal(pidfd: int, number: int) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, number)


def _wait_for_end(pidfd: int, deadline: float) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _end_marked(folder: str) -> int:
    """Kill every process of that run until there is none; return how many there were at first."""
    marker = f"{MARKER}={folder}".encode("utf-8", "surrogateescape") + b"\0"
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    first = found = _list_marked(marker)
    while found and time.monotonic() < deadline:
        for pid in found:
            _kill_marked(pid, marker)
        time.sleep(0.01)
        found = _list_marked(marker)
    return len(first)


def _read_scratch_paths(folder: RunFolder) -> list[str]:
    """List the nodes' folders for temporary files and their control groups."""
    try:
        with open(folder.scratch, encoding="utf-8", errors="surrogateescape") as file:
            paths = file.read().splitlines()
    except OSError:
        return []
    # By their names too: the file is the user's, and could have been edited.
    return [path for path in paths if cgroups.is_node_name(path)]


def _list_marked(marker: bytes) -> list[int]:
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and int(name) != os.getpid() and _has_marker(int(name), marker)
    ]


def _has_marker(pid: int, marker: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read()
    except OSError:
        return False


def _kill_marked(pid: int, marker: bytes) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Looked at again with the descriptor open: the number may be another's by now.
        if _has_marker(pid, marker):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(pidfd)
