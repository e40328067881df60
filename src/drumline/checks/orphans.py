"""Leftovers of earlier jobs on this machine: processes, and scratch folders of agents that are gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.folder import MARKER, RunFolder
from drumline.contract.ownership import is_network
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drumline.checks.findings import Finding, NodeReport


class Orphan(NamedTuple):
    """A process of a job whose agent and supervisor are gone. ``folder``: the job's."""

    pid: int
    job: str
    folder: str


class LeftoverFacts(NamedTuple):
    """Processes and scratch folders of this user that nobody looks after."""

    processes: list[Orphan]
    folders: list[str]


def gather_leftovers(settings: Mapping[str, Any]) -> LeftoverFacts:
    parents = dict.fromkeys((os.environ.get("TMPDIR") or "/tmp", *settings.get("scratch", ())))  # noqa: S108
    folders = [path for parent in parents for path in _list_abandoned(parent)]
    return LeftoverFacts(list_orphans(settings.get("home", "")), folders)


def list_orphans(home: str = "") -> list[Orphan]:
    """
    List processes with the marker of a job, none of whose ancestors is a supervisor or an agent. ``home``: of the jobs;
    empty: wherever they are.
    """
    start = os.path.join(home, "")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            folder = _read_marker(int(name))
            if folder and folder.startswith(start) and not _is_looked_after(int(name), RunFolder(folder)):
                found.append(Orphan(int(name), os.path.basename(folder), folder))
    return found


def _read_marker(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return ""
    start = f"{MARKER}=".encode()
    return next((os.fsdecode(one[len(start) :]) for one in variables if one.startswith(start)), "")


def _is_looked_after(pid: int, run: RunFolder) -> bool:
    """Return whether a process of Drumline is above it, which will end it, or its job has a supervisor."""
    while pid > 1:
        name, pid = _read_parent(pid)
        if name.startswith("drumline"):
            return True
    return process_identity.is_alive(run.read_json(run.supervisor) or {})


def _read_parent(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            text = file.read()
    except OSError:
        return "drumline", 0  # It has just ended.
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def _list_abandoned(parent: str) -> list[str]:
    try:
        found = [entry.path for entry in os.scandir(parent) if cgroups.is_node_name(entry.name)]
    except OSError:
        return []
    return [*filter(_is_abandoned, found), *list_forgotten(found, time.time())]


def _is_abandoned(path: str) -> bool:
    """Return whether the folder was held by an agent that an engine started, and is held no more."""
    try:
        if os.lstat(path).st_uid != os.getuid():
            return False
        descriptor = os.open(
            os.path.join(path, HOLDER_FILE),
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        )
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


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
    """The scratch folders that processes of this machine use, by name. ``proc``: where /proc is."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self.sees_all = os.path.exists(f"{proc}/1") and _read_link(f"{proc}/self/ns/pid") == _ALL_PROCESSES
        self._names: set[bytes] = set()
        self._agents: dict[str, float] = {}
        """By name of a process, when the first of them was started, in seconds since 1970."""

        uptime = cgroups.read_text(f"{proc}/uptime").split()
        self._boot = time.time() - float(uptime[0]) if uptime else 0.0
        for pid in filter(str.isdigit, cgroups.list_folder(proc)):
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
        command = cgroups.read_text(f"{place}/comm")
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
    links = ["cwd", "root", *(f"fd/{one}" for one in cgroups.list_folder(f"{place}/fd"))]
    for name in links:
        yield os.fsencode(_read_link(f"{place}/{name}"))


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read_start_s(place: str) -> float:
    """Return when the process was started, in seconds since the boot."""
    fields = cgroups.read_text(f"{place}/stat").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else 0.0


def judge_leftovers(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("leftovers", LeftoverFacts)
    processes, folders = facts or ([], [])
    if processes:
        more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
        what = f"process {processes[0].pid}{more} of job {processes[0].job} is left, whose supervisor is gone"
        yield node.warning(what, "run drumline doctor --fix there")
    if folders:
        what = f"{format_count(len(folders), 'folder')} of ended agents are left: {folders[0]}"
        yield node.warning(what, "run drumline doctor --fix there")
