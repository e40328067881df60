"""Drills on this node: failures that are made on purpose (``contract/drill_kinds.py``), and their end."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from drumline.contract.errors import NO_ROOM
from drumline.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from drumline.contract import messages as m
    from drumline.node.agent.environment import JobEnvironment

_SMALLEST_PART = 4096


def begin(message: m.BeginDrill, environment: JobEnvironment, rank_of: Mapping[int, int]) -> str:
    """Begin a drill; return why that could not be, else nothing. ``rank_of``: the running ranks by process."""
    if message.kind == "kill-agent":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.kind == "fill-disk":
        return _fill_disk(environment, message.drill, message.spared)
    found = [pid for pid, rank in rank_of.items() if rank in message.ranks]
    if not found:
        return "its ranks do not run"
    if message.kind == "kill-rank":
        _signal_all(found, signal.SIGKILL)
        return ""
    if message.kind == "wedge":
        _signal_all(_list_whole(found), signal.SIGSTOP)
        return ""
    return f"an agent cannot make a drill {message.kind!r}"


def end(message: m.EndDrill, environment: JobEnvironment, rank_of: Mapping[int, int]) -> None:
    """End a drill that lasts. No error where there is nothing to end."""
    if message.kind == "fill-disk":
        with contextlib.suppress(OSError):
            os.unlink(_choose_file(environment, message.drill))
    elif message.kind == "wedge":
        # What is stopped starts nothing and reaps nothing: these are those that were stopped.
        found = [pid for pid, rank in rank_of.items() if rank in message.ranks]
        _signal_all(_list_whole(found), signal.SIGCONT)


def _list_whole(pids: Collection[int]) -> list[int]:
    """Return the processes with all that is below them."""
    return [one for pid in pids for one in (pid, *descendants.list_descendants(pid))]


def _signal_all(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _choose_file(environment: JobEnvironment, drill: str) -> str:
    return os.path.join(environment.scratch, f"drill-{os.path.basename(drill)}")


def _fill_disk(environment: JobEnvironment, drill: str, spared: Collection[str]) -> str:
    """Fill the disk of the node's own folder, which is removed with the node; return why not, else nothing."""
    if not environment.scratch:
        return "the node has no folder for temporary files"
    device = os.stat(environment.scratch).st_dev
    for path in spared:
        with contextlib.suppress(OSError):
            if os.stat(path).st_dev == device:
                return f"its TMPDIR is on the disk of {path}, which other programs of the machine use"
    path = _choose_file(environment, drill)
    try:
        with open(path, "xb") as file:
            _fill_file(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return f"the disk cannot be filled: {error.strerror or error}"
    return ""


def _fill_file(descriptor: int) -> None:
    """Let a file take up all that is left of its disk. Raises OSError for another reason than that it is full."""
    facts = os.fstatvfs(descriptor)
    part, size = max(_SMALLEST_PART, facts.f_bavail * facts.f_frsize), 0
    while part >= _SMALLEST_PART:
        try:
            os.posix_fallocate(descriptor, size, part)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            part //= 2
        else:
            size += part
