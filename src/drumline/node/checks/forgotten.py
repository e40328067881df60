"""
Scratch folders of agents that were killed with all that would have removed them, and that nobody holds by a lock.

Agents of this machine hold none, so a folder is forgotten only if nothing else speaks for it: it is of this user, old,
on a disk of this machine, and no process uses it, names it, or may be its agent.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from drumline.contract.filesystems import is_network
from drumline.linux import cgroups, kernel_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OLD_S = 3600.0
"""Without a change, after which a folder may be forgotten."""

HOLDER_FILE = "agent"
"""In the folder of an agent that holds it: whose lock tells whether it is needed (``node/scratch.py``)."""

_SLACK_S = 60.0
"""Between the making of a folder and the start of its agent, at most."""

_ALL_PROCESSES = "pid:[4026531836]"
"""The first namespace of process numbers, in which every process shows. Source: PROC_PID_INIT_INO of the kernel."""

_NAME_LENGTH = 15
"""Of a process, after which the kernel cuts it."""

_NAME = re.compile(rb"drumline-[0-9a-f]{8}-n\d+")


class _Users:
    """What the processes of this machine use of scratch folders, by the names of these. ``proc``: where /proc is."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self.sees_all = os.path.exists(f"{proc}/1") and _read_link(f"{proc}/self/ns/pid") == _ALL_PROCESSES
        self._names: set[bytes] = set()
        self._agents: dict[str, float] = {}
        """By name of a process, when the first of them was started, in seconds since 1970."""

        uptime = kernel_files.read_text(f"{proc}/uptime").split()
        self._boot = time.time() - float(uptime[0]) if uptime else 0.0
        for pid in filter(str.isdigit, kernel_files.list_folder(proc)):
            self._look_at(pid)

    def may_use(self, path: str, changed: float) -> bool:
        """Return whether a process uses that folder, or may be its agent. ``changed``: when it was, since 1970."""
        name = os.path.basename(path)
        agent = f"drumline-node-{name.rpartition('-n')[2]}"[:_NAME_LENGTH]
        started = self._agents.get(agent)
        # What was last changed before the start of an agent is not the folder of that one.
        return os.fsencode(name) in self._names or (started is not None and changed > started - _SLACK_S)

    def _look_at(self, pid: str) -> None:
        place = f"{self._proc}/{pid}"
        command = kernel_files.read_text(f"{place}/comm")
        if command.startswith("drumline-node-"):
            started = self._boot + _read_start_s(place)
            self._agents[command] = min(started, self._agents.get(command, started))
        for text in _list_texts(place):
            self._names.update(_NAME.findall(text))


def list_forgotten(paths: Iterable[str], now: float, proc: str = "/proc") -> list[str]:
    """List those of these folders that nobody is left to remove. ``now``: in seconds since 1970."""
    old = [(path, changed) for path in paths if (changed := _find_change(path)) and now - changed > OLD_S]
    if not old:
        return []
    users = _Users(proc)
    return [path for path, changed in old if users.sees_all and not users.may_use(path, changed)]


def _find_change(path: str) -> float:
    """Return when a folder of this user was last changed, in seconds since 1970; 0: it is none that may be removed."""
    try:
        about = os.lstat(path)
    except OSError:
        return 0.0
    is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and cgroups.is_node_name(path)
    is_held = os.path.lexists(os.path.join(path, HOLDER_FILE))
    return max(about.st_mtime, about.st_ctime) if is_own and not is_held and not is_network(path) else 0.0


def _list_texts(place: str) -> Iterator[bytes]:
    """Yield what may name a folder: variables and words of a process, its folders and open files."""
    for name in ("environ", "cmdline", "mountinfo"):
        with contextlib.suppress(OSError), open(f"{place}/{name}", "rb") as file:
            yield file.read()
    links = ["cwd", "root", *(f"fd/{one}" for one in kernel_files.list_folder(f"{place}/fd"))]
    for name in links:
        yield os.fsencode(_read_link(f"{place}/{name}"))


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read_start_s(place: str) -> float:
    """Return when the process was started, in seconds since the boot."""
    fields = kernel_files.read_text(f"{place}/stat").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else 0.0
