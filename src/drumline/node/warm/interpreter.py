"""A warm interpreter as its warm pool sees it: how it is started, and what there is to say of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import time
from typing import Any, Optional

from drumline.linux import kernel, process_usage
from drumline.node.warm import frames

_SERVER_VARIABLE = "DRUMLINE_WARM_SERVER"
_PROBE_VARIABLE = "DRUMLINE_WARM_PROBE"
_PROBE_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 30.0
_TASK_FIELDS = ("target", "imports", "asked", "free", "differs", "skip", "left_out")


class WaitingAgent:
    """
    An agent that waits for its fork server. ``ranks``: how many it will fork; ``spec``: of what, as it is for them.
    """

    def __init__(self, peer: socket.socket, ranks: int, spec: dict[str, Any]) -> None:
        self.peer = peer
        self.ranks = ranks
        self.spec = spec


class WarmInterpreter:
    """A warm interpreter, or one that is becoming so."""

    def __init__(self, key: str, spec: dict[str, Any], round_: int = 0) -> None:
        self.key = key
        self.spec = spec
        self.round = round_
        self.began = time.monotonic()
        self.used = self.began
        self.report: Optional[dict[str, Any]] = None
        self.waiting: list[WaitingAgent] = []
        self.users: set[int] = set()
        self.ranks = 0
        self.pid, self.peer = _start_interpreter(spec)

    def suits(self, spec: dict[str, Any]) -> bool:
        """Return whether it suits these ranks: one whose imports looked at their folder is for that folder alone."""
        return not (self.report or {}).get("folder") or self.spec["cwd"] == spec["cwd"]

    def is_idle(self) -> bool:
        return self.report is not None and not self.users and not self.waiting

    def facts(self) -> dict[str, Any]:
        now = time.monotonic()
        report = self.report or {}
        return {
            "pid": self.pid,
            "python": self.spec["python"],
            "program": " ".join(self.spec["target"]),
            "modules": report.get("modules", []),
            "import_s": report.get("import_s"),
            "memory_bytes": process_usage.read_memory(self.pid)[0],
            "age_s": now - self.began,
            "idle_s": None if self.users or self.waiting else now - self.used,
            "ranks": self.ranks,
            "users": len(self.users),
        }


def _start_interpreter(spec: dict[str, Any]) -> tuple[int, socket.socket]:
    """Start an interpreter; return the process, and our end of its socket. Raises OSError."""
    if not _stops_at_hook(spec):
        # It would run the program, with nobody to be a rank of.
        raise OSError(0, "what that Python runs first is not Drumline's hook")
    ours, theirs = socket.socketpair()
    # For the case that somebody has stopped it: it holds up all who ask.
    ours.settimeout(_ANSWER_TIMEOUT_S)
    with theirs:
        pid = _execute(spec, spec["target"], _SERVER_VARIABLE, theirs.fileno())
    try:
        frames.send(ours, {name: spec[name] for name in _TASK_FIELDS})
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return pid, ours


def _stops_at_hook(spec: dict[str, Any]) -> bool:
    """Return whether that Python, with these flags and variables, comes to our hook before anything else. Blocks."""
    reader, writer = os.pipe()
    try:
        pid = _execute(spec, ["-c", ""], _PROBE_VARIABLE, writer)
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as said:
        answered = bool(select.select([said], [], [], _PROBE_TIMEOUT_S)[0]) and said.read(1) == b"1"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return answered


def _execute(spec: dict[str, Any], arguments: list[str], variable: str, descriptor: int) -> int:
    """Execute that Python, with a descriptor whose number stands in a variable; return its pid. Raises OSError."""
    pool = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL, pool)
        kernel.become_ordinary()
        # As a rank's: a regular file for its output, whose bytes are then those of its imports.
        output = os.memfd_create("drumline-warm")
        fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        number = os.dup(descriptor)
        os.set_inheritable(number, True)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(spec["cwd"])
        if spec["cores"]:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, spec["cores"])
        argv = [spec["argv0"], *spec["flags"], *arguments]
        os.execve(spec["python"], argv, {**spec["env"], variable: str(number)})  # noqa: S606 - the user's own Python
    finally:
        os._exit(127)


def read_available_memory_share() -> float:
    """Return the share of the machine's memory that is available."""
    try:
        with open("/proc/meminfo") as file:
            facts = {line.split(":")[0]: int(line.split()[1]) for line in file}
        return facts["MemAvailable"] / facts["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError):
        return 1.0
