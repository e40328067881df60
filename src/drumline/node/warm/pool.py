"""
Holds warm interpreters for the jobs of a user: starts one when an agent asks for what there is none of yet, has it fork
a fork server for each agent, and ends those that nobody has used for a while, and then itself.

It is started by the supervisor of the first job, which does not adopt it, so it belongs to no job and no job's end is
its; or by an agent, for itself alone. A rank is a child of its fork server: whoever ends this process ends
no rank.

agent asks: fork server  spec, ranks   answer: fork server, pid, ... and the fork server's socket; or unfit
a person:   list; stop  pid        answer: warm; stopped
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Optional

from drumline.contract.errors import DAMAGED
from drumline.contract.folder import load_plain, write_whole
from drumline.contract.record import NamedTuple
from drumline.linux import kernel, process_usage
from drumline.node.warm import pool_folder

IDLE_S = 600.0
IDLE_VARIABLE = "DRUMLINE_WARM_IDLE_S"

_MAX_INTERPRETERS = 4
"""Warm interpreters at a time: each has the memory of what it imported."""

_MAX_ROUNDS = 4
"""Of imports that are tried without packages that turned out to look at what differs from rank to rank."""

_MIN_MEMORY_SHARE = 0.1
"""Of the machine's memory that is to be available; with less, what nobody uses is ended."""

_MIN_LIFE_S = 5.0
"""That a warm pool is there from when a supervisor made sure of that: its agents are about to ask."""

_MAX_IMPORT_S = 300
"""Then whoever waits for these imports is told to do them itself."""

_POLL_INTERVAL_S = 2.0
_PEER_TIMEOUT_S = 10.0

_MAX_CLIENTS = 256
_MAX_PROGRAMS = 64
"""Of which it is remembered what each rank must import itself."""


class WarmPool:
    def __init__(self, folder: str, listener: socket.socket, lifeline: int = -1) -> None:
        self._folder = folder
        self._lifeline = lifeline
        self._listener = listener
        self._inode = os.stat(os.path.join(folder, pool_folder.SOCKET)).st_ino
        try:
            self._idle_s = max(0.0, float(os.environ.get(IDLE_VARIABLE, IDLE_S)))
        except ValueError:
            self._idle_s = IDLE_S
        self._used = time.monotonic()
        self._warm: dict[int, WarmInterpreter] = {}
        """By the descriptor of its socket."""

        self._clients: dict[int, socket.socket] = {}
        self._unfit: dict[str, tuple[str, float]] = {}
        """By key: why, and until when that is believed."""

        self._learned_path = os.path.join(folder, "per_rank_packages.json")
        self._learned: dict[str, dict[str, Any]] = {}
        """
        By key, the packages that each rank must import itself, and what they had imported: so it is found out once,
        whichever warm pool found it. It is a help alone, and looked at again whenever something is imported.
        """

        with contextlib.suppress(OSError, *DAMAGED):
            known = json.loads(load_plain(self._learned_path))
            self._learned = {key: entry for key, entry in known.items() if _is_learned(entry)}
        self._poller = select.poll()
        self._is_told = self._had_any = False

    def run(self) -> None:
        """Serve until nobody has asked for anything for a while, or the folder is gone. Blocks."""
        self._poller.register(self._listener, select.POLLIN)
        if self._lifeline >= 0:
            self._poller.register(self._lifeline, select.POLLIN)
        while not self._is_told and not self._is_over():
            for descriptor, _ in self._poller.poll(min(_POLL_INTERVAL_S, self._idle_s + 0.01) * 1000):
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor == self._lifeline:
                    self._is_told = True
                elif descriptor in self._clients:
                    self._hear_client(descriptor)
                elif descriptor in self._warm:
                    self._hear_warm(self._warm[descriptor])
            self._look()
        self._end_all()

    def _is_over(self) -> bool:
        try:
            if os.stat(os.path.join(self._folder, pool_folder.SOCKET)).st_ino != self._inode:
                return True
        except OSError:
            return True
        # One that was never asked for anything is of no use to the next job either.
        idle_s = max(self._idle_s, _MIN_LIFE_S) if self._unfit or self._had_any else _MIN_LIFE_S
        return not self._warm and not self._clients and time.monotonic() - self._used > idle_s

    def _end_all(self) -> None:
        with contextlib.suppress(OSError):
            path = os.path.join(self._folder, pool_folder.SOCKET)
            if os.stat(path).st_ino == self._inode:
                os.unlink(path)
        for one in list(self._warm.values()):
            self._end(one, "the warm pool was told to end")

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        self._used = time.monotonic()
        if pool_folder.read_peer_user(peer) != os.geteuid() or len(self._clients) >= _MAX_CLIENTS:
            peer.close()
            return
        peer.settimeout(_PEER_TIMEOUT_S)
        self._clients[peer.fileno()] = peer
        self._poller.register(peer, select.POLLIN)

    def _hear_client(self, descriptor: int) -> None:
        peer = self._clients.pop(descriptor)
        self._poller.unregister(descriptor)
        try:
            first = peer.recv(1, socket.MSG_PEEK)
            if first == b"{":
                self._answer_person(peer)
            elif first:
                message = pool_folder.receive(peer)
                self._serve(WaitingAgent(peer, int(message["ranks"]), message["spec"]))
            else:
                peer.close()
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"a request failed: {error!r}", file=sys.stderr, flush=True)
            peer.close()

    def _answer_person(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rwb") as file:
            message = json.loads(file.readline(1 << 16))
            if message["do"] == "list":
                warm = [one.facts() for one in self._warm.values()]
                answer = {"pid": os.getpid(), "idle_limit_s": self._idle_s, "warm": warm}
            else:
                wanted = message.get("pid")
                ones = [one for one in self._warm.values() if wanted in (None, one.pid)]
                for one in ones:
                    self._end(one, "it was told to end")
                self._is_told = wanted is None
                answer = {"stopped": [one.pid for one in ones]}
            file.write(json.dumps(answer).encode() + b"\n")

    def _serve(self, client: WaitingAgent) -> None:
        spec, key = client.spec, _compute_key(client.spec)
        why, until = self._unfit.get(key, ("", 0.0))
        if why and time.monotonic() < until:
            client.refuse(why)
            return
        for one in self._warm.values():
            if one.key == key and one.suits(spec):
                if one.report is None:
                    one.waiting.append(client)
                else:
                    self._hand(one, client, reused=True)
                return
        learned = self._learned.get(key)
        self._begin(key, leave_out_packages(spec, learned) if learned else spec, [client])

    def _begin(self, key: str, spec: dict[str, Any], waiting: list[WaitingAgent], round_: int = 0) -> None:
        self._make_room()
        try:
            one = WarmInterpreter(key, spec, round_)
        except OSError as error:
            why = f"{spec['python']} cannot be held: {error.strerror}"
            self._unfit[key] = (why, time.monotonic() + IDLE_S)
            for client in waiting:
                client.refuse(why)
            return
        one.waiting = waiting
        self._had_any = True
        self._warm[one.peer.fileno()] = one
        self._poller.register(one.peer, select.POLLIN)

    def _make_room(self) -> None:
        idle = sorted((one for one in self._warm.values() if one.is_idle()), key=lambda one: one.used)
        while idle and len(self._warm) >= _MAX_INTERPRETERS:
            self._end(idle.pop(0), "")

    def _hear_warm(self, one: WarmInterpreter) -> None:
        try:
            message = pool_folder.receive(one.peer)
        except (OSError, ValueError):
            self._end(one, "it ended while it imported" if one.report is None else "it has ended")
            return
        if "ready" in message:
            one.report = message["ready"]
            waiting, one.waiting = one.waiting, []
            for client in waiting:
                if one.suits(client.spec):
                    self._hand(one, client, reused=False)
                else:
                    self._serve(client)
        elif "ended" in message:
            one.users.discard(message["ended"])
            one.used = self._used = time.monotonic()
        elif "unfit" in message:
            self._try_without(one, message)

    def _try_without(self, one: WarmInterpreter, message: dict[str, Any]) -> None:
        """Import again without the packages that looked at rank variables, if that was the reason."""
        waiting, one.waiting = one.waiting, []
        self._end(one, "")
        tainted = set(message.get("tainted", ()))
        known = set(one.spec["skip"])
        if tainted - known and one.round < _MAX_ROUNDS:
            learned = {"skip": sorted(known | tainted), "closure": message.get("closure", [])}
            self._learned.pop(one.key, None)
            self._learned = dict([*self._learned.items(), (one.key, learned)][-_MAX_PROGRAMS:])
            with contextlib.suppress(OSError):
                write_whole(self._learned_path, json.dumps(self._learned))
            self._begin(one.key, leave_out_packages(one.spec, learned), waiting, one.round + 1)
            return
        why = str(message["unfit"])
        self._unfit[one.key] = (why, time.monotonic() + IDLE_S)
        for client in waiting:
            client.refuse(why)

    def _hand(self, one: WarmInterpreter, client: WaitingAgent, *, reused: bool) -> None:
        """Have the interpreter fork a fork server, and give the agent its socket."""
        ours, theirs = socket.socketpair()
        try:
            pool_folder.send(one.peer, {"do": "fork_server"}, theirs.fileno())
            while True:
                message = pool_folder.receive(one.peer)
                if "fork_server" in message:
                    break
                if "ended" in message:
                    one.users.discard(message["ended"])
                if "stale" in message:
                    self._end(one, "")
                    # The folder of the job that it was made for may be gone.
                    self._begin(one.key, {**one.spec, "cwd": client.spec["cwd"]}, [client])
                    return
            one.users.add(message["fork_server"])
            one.used = self._used = time.monotonic()
            one.ranks += client.ranks
            open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            answer = {
                **(one.report or {}),
                **message,
                "pid": one.pid,
                "reused": reused,
                "open_files": open_files,
            }
            with contextlib.suppress(OSError):
                pool_folder.send(client.peer, answer, ours.fileno())
            client.peer.close()
        except (OSError, ValueError):
            self._end(one, "")
            client.refuse("the warm interpreter has ended")
        finally:
            ours.close()
            theirs.close()

    def _end(self, one: WarmInterpreter, why: str) -> None:
        """End the interpreter; its fork servers serve their agents to the end."""
        with contextlib.suppress(KeyError, ValueError):
            self._poller.unregister(one.peer)
        if self._warm.pop(one.peer.fileno(), None) is None:
            return  # It has ended before, and its number may be another's.
        one.peer.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(one.pid, 0)
        for client in one.waiting:
            client.refuse(why)
        one.waiting = []

    def _look(self) -> None:
        now = time.monotonic()
        is_scarce = bool(self._warm) and read_available_memory_share() < _MIN_MEMORY_SHARE
        for one in sorted(self._warm.values(), key=lambda each: each.used):
            is_many = len(self._warm) > _MAX_INTERPRETERS
            if one.is_idle() and (is_many or is_scarce or now - one.used > self._idle_s):
                self._end(one, "")
            elif one.report is None and now - one.began > _MAX_IMPORT_S:
                why = f"its imports take more than {_MAX_IMPORT_S} s"
                self._unfit[one.key] = (why, now + IDLE_S)
                self._end(one, why)


def _compute_key(spec: dict[str, Any]) -> str:
    """Return a digest of all that imports may depend on; the interpreter itself checks files on the disk."""
    names = ("python", "argv0", "flags", "target", "imports", "env", "free", "bound", "skip")
    text = json.dumps([*(spec[name] for name in names), len(spec["cores"])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_learned(entry: Any) -> bool:
    lists = [entry.get(name) for name in ("skip", "closure")] if isinstance(entry, dict) else [None]
    return all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists)


def leave_out_packages(spec: dict[str, Any], learned: dict[str, Any]) -> dict[str, Any]:
    """Return that spec without the packages that it must leave out; the modules that they had imported come instead."""
    # What the program sets in between must be set before what follows, and not before the rest.
    is_plain = all(one[0] for one in spec["imports"])
    first = [[name, [], ""] for name in learned["closure"]] if is_plain else []
    rest = [one for one in spec["imports"] if one[0].partition(".")[0] not in learned["skip"]]
    return {**spec, "skip": learned["skip"], "imports": [*first, *rest]}


# A warm interpreter as its warm pool sees it: how it is started, and what there is to say of it.


_SERVER_VARIABLE = "DRUMLINE_WARM_SERVER"
_PROBE_VARIABLE = "DRUMLINE_WARM_PROBE"
_PROBE_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 30.0
_TASK_FIELDS = ("target", "imports", "asked", "free", "differs", "skip", "left_out")


class WaitingAgent(NamedTuple):
    """
    An agent that waits for its fork server. ``ranks``: how many it will fork; ``spec``: of what, as it is for them.
    """

    peer: socket.socket
    ranks: int
    spec: dict[str, Any]

    def refuse(self, why: str) -> None:
        with contextlib.suppress(OSError):
            pool_folder.send(self.peer, {"unfit": why})
        self.peer.close()


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
        pool_folder.send(ours, {name: spec[name] for name in _TASK_FIELDS})
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
