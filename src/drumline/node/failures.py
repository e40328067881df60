"""
How a rank failed, from what it left: the hook's notes and the end of its log.

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
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")

_MOST_BYTES = 1 << 16
LINE = 300
_MOST_LINES = 10**9

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not written to

_FOR_ANOTHER = ("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException")
"""Exceptions with which a process says that one it started has failed: that one's own tells more."""

_NOTHING: dict[str, Any] = {"type": "", "message": "", "file": "", "line": 0, "function": ""}
_EXCEPTION: dict[str, Any] = {"type": str, "message": str, "file": str, "line": int, "function": str}
_KINDS: dict[str, Any] = {
    "at": (int, float),
    "pid": int,
    "parent": int,
    **_EXCEPTION,
    "chain": list,
    "saved_to": str,
}

_MOST_OF_CHAIN = 8
_MOST_INNER = 16

_GROUP = "group"
"""In a note that is no end: this process has its first process group (``hook/group.py``)."""

_OF_EXCEPTIONS = (1, 134)
"""The exit code of an uncaught exception, and what a shell makes of a crash while Python was ending of one."""

OF_LIBRARIES = re.compile(r"^<|/lib/python|site-packages|dist-packages")
"""Finds a file that is not the program's own."""

_KILLED_WORKER = re.compile(r"DataLoader worker \(pid (\d{1,9})\) is killed by signal.*")
_LOST_WORKER = ("ConnectionResetError", "ConnectionRefusedError", "EOFError", "FileNotFoundError")
"""What a program may meet sooner than the word of PyTorch's loader that one of its processes was killed."""

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

    ``failure`` (at, pid, type, message, file, line, function, and ``chain``: what it came of, the latest first) when an
    uncaught exception explains it, ``left_at`` when it ended in order. ``inner``: the same of processes that the rank
    started, and ``launcher``: its own, where it is one that failed because they did.

    ``pid``: of the rank's first process. ``code``: as ``os.waitstatus_to_exitcode`` has it. ``since``, ``until``: when
    it was started and had ended; what was noted at another time is not believed.
    """
    noted = [one for one in _read(notes) if since <= one["at"] <= until]
    own = [one for one in noted if one["pid"] == pid]
    if code >= 0 and own and not own[-1]["type"]:
        told: dict[str, Any] = {"left_at": own[-1]["at"]}
    else:
        told = {}
    chosen, others = _chosen(noted, own, pid, code) if code else (None, [])
    if others:
        told["inner"] = [_failure(one, cwd) for one in sorted(others, key=_at)[:_MOST_INNER]]
        if chosen:
            told["launcher"] = _failure(chosen, cwd)
        chosen = min(others, key=_at)
    if chosen:
        told["failure"] = _failure(chosen, cwd)
    return told


def _failure(noted: dict[str, Any], cwd: str) -> dict[str, Any]:
    failure = {"at": noted["at"], "pid": noted["pid"], **_exception(noted, cwd)}
    chain: list[dict[str, Any]] = []
    for one in noted["chain"]:
        found = _exception(one, cwd)
        if not one["file"] or OF_LIBRARIES.search(one["file"]):
            # It was raised and handled inside of a library, which the program called here.
            found.update({name: (chain or [failure])[-1][name] for name in ("file", "line", "function")})
        chain.append(found)
    if chain:
        failure["chain"] = chain
    if noted["saved_to"]:
        failure["saved_to"] = noted["saved_to"]
    return failure


def _exception(noted: dict[str, Any], cwd: str) -> dict[str, Any]:
    return {
        "type": printable(noted["type"], 200),
        "message": _gist(noted["message"], noted["type"]),
        "file": shown(noted["file"], cwd),
        "line": noted["line"],
        "function": printable(noted["function"], 200),
    }


def _chosen(
    noted: list[dict[str, Any]], own: list[dict[str, Any]], pid: int, code: int
) -> tuple[Optional[dict[str, Any]], list[dict[str, Any]]]:
    """
    The exception that the rank ended of, and those of processes that it started, where they explain that one. What such
    a process has failed of, the rank may have expected: that counts where the exit code is an exception's, and where
    nothing came after it.
    """
    failed = [one for one in noted if one["type"]]
    if own and own[-1]["type"]:
        chosen = own[-1]
    elif own:
        # A launcher in Python that ends in order, with the code of what it started.
        return None, [one for one in failed if one["pid"] != pid] if code == 1 else []
    else:
        # A shell: the last command's code is its own.
        below = [one for one in noted if one["parent"] == pid]
        if not below or not below[-1]["type"] or code not in _OF_EXCEPTIONS:
            return None, []
        chosen = below[-1]
    if str(chosen["type"]).rpartition(".")[2] not in _FOR_ANOTHER:
        return chosen, []
    return chosen, [one for one in failed if one["pid"] != chosen["pid"]]


def all_of(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The exceptions of a rank and of what it started, as ``of`` returns them."""
    return [one for one in (evidence.get("failure"), *evidence.get("inner", [])) if one]


def messages_of(evidence: Mapping[str, Any]) -> str:
    """All that those say."""
    return " ".join(link["message"] for one in all_of(evidence) for link in (one, *one.get("chain", [])))


def add_killed_worker(evidence: Mapping[str, Any], log: str) -> None:
    """PyTorch's loader may raise that while another exception is noted, and then only the log has it."""
    found = _KILLED_WORKER.search(log)
    for one in all_of(evidence):
        if found and one["type"] in _LOST_WORKER:
            worker = {"type": "RuntimeError", "message": printable(found[0], LINE)}
            place = {name: one[name] for name in ("file", "line", "function")}
            one["chain"] = [*one.get("chain", []), {**worker, **place}]


def killed_workers(messages: str) -> list[int]:
    """The processes of PyTorch's loader of which one of those messages says that they were killed."""
    return [int(pid) for pid in _KILLED_WORKER.findall(messages)]


def _at(one: dict[str, Any]) -> float:
    return float(one["at"])


def _read(notes: str) -> list[dict[str, Any]]:
    found = []
    for line in _bytes_of(notes, from_end=False).splitlines():
        with contextlib.suppress(ValueError, RecursionError, OverflowError):
            one = json.loads(line)
            if isinstance(one, dict) and _GROUP not in one:
                one = {**_NOTHING, "chain": [], "saved_to": "", **one}
                if _is_whole(one, _KINDS):
                    one["at"], one["line"] = float(one["at"]), min(one["line"], _MOST_LINES)
                    one["chain"] = _chain(one["chain"])
                    found.append(one)
    return found


def _is_whole(one: dict[str, Any], kinds: dict[str, Any]) -> bool:
    return all(isinstance(one.get(name), kind) for name, kind in kinds.items())


def _chain(noted: list[Any]) -> list[dict[str, Any]]:
    found = [one for one in noted if isinstance(one, dict) and _is_whole(one, _EXCEPTION)]
    return [{**one, "line": min(one["line"], _MOST_LINES)} for one in found[:_MOST_OF_CHAIN]]


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
        return printable(lines[-1].removeprefix(kind.rpartition(".")[2] + ": "), LINE)
    first = lines[0]
    if first.endswith(":") and len(lines) > 1:
        first += " " + lines[1]
    return printable(_once(first), LINE)


def _once(text: str) -> str:
    """
    Without repeated words before colons, of which XLA's errors have one for each computation that was on its way.

    >>> _once("INTERNAL: Error dispatching: Error dispatching: Error dispatching: Connection reset by peer")
    'INTERNAL: Error dispatching: Connection reset by peer'
    """
    parts = text.split(": ")
    return ": ".join(part for place, part in enumerate(parts) if place == 0 or part != parts[place - 1])


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


def shared_memory() -> str:
    """``/dev/shm has 0 of 64 MB free``; empty where there is none."""
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return ""
    free, size = (blocks * found.f_frsize >> 20 for blocks in (found.f_bavail, found.f_blocks))
    return f"{_SHARED_MEMORY} has {free} of {size} MB free"
