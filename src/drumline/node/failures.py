"""
How a rank failed, from what it left: the hook's notes, the end of its log, what the kernel counted.

``hook/sitecustomize.py`` writes a line for each uncaught exception of each Python of the rank, this module reads them,
and the line of a process's first process group.
All of it is the job's own text: nothing in it is trusted, and all of it is cut to a length.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from collections.abc import MutableMapping

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")

_MOST_BYTES = 1 << 16
_LINE = 300
_MOST_LINES = 10**9

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not written to

_FOR_ANOTHER = ("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException")
"""Exceptions with which a process says that one it started has failed: that one's own tells more."""

_ORDINARY_END = {"type": "", "message": "", "file": "", "line": 0, "function": ""}
_KINDS: dict[str, Any] = {
    "at": (int, float),
    "pid": int,
    "parent": int,
    "type": str,
    "message": str,
    "file": str,
    "line": int,
    "function": str,
}

_GROUP = "group"
"""In a note that is no end: this process has its first process group (``hook/group.py``)."""

_OF_EXCEPTIONS = (1, 134)
"""The exit code of an uncaught exception, and what a shell makes of a crash while Python was ending of one."""

OF_LIBRARIES = re.compile(r"^<|/lib/python|site-packages|dist-packages")
"""Finds a file that is not the program's own."""

_LOOK_S = 1.0

_KILLED = re.compile(rb"[Oo]ut of memory[^\n]*: Killed process (\d{1,9}) ")
"""Source: the kernel's mm/oom_kill.c, __oom_kill_process."""

_CRASH = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
FRAME = re.compile(r'^  File "([^"\n]{1,4000})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)
"""A line of faulthandler's: file, line and function."""


def add_hook(variables: MutableMapping[str, str], notes: str) -> None:
    """Have the Pythons of a rank note their failures in the file ``notes``, unless ``DRUMLINE_HOOK`` is 0."""
    if variables.get("DRUMLINE_HOOK") == "0" or not notes or os.pathsep in HOOK or not os.path.isdir(HOOK):
        return
    others = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join((HOOK, others) if others else (HOOK,))
    variables["DRUMLINE_FAILURES"] = notes


def of(notes: str, pid: int, code: int, cwd: str, since: float, until: float) -> dict[str, Any]:
    """
    What a rank's notes tell of its end; empty when that is nothing. Times are monotonic seconds.

    ``failure`` (at, type, message, file, line, function) when an uncaught exception explains it, ``left_at`` when it
    ended in order.

    ``pid``: of the rank's first process. ``code``: as ``os.waitstatus_to_exitcode`` has it. ``since``, ``until``: when
    it was started and had ended; what was noted at another time is not believed.
    """
    noted = [one for one in _read(notes) if since <= one["at"] <= until]
    own = [one for one in noted if one["pid"] == pid]
    if code >= 0 and own and not own[-1]["type"]:
        told: dict[str, Any] = {"left_at": own[-1]["at"]}
    else:
        told = {}
    chosen = _chosen(noted, own, pid, code) if code else None
    if chosen:
        message = _gist(chosen["message"], chosen["type"])
        told["failure"] = {
            "at": chosen["at"],
            "type": printable(chosen["type"], 200),
            "message": message,
            "file": shown(chosen["file"], cwd),
            "line": chosen["line"],
            "function": printable(chosen["function"], 200),
        }
    return told


def _chosen(
    noted: list[dict[str, Any]], own: list[dict[str, Any]], pid: int, code: int
) -> Optional[dict[str, Any]]:
    """
    The exception that the rank ended of. What a process that it started has failed of, it may have expected: that
    counts where the exit code is an exception's, and where nothing came after it.
    """
    failed = [one for one in noted if one["type"]]
    if own and own[-1]["type"]:
        chosen = own[-1]
    elif own:
        # A launcher in Python that ends in order, with the code of what it started.
        below = [one for one in failed if one["pid"] != pid]
        return min(below, key=_at) if code == 1 and below else None
    else:
        # A shell: the last command's code is its own.
        below = [one for one in noted if one["parent"] == pid]
        if not below or not below[-1]["type"] or code not in _OF_EXCEPTIONS:
            return None
        chosen = below[-1]
    others = [one for one in failed if one["pid"] != chosen["pid"]]
    if others and str(chosen["type"]).rpartition(".")[2] in _FOR_ANOTHER:
        return min(others, key=_at)
    return chosen


def _at(one: dict[str, Any]) -> float:
    return float(one["at"])


def _read(notes: str) -> list[dict[str, Any]]:
    found = []
    for line in _bytes_of(notes, from_end=False).splitlines():
        with contextlib.suppress(ValueError, RecursionError, OverflowError):
            one = json.loads(line)
            if isinstance(one, dict) and _GROUP not in one:
                one = {**_ORDINARY_END, **one}
                if all(isinstance(one.get(name), kind) for name, kind in _KINDS.items()):
                    one["at"], one["line"] = float(one["at"]), min(one["line"], _MOST_LINES)
                    found.append(one)
    return found


def group_of(notes: str, since: float, until: float) -> Optional[tuple[float, str]]:
    """When a process of the rank had its first process group, and of which backend, where it has noted that."""
    for line in _bytes_of(notes, from_end=False).splitlines():
        if b'"%s"' % _GROUP.encode() not in line:
            continue
        with contextlib.suppress(ValueError, RecursionError, OverflowError):
            one = json.loads(line)
            at, backend = (one.get("at"), one.get(_GROUP)) if isinstance(one, dict) else (None, None)
            if isinstance(at, (int, float)) and isinstance(backend, str) and since <= at <= until:
                return float(at), printable(backend, 100)
    return None


def _bytes_of(path: str, *, from_end: bool) -> bytes:
    """Some of a file, which the job may have made anything of: a link, a pipe that nobody writes to."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode):
                return b""
            return os.pread(descriptor, _MOST_BYTES, max(0, known.st_size - _MOST_BYTES) if from_end else 0)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _gist(message: str, kind: str) -> str:
    """The line that says most: of an exception that holds another's traceback, that one's last."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" -=^~")]
    if not lines:
        return ""
    if any(line.endswith("Traceback (most recent call last):") for line in lines):
        return printable(lines[-1].removeprefix(kind.rpartition(".")[2] + ": "), _LINE)
    first = lines[0]
    if first.endswith(":") and len(lines) > 1:
        first += " " + lines[1]
    return printable(first, _LINE)


def printable(text: str, most: int) -> str:
    """On one line, without anything that a terminal would obey, of at most so many characters."""
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def shown(path: str, cwd: str) -> str:
    """Relative, where it is the job's own."""
    real = os.path.realpath(cwd) if cwd else ""
    for folder in (cwd, real):
        if folder and path.startswith(folder + os.sep):
            return printable(path[len(folder) + 1 :], 500)
    return printable(path, 500)


def end_of_log(log: str) -> str:
    """Its last bytes as text."""
    return _bytes_of(log, from_end=True).decode(errors="replace")


def last_line(text: str) -> str:
    for line in reversed(text.splitlines()):
        if line.strip():
            return printable(line.strip(), _LINE)
    return ""


def crash_of(text: str, cwd: str) -> Optional[dict[str, Any]]:
    """What faulthandler left in a log: file, line and function of the last crash, of the user's own where it can be."""
    crashes = list(_CRASH.finditer(text))
    if not crashes:
        return None
    stack = text[crashes[-1].end() :]
    frames = [(shown(name, cwd), int(line), function) for name, line, function in FRAME.findall(stack)]
    if not frames:
        return None
    own = (frame for frame in frames if not os.path.isabs(frame[0]) and not frame[0].startswith("<"))
    file, line, function = next(own, frames[0])
    return {"file": file, "line": line, "function": printable(function, 200)}


class Memory:
    """Tells whether the kernel ended a process for want of memory lately, on this node."""

    def __init__(self) -> None:
        self._files = _counters()
        self._log = _kernel_log()
        self._killed: set[int] = set()
        self._latest = self._earlier = self._counts()
        self._next = time.monotonic() + _LOOK_S

    def _counts(self) -> list[int]:
        return [_count(file) for file in self._files]

    def look(self) -> None:
        """To be called often: what was counted a second or two ago is another process's end."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOK_S
            self._earlier, self._latest = self._latest, self._counts()

    def ran_out(self, pid: int) -> bool:
        """``pid``: what has ended, which the kernel's log may name."""
        self._read_log()
        return pid in self._killed or any(now > before for now, before in zip(self._counts(), self._earlier))

    def _read_log(self) -> None:
        while self._log >= 0:
            try:
                # A record at a time. Source: the kernel's Documentation/ABI/testing/dev-kmsg.
                record = os.read(self._log, 1 << 14)
            except BrokenPipeError:  # some were overwritten before they were read
                continue
            except OSError:
                return
            self._killed.update(map(int, _KILLED.findall(record)))


def _kernel_log() -> int:
    """A descriptor that reads what is logged from now on; -1 where only others may read it."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        return -1
    return descriptor


def _counters() -> list[str]:
    """The files that count, of our own control group where that counts all below it, else of the whole machine too."""
    files = ["/proc/vmstat"]
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            path = path.rstrip("/")
            if not controllers and _count(f"/sys/fs/cgroup{path}/memory.events") >= 0:
                return [f"/sys/fs/cgroup{path}/memory.events"]
            if "memory" in controllers.split(","):
                files.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    return files


def _count(file: str) -> int:
    """-1 when it does not count."""
    try:
        with open(file) as opened:
            for line in opened:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return -1


def shared_memory() -> str:
    """``/dev/shm has 0 of 64 MB free``; empty where there is none."""
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return ""
    free, size = (blocks * found.f_frsize >> 20 for blocks in (found.f_bavail, found.f_blocks))
    return f"{_SHARED_MEMORY} has {free} of {size} MB free"
